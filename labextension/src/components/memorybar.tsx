import React from 'react';
import { formatUsage } from '../units';

interface IMemoryBarProps {
  used: number;
  limit: number;
  label: string;
}

/** Used of limit, as figure and bar. */
export function MemoryBar({ used, limit, label }: IMemoryBarProps): JSX.Element {
  const fraction = limit > 0 ? Math.min(1, used / limit) : 0;
  const text = formatUsage(used, limit);
  return (
    <div className="jp-vgpu-MemoryBar">
      <div
        className="jp-vgpu-MemoryBar-track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={used}
        aria-valuetext={text}
      >
        <div
          className={`jp-vgpu-MemoryBar-fill${fraction > 0.9 ? ' jp-mod-full' : ''}`}
          style={{ width: `${fraction * 100}%` }}
        />
      </div>
      <span className="jp-vgpu-MemoryBar-figure" aria-hidden="true">
        {text}
      </span>
    </div>
  );
}
