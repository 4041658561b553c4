import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import type { IDevice } from '../pool';
import { MemoryBar } from './memorybar';

interface IDeviceProps {
  device: IDevice;
  trans: TranslationBundle;
}

/** One device: what it is, whose it is, how much of its memory is in use. */
export function Device({ device, trans }: IDeviceProps): JSX.Element {
  return (
    <li className="jp-vgpu-Device" data-device={device.uuid}>
      <div className="jp-vgpu-Row">
        <span className="jp-vgpu-Device-index">{device.index}</span>
        <span className="jp-vgpu-Row-name" title={`${device.name}\n${device.uuid}`}>
          {device.name}
        </span>
      </div>
      {device.managed_by !== null && (
        <p className="jp-vgpu-Note jp-mod-warning">
          {trans.__('Managed by %1; kernels on it run without a quota here.', device.managed_by)}
        </p>
      )}
      <MemoryBar
        used={device.memory_used}
        limit={device.memory_pool}
        label={trans.__('Memory in use on %1', device.name)}
      />
    </li>
  );
}
