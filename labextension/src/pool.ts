/**
 * The values of the server's API, as in jupyter_vgpu/openapi.yaml. Memory in bytes, times in seconds since the epoch,
 * compute as a fraction of one device.
 */

export interface IDevice {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  readonly simulated: boolean;
  /** Another arbiter that holds this device; null = ours does. */
  readonly managed_by: string | null;
  readonly memory_total: number;
  readonly memory_pool: number;
  readonly memory_used: number;
  readonly memory_unmanaged: number;
  readonly utilization: number | null;
  readonly temperature: number | null;
  readonly power: number | null;
  readonly unmanaged: readonly IProcess[];
}

export interface IProcess {
  readonly pid: number;
  readonly name: string | null;
  readonly memory_used: number;
}

export interface ILeasePart {
  readonly device: string;
  readonly memory: number;
  readonly memory_guarantee: number;
  readonly memory_used: number;
  readonly compute: number;
  readonly compute_cap: number | null;
}

export type LeaseState = 'starting' | 'queued' | 'active' | 'idle';

export interface ILease {
  readonly id: string;
  readonly kernel_id: string | null;
  readonly name: string;
  readonly path: string | null;
  readonly owner: string;
  readonly uid: number;
  readonly class: string | null;
  readonly priority: 'interactive' | 'batch';
  readonly state: LeaseState;
  readonly parts: readonly ILeasePart[];
  readonly processes: readonly IProcess[];
  readonly created: number;
  readonly idle_since: number | null;
  readonly message: string | null;
  readonly queue_position: number | null;
}

export interface IPool {
  /** null where no arbiter runs or answers; `message` says why. */
  readonly arbiter: {
    readonly pid: number;
    readonly version: string;
    readonly owner: string;
    readonly scope: 'user' | 'host';
    readonly started: number;
  } | null;
  readonly time: number;
  readonly simulated: boolean;
  readonly message: string | null;
  readonly devices: readonly IDevice[];
  readonly leases: readonly ILease[];
  readonly queue: readonly {
    readonly lease_id: string;
    readonly position: number;
    readonly reason: string;
    readonly since: number;
  }[];
  readonly policy: {
    readonly source: string | null;
    readonly revision: number;
    readonly error: string | null;
    readonly policy: object;
  };
}

/**
 * What a lease should become. Values travel as the user wrote them ("8GiB", "25%"): the server alone judges them, so that
 * its error names what was typed.
 */
export interface ILeaseChange {
  readonly [field: string]: unknown;
  readonly memory?: string | number;
  readonly compute?: string | number;
}

/** An event of the pool (jupyter_vgpu/server/event_schemas); those of leases carry the lease after the event. */
export interface IPoolEvent {
  readonly type: string;
  readonly message: string;
  readonly lease?: ILease | null;
}
