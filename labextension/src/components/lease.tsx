import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import type { IRefusal } from '../model';
import type { IDevice, ILease, ILeaseChange } from '../pool';
import { formatFraction } from '../units';
import { QuotaControl } from './controls';
import { MemoryBar } from './memorybar';

interface ILeaseProps {
  lease: ILease;
  devices: readonly IDevice[];
  /** What the user calls this kernel: its notebook's present name. */
  name: string;
  /** Whether this server may change the lease. */
  editable: boolean;
  refusal: IRefusal | null;
  onResize: (change: ILeaseChange) => Promise<boolean>;
  /** The user has seen the refusal. */
  onDismiss: () => void;
  trans: TranslationBundle;
}

/** One kernel: name, state, what it uses of what it may, and the control that changes it. */
export function Lease(props: ILeaseProps): JSX.Element {
  const { lease, devices, name, editable, refusal, onResize, onDismiss, trans } = props;
  return (
    <li className="jp-vgpu-Lease" data-lease={lease.id} data-kernel={lease.kernel_id ?? undefined}>
      <div className="jp-vgpu-Row">
        <span className="jp-vgpu-Row-name" title={lease.path ?? name}>
          {name}
        </span>
        <span className={`jp-vgpu-Badge jp-mod-${lease.state}`}>{stateText(lease, trans)}</span>
      </div>
      {lease.parts.map(part => {
        const device = devices.find(other => other.uuid === part.device);
        const where = device ? trans.__('GPU %1', device.index) : part.device;
        return (
          <div className="jp-vgpu-Lease-part" key={part.device} data-device={part.device}>
            <span className="jp-vgpu-Lease-device" title={device?.name ?? part.device}>
              {where}
            </span>
            <MemoryBar
              used={part.memory_used}
              limit={part.memory}
              label={trans.__('Memory of %1 on %2', name, where)}
            />
          </div>
        );
      })}
      <div className="jp-vgpu-Lease-terms">
        {lease.parts.length > 0 && <span>{computeText(lease, trans)}</span>}
        {!editable && <span>{ownerText(lease, trans)}</span>}
      </div>
      {lease.message !== null && <p className="jp-vgpu-Note jp-mod-warning">{lease.message}</p>}
      {editable && lease.parts.length > 0 && (
        <QuotaControl
          parts={lease.parts}
          name={name}
          refusal={refusal}
          onResize={onResize}
          onDismiss={onDismiss}
          trans={trans}
        />
      )}
    </li>
  );
}

function computeText(lease: ILease, trans: TranslationBundle): string {
  const shares = [...new Set(lease.parts.map(part => formatFraction(part.compute)))];
  return lease.parts.length === 1 || shares.length > 1
    ? trans.__('%1 of compute', shares.join(', '))
    : trans.__('%1 of compute on each GPU', shares[0]);
}

function ownerText(lease: ILease, trans: TranslationBundle): string {
  return lease.kernel_id === null
    ? trans.__('command of %1', lease.owner)
    : trans.__('%1, on another server', lease.owner);
}

function stateText(lease: ILease, trans: TranslationBundle): string {
  switch (lease.state) {
    case 'starting':
      return trans.__('Starting');
    case 'queued':
      return lease.queue_position === null
        ? trans.__('Waiting for GPU')
        : trans.__('Waiting for GPU, position %1', lease.queue_position);
    case 'active':
      return trans.__('Active');
    case 'idle':
      return trans.__('Idle');
  }
}
