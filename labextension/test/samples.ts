import { Signal } from '@lumino/signaling';
import type { IPoolApi } from '../src/api';
import type { IPoolEvents } from '../src/events';
import type { IDevice, ILease, ILeaseChange, ILeasePart, IPool, IPoolEvent } from '../src/pool';

/** Values as the server sends them; test/contract.spec.ts holds them against openapi.yaml. */

export const GIB = 1024 ** 3;

export function device(changes: Partial<IDevice> = {}): IDevice {
  return {
    uuid: 'GPU-0',
    index: 0,
    name: 'Simulated GPU 16 GiB',
    simulated: true,
    managed_by: null,
    memory_total: 16 * GIB,
    memory_pool: 16 * GIB,
    memory_used: 2 * GIB,
    memory_unmanaged: 0,
    utilization: 0.5,
    temperature: 40,
    power: 100,
    unmanaged: [],
    ...changes
  };
}

export function part(changes: Partial<ILeasePart> = {}): ILeasePart {
  return {
    device: 'GPU-0',
    memory: 8 * GIB,
    memory_guarantee: 0,
    memory_used: GIB,
    compute: 0.5,
    compute_cap: null,
    ...changes
  };
}

export function lease(changes: Partial<ILease> = {}): ILease {
  return {
    id: 'lease-1',
    kernel_id: 'kernel-1',
    name: 'first.ipynb',
    path: 'first.ipynb',
    owner: 'alice',
    uid: 1000,
    class: null,
    priority: 'interactive',
    state: 'idle',
    parts: [part()],
    processes: [],
    created: 1000,
    idle_since: 1001,
    message: null,
    queue_position: null,
    ...changes
  };
}

export function pool(changes: Partial<IPool> = {}): IPool {
  return {
    arbiter: { pid: 7, version: '0.1.0', owner: 'alice', scope: 'user', started: 900 },
    time: 1002,
    simulated: true,
    message: null,
    devices: [device()],
    leases: [lease()],
    queue: [],
    policy: { source: null, revision: 1, error: null, policy: {} },
    ...changes
  };
}

/** A server with one answer for everybody; requests wait while `held`. */
export class FakeApi implements IPoolApi {
  constructor(public pool: IPool) {}

  readonly changes: Array<{ id: string; change: ILeaseChange }> = [];
  snapshots = 0;
  failure: Error | null = null;
  refusal: Error | null = null;

  /** Lets requests wait until the returned function is called. */
  hold(): () => void {
    let release = () => undefined as void;
    this._gate = new Promise(resolve => {
      release = () => resolve();
    });
    return release;
  }

  async getPool(): Promise<IPool> {
    this.snapshots += 1;
    const answer = this.pool;
    await this._gate;
    if (this.failure) {
      throw this.failure;
    }
    return answer;
  }

  async patchLease(id: string, change: ILeaseChange): Promise<ILease> {
    this.changes.push({ id, change });
    await this._gate;
    if (this.refusal) {
      throw this.refusal;
    }
    const changed = lease({ id, parts: [part({ memory: 4 * GIB, compute: 0.25 })] });
    this.pool = { ...this.pool, leases: [changed] };
    return changed;
  }

  private _gate: Promise<void> = Promise.resolve();
}

export class FakeEvents implements IPoolEvents {
  readonly connected = new Signal<this, void>(this);
  readonly event = new Signal<this, IPoolEvent>(this);
}

/** Lets everything that is ready to run, run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await Promise.resolve();
  }
}
