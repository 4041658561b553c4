import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import type { PoolModel } from '../model';
import type { INotebooks } from '../notebooks';
import type { IPool } from '../pool';
import { Device } from './device';
import { Lease } from './lease';
import { Notice } from './notice';

interface IPoolViewProps {
  model: PoolModel;
  notebooks: INotebooks;
  trans: TranslationBundle;
}

/** The whole panel: what a person should know first, then devices, then kernels. */
export function PoolView({ model, notebooks, trans }: IPoolViewProps): JSX.Element {
  const { pool, problem } = model;
  return (
    <div className="jp-vgpu-Pool">
      <header className="jp-vgpu-Pool-header">
        <h2>{trans.__('GPU pool')}</h2>
      </header>
      {problem !== null && (
        <Notice kind="error" title={trans.__('The GPU pool does not answer')}>
          {problem}
        </Notice>
      )}
      {pool === null ? (
        problem === null && <p className="jp-vgpu-Pool-empty">{trans.__('Loading…')}</p>
      ) : (
        <>
          <Notices pool={pool} trans={trans} />
          {pool.devices.length > 0 && (
            <section aria-label={trans.__('Devices')}>
              <h3>{trans.__('Devices')}</h3>
              <ul>
                {pool.devices.map(device => (
                  <Device key={device.uuid} device={device} trans={trans} />
                ))}
              </ul>
            </section>
          )}
          {(pool.devices.length > 0 || pool.leases.length > 0) && (
            <section aria-label={trans.__('Kernels')}>
              <h3>{trans.__('Kernels')}</h3>
              {pool.leases.length === 0 && (
                <p className="jp-vgpu-Pool-empty">{trans.__('No kernel holds a part of a GPU.')}</p>
              )}
              <ul>
                {pool.leases.map(lease => (
                  <Lease
                    key={lease.id}
                    lease={lease}
                    devices={pool.devices}
                    name={notebooks.nameOf(lease)}
                    editable={notebooks.isOwn(lease)}
                    refusal={model.refusal(lease.id)}
                    onResize={change => model.resize(lease.id, change)}
                    onDismiss={() => model.dismiss(lease.id)}
                    trans={trans}
                  />
                ))}
              </ul>
            </section>
          )}
        </>
      )}
    </div>
  );
}

function Notices({ pool, trans }: { pool: IPool; trans: TranslationBundle }): JSX.Element {
  return (
    <>
      {pool.policy.error !== null && (
        <Notice
          kind="error"
          title={trans.__('The policy file has an error; the last good policy stays in force')}
        >
          {pool.policy.error}
        </Notice>
      )}
      {pool.devices.length === 0 && (
        <Notice
          kind="info"
          title={
            pool.arbiter === null
              ? trans.__('No GPUs to share')
              : trans.__('No GPU on this machine')
          }
        >
          {pool.message ??
            trans.__(
              'Kernels run as they would without this extension. VGPU_SIMULATED=2x16GiB shows simulated ones.'
            )}
        </Notice>
      )}
      {pool.devices.length > 0 && (pool.simulated || pool.message !== null) && (
        <Notice kind="info" title={pool.simulated ? trans.__('Simulated GPUs only') : null}>
          {pool.message ?? trans.__('No real GPU is used: kernels compute on simulated devices.')}
        </Notice>
      )}
    </>
  );
}
