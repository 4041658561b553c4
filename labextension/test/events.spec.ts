import { ServerConnection } from '@jupyterlab/services';
import { PoolEvents } from '../src/events';
import type { IPoolEvent } from '../src/pool';
import { lease } from './samples';

/** As much of a browser's WebSocket as Jupyter's event manager uses; the tests open, feed and close it. */
class FakeSocket extends EventTarget {
  static made: FakeSocket[] = [];

  constructor(readonly url: string) {
    super();
    FakeSocket.made.push(this);
  }

  onclose: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  closed = false;

  open(): void {
    this.dispatchEvent(new Event('open'));
  }

  receive(emission: object): void {
    this.onmessage?.({ data: JSON.stringify(emission) });
  }

  close(): void {
    this.closed = true;
    this.onclose?.();
  }
}

describe('PoolEvents', () => {
  let events: PoolEvents;
  let connections: number;
  let heard: IPoolEvent[];

  const latest = () => FakeSocket.made[FakeSocket.made.length - 1];

  beforeEach(async () => {
    jest.useFakeTimers();
    FakeSocket.made = [];
    connections = 0;
    heard = [];
    events = new PoolEvents(
      ServerConnection.makeSettings({
        wsUrl: 'ws://localhost/user/alice/',
        WebSocket: FakeSocket as unknown as typeof WebSocket
      })
    );
    events.connected.connect(() => {
      connections += 1;
    });
    events.event.connect((_, event) => heard.push(event));
    await jest.advanceTimersByTimeAsync(100);
  });

  afterEach(() => {
    events.dispose();
    jest.useRealTimers();
  });

  it('listens on Jupyter’s event socket below the server’s base_url', () => {
    expect(FakeSocket.made.map(socket => socket.url)).toEqual([
      'ws://localhost/user/alice/api/events/subscribe'
    ]);
  });

  it('is connected once the server listens, not before', () => {
    expect(connections).toBe(0);
    latest().open();
    expect(connections).toBe(1);
  });

  it('passes the pool’s events on and leaves other extensions’ alone', () => {
    latest().open();
    const resized = { type: 'resized', message: 'memory: 4 GiB', lease: lease() };
    latest().receive({
      schema_id: 'https://events.jupyter.org/jupyter_vgpu/lease/v1',
      ...resized
    });
    latest().receive({
      schema_id: 'https://events.jupyter.org/jupyter_server/kernel_actions/v1',
      action: 'start'
    });
    expect(heard).toHaveLength(1);
    expect(heard[0]).toMatchObject(resized);
  });

  it('connects again after a lost connection, and says so each time', async () => {
    latest().open();
    latest().close();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(FakeSocket.made).toHaveLength(2);
    expect(connections).toBe(1);
    latest().open();
    expect(connections).toBe(2);
  });

  it('closes its socket for good when disposed', async () => {
    latest().open();
    const socket = latest();
    events.dispose();
    expect(socket.closed).toBe(true);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(FakeSocket.made).toHaveLength(1);
  });
});
