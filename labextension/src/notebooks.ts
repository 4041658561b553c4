import type { ISessionContext } from '@jupyterlab/apputils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IPoolApi } from './api';
import type { PoolModel } from './model';
import type { ILease, ILeaseChange } from './pool';

/** What the panel asks about the kernels of this server. */
export interface INotebooks {
  readonly changed: ISignal<this, void>;
  /** The notebook's present name, else what the lease was called at its start. */
  nameOf(lease: ILease): string;
  /** Whether the lease belongs to a kernel of this server: others may be seen, not changed. */
  isOwn(lease: ILease): boolean;
}

/** The server's sessions and kernels, as JupyterLab already knows them. */
export class ServerNotebooks implements INotebooks {
  constructor(private readonly services: ServiceManager.IManager) {
    services.sessions.runningChanged.connect(() => this._changed.emit());
    services.kernels.runningChanged.connect(() => this._changed.emit());
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  nameOf(lease: ILease): string {
    for (const session of this.services.sessions.running()) {
      if (session.kernel && session.kernel.id === lease.kernel_id) {
        return session.path.split('/').pop() || session.name;
      }
    }
    return lease.name;
  }

  isOwn(lease: ILease): boolean {
    for (const kernel of this.services.kernels.running()) {
      if (kernel.id === lease.kernel_id) {
        return true;
      }
    }
    return false;
  }

  private readonly _changed = new Signal<this, void>(this);
}

/**
 * Whether a kernel that a notebook has just been connected to is also just started. A reload of the page connects to kernels
 * that run already, and must not undo what was resized since. `now` is the server's clock, as `lease.created` is.
 */
export function isFresh(lease: ILease, options: { now: number; known: boolean }): boolean {
  return !options.known && options.now - lease.created < START_WINDOW;
}

/** Seconds between a kernel's lease and its notebook's connection within which the two are one start. */
const START_WINDOW = 60;

/** Leases of this browser tab's notebooks that had their metadata applied; it outlives a reload. */
const APPLIED_KEY = 'jupyter-vgpu:applied';

/**
 * Gives a kernel the lease that its notebook's metadata asks for, right after start and restart.
 *
 * Only looks on: it reads the live notebook (also unsaved, also under RTC) and speaks to our own API; kernel messages and
 * connections are none of its business.
 */
export class NotebookRequests implements IDisposable {
  constructor(options: {
    tracker: INotebookTracker;
    api: IPoolApi;
    model: PoolModel;
    storage: Storage;
    /** Tells the user why the notebook's request was not met. */
    notify: (message: string) => void;
    /** The sentence for metadata that is no object. */
    malformed: (value: unknown) => string;
  }) {
    this._options = options;
    options.tracker.forEach(panel => this._watch(panel));
    options.tracker.widgetAdded.connect(this._onAdded, this);
  }

  /** The settings' switch. */
  enabled = true;

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    Signal.clearData(this);
  }

  private _onAdded(_: INotebookTracker, panel: NotebookPanel): void {
    this._watch(panel);
  }

  private _watch(panel: NotebookPanel): void {
    const context = panel.sessionContext;
    let restarting = false;
    let kernelId: string | undefined;
    const onStatus = (_: ISessionContext, status: Kernel.Status) => {
      if (status === 'restarting' || status === 'autorestarting') {
        restarting = true;
      } else if (restarting && (status === 'idle' || status === 'busy')) {
        restarting = false;
        this._apply(panel, { restarted: true });
      }
    };
    const onKernel = () => {
      const id = context.session?.kernel?.id;
      if (id === kernelId) {
        return; // a restarted kernel is announced too, while it is still starting: its status tells when it is there
      }
      kernelId = id;
      restarting = false;
      this._apply(panel, { restarted: false });
    };
    context.statusChanged.connect(onStatus);
    context.kernelChanged.connect(onKernel);
    panel.disposed.connect(() => {
      context.statusChanged.disconnect(onStatus);
      context.kernelChanged.disconnect(onKernel);
    });
    onKernel();
  }

  private _apply(panel: NotebookPanel, options: { restarted: boolean }): void {
    if (!this.enabled || this._isDisposed) {
      return;
    }
    this._request(panel, options).catch(error => {
      console.warn('jupyter-vgpu: the notebook’s GPU request could not be sent', error);
    });
  }

  private async _request(panel: NotebookPanel, options: { restarted: boolean }): Promise<void> {
    const { api, model, notify, malformed } = this._options;
    await panel.context.ready;
    const kernel = panel.sessionContext.session?.kernel;
    const wanted = panel.content.model?.getMetadata('vgpu') as unknown;
    if (!kernel || wanted === undefined || wanted === null) {
      return;
    }
    const { leases, time } = await api.getPool();
    const lease = leases.find(one => one.kernel_id === kernel.id);
    if (!lease) {
      return; // no GPU here, or a device that another arbiter manages: the panel says so
    }
    const known = this._applied().includes(lease.id);
    if (!options.restarted && !isFresh(lease, { now: time, known })) {
      return;
    }
    this._remember(lease.id);
    if (typeof wanted !== 'object' || Array.isArray(wanted)) {
      notify(malformed(wanted));
      return;
    }
    if (Object.keys(wanted).length === 0) {
      return;
    }
    const agreed = await model.resize(lease.id, wanted as ILeaseChange);
    const refusal = model.refusal(lease.id);
    if (!agreed && refusal !== null) {
      notify(`${panel.context.localPath.split('/').pop()}: ${refusal.message}`);
    }
  }

  private _applied(): string[] {
    return JSON.parse(this._options.storage.getItem(APPLIED_KEY) ?? '[]');
  }

  private _remember(leaseId: string): void {
    const ids = this._applied().filter(id => id !== leaseId);
    this._options.storage.setItem(APPLIED_KEY, JSON.stringify([...ids, leaseId].slice(-100)));
  }

  private readonly _options: ConstructorParameters<typeof NotebookRequests>[0];
  private _isDisposed = false;
}
