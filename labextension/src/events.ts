import { EventManager, ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IPoolEvent } from './pool';

/** Where the model hears of changes. The model's tests put a fake in its place. */
export interface IPoolEvents {
  /** Emits when the server is (again) listening to us: events before it were missed, so a snapshot is due. */
  readonly connected: ISignal<this, void>;
  readonly event: ISignal<this, IPoolEvent>;
}

/** What the ids of our schemas begin with (jupyter_vgpu/server/event_schemas). */
const SCHEMAS = 'https://events.jupyter.org/jupyter_vgpu/';

/**
 * The pool's events from Jupyter's event socket.
 *
 * JupyterLab's own EventManager reconnects with back-off but does not tell when it did; so this one is an EventManager of
 * its own whose sockets report their opening.
 */
export class PoolEvents implements IPoolEvents, IDisposable {
  constructor(settings: ServerConnection.ISettings) {
    const opened = () => this._connected.emit();
    const observed = class extends settings.WebSocket {
      constructor(url: string | URL, protocols?: string | string[]) {
        super(url, protocols);
        this.addEventListener('open', opened);
      }
    };
    this._manager = new EventManager({ serverSettings: { ...settings, WebSocket: observed } });
    this._manager.stream.connect((_, emission) => {
      if (emission.schema_id.startsWith(SCHEMAS)) {
        this._event.emit(emission as unknown as IPoolEvent);
      }
    });
  }

  get connected(): ISignal<this, void> {
    return this._connected;
  }

  get event(): ISignal<this, IPoolEvent> {
    return this._event;
  }

  get isDisposed(): boolean {
    return this._manager.isDisposed;
  }

  dispose(): void {
    this._manager.dispose();
    Signal.clearData(this);
  }

  private readonly _manager: EventManager;
  private readonly _connected = new Signal<this, void>(this);
  private readonly _event = new Signal<this, IPoolEvent>(this);
}
