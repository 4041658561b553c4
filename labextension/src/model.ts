import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { ApiError, IPoolApi } from './api';
import type { IPoolEvents } from './events';
import type { ILease, ILeaseChange, IPool, IPoolEvent } from './pool';
import { guessFraction, guessSize } from './units';

/** Seconds between two looks at the use figures, at least: they cost the server a reading of every device. */
export const POLL_MINIMUM = 2;

/** A refused change: the server's own sentence, and the field that it names. */
export interface IRefusal {
  readonly message: string;
  readonly field: string | null;
}

/**
 * The pool as this browser knows it: one snapshot, kept current by events, and by a slow poll while somebody looks.
 *
 * The panel and the notebooks' watcher share one. The server's answer is the only truth; what the user has just asked for
 * lies over it until the server has answered, so that undoing it is taking it away.
 */
export class PoolModel implements IDisposable {
  constructor(options: { api: IPoolApi; events: IPoolEvents; pollSeconds: number }) {
    this._api = options.api;
    options.events.connected.connect(this._refreshQuietly, this);
    options.events.event.connect(this._onEvent, this);
    this._poll = new Poll({
      auto: false,
      factory: () => this.refresh(),
      frequency: { interval: pollInterval(options.pollSeconds), backoff: 1.5, max: 15_000 },
      standby: () => !this._visible || document.hidden,
      name: 'jupyter-vgpu:pool'
    });
  }

  /** Something that a view shows has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The pool with what was asked for and not yet answered; null before the first answer. */
  get pool(): IPool | null {
    if (!this._pool || this._asked.size === 0) {
      return this._pool;
    }
    return { ...this._pool, leases: this._pool.leases.map(lease => this._overlaid(lease)) };
  }

  /** Why there is no current snapshot; null while the server answers. */
  get problem(): string | null {
    return this._problem;
  }

  /** What the server said of the last change of a lease, if it refused. */
  refusal(leaseId: string): IRefusal | null {
    return this._refusals.get(leaseId) ?? null;
  }

  /** The user has seen the refusal. */
  dismiss(leaseId: string): void {
    if (this._refusals.delete(leaseId)) {
      this._changed.emit();
    }
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  /** Whether somebody looks. The panel says so when it is shown and hidden; use figures are polled only meanwhile. */
  set visible(visible: boolean) {
    if (visible === this._visible) {
      return;
    }
    this._visible = visible;
    if (visible) {
      void this._poll.refresh();
    } else {
      void this._poll.stop();
    }
  }

  set pollSeconds(seconds: number) {
    this._poll.frequency = { ...this._poll.frequency, interval: pollInterval(seconds) };
  }

  /** Takes a new snapshot. Rejects where the server does not answer, with `problem` set. */
  async refresh(): Promise<void> {
    const edition = ++this._edition;
    const revision = this._revision;
    try {
      const pool = await this._api.getPool();
      if (edition !== this._edition) {
        return; // a later snapshot is under way
      }
      if (revision !== this._revision) {
        return await this.refresh(); // a lease changed meanwhile, and this snapshot may be from before it
      }
      this._pool = pool;
      this._problem = null;
      this._forgetEnded(pool);
    } catch (error) {
      if (edition === this._edition) {
        this._problem = messageOf(error);
      }
      throw error;
    } finally {
      this._changed.emit();
    }
  }

  /**
   * Asks for a change of a lease; it shows at once, and is taken back with the server's message if refused.
   * Resolves to whether the server agreed.
   */
  async resize(leaseId: string, change: ILeaseChange): Promise<boolean> {
    this._asked.set(leaseId, change);
    this._refusals.delete(leaseId);
    this._changed.emit();
    try {
      this._replace(await this._api.patchLease(leaseId, change));
      return true;
    } catch (error) {
      this._refusals.set(leaseId, {
        message: messageOf(error),
        field: error instanceof ApiError ? error.field : null
      });
      return false;
    } finally {
      // A later request for the same lease owns the entry by now.
      if (this._asked.get(leaseId) === change) {
        this._asked.delete(leaseId);
      }
      this._changed.emit();
    }
  }

  dispose(): void {
    this._poll.dispose();
    Signal.clearData(this);
  }

  private _refreshQuietly(): void {
    this.refresh().catch(() => undefined); // `problem` says it
  }

  private _onEvent(_: IPoolEvents, event: IPoolEvent): void {
    if (event.lease && event.type !== 'released' && this._pool) {
      this._replace(event.lease);
      this._changed.emit();
    } else {
      this._refreshQuietly();
    }
  }

  private _replace(lease: ILease): void {
    if (!this._pool) {
      return;
    }
    this._revision += 1;
    const others = this._pool.leases.filter(other => other.id !== lease.id);
    const leases =
      others.length === this._pool.leases.length
        ? [...others, lease]
        : this._pool.leases.map(other => (other.id === lease.id ? lease : other));
    this._pool = { ...this._pool, leases };
  }

  private _overlaid(lease: ILease): ILease {
    const asked = this._asked.get(lease.id);
    if (!asked) {
      return lease;
    }
    const memory = guessSize(asked.memory);
    const compute = guessFraction(asked.compute);
    const parts = lease.parts.map(part => ({
      ...part,
      memory: memory ?? part.memory,
      compute: compute ?? part.compute
    }));
    return { ...lease, parts };
  }

  private _forgetEnded(pool: IPool): void {
    const ids = new Set(pool.leases.map(lease => lease.id));
    for (const id of this._refusals.keys()) {
      if (!ids.has(id)) {
        this._refusals.delete(id);
      }
    }
  }

  private readonly _api: IPoolApi;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _asked = new Map<string, ILeaseChange>();
  private readonly _refusals = new Map<string, IRefusal>();
  private _pool: IPool | null = null;
  private _problem: string | null = null;
  private _visible = false;
  private _edition = 0;
  private _revision = 0;
}

function pollInterval(seconds: number): number {
  return Math.max(POLL_MINIMUM, seconds) * 1000;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
