import type { INotebookTracker } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { ApiError } from '../src/api';
import { PoolModel } from '../src/model';
import { isFresh, NotebookRequests } from '../src/notebooks';
import { FakeApi, FakeEvents, lease, pool, settle } from './samples';

/** As much of a notebook panel as the watcher may look at. */
class FakePanel {
  constructor(public metadata: unknown) {}

  readonly disposed = new Signal<this, void>(this);
  readonly context = { ready: Promise.resolve(), localPath: 'work/first.ipynb' };
  readonly content = { model: { getMetadata: () => this.metadata } };
  readonly sessionContext = {
    session: null as { kernel: { id: string } } | null,
    statusChanged: new Signal<object, string>({}),
    kernelChanged: new Signal<object, void>({})
  };

  connectTo(kernelId: string): void {
    this.sessionContext.session = { kernel: { id: kernelId } };
    this.sessionContext.kernelChanged.emit();
  }

  status(...statuses: string[]): void {
    statuses.forEach(status => this.sessionContext.statusChanged.emit(status));
  }
}

describe('isFresh', () => {
  it.each([
    [5, false, true],
    [5, true, false],
    [3600, false, false]
  ])('a lease %d s old, known: %p, is fresh: %p', (age, known, fresh) => {
    expect(isFresh(lease({ created: 1000 }), { now: 1000 + age, known })).toBe(fresh);
  });
});

describe('NotebookRequests', () => {
  let api: FakeApi;
  let notified: string[];
  let requests: NotebookRequests;
  let added: Signal<object, FakePanel>;

  const restart = () => {
    requests?.dispose();
    added = new Signal<object, FakePanel>({});
    requests = new NotebookRequests({
      tracker: { forEach: () => undefined, widgetAdded: added } as unknown as INotebookTracker,
      api,
      model: new PoolModel({ api, events: new FakeEvents(), pollSeconds: 5 }),
      storage: window.sessionStorage,
      notify: message => notified.push(message),
      malformed: value => `malformed: ${JSON.stringify(value)}`
    });
  };
  const open = (metadata: unknown) => {
    const panel = new FakePanel(metadata);
    added.emit(panel);
    return panel;
  };

  beforeEach(() => {
    window.sessionStorage.clear();
    notified = [];
    api = new FakeApi(pool({ leases: [lease({ created: 1001 })] }));
    restart();
  });

  it('asks for what the notebook says, as it says it, when its kernel has started', async () => {
    open({ memory: '4GiB', compute: 0.25, class: 'small' }).connectTo('kernel-1');
    await settle();
    expect(api.changes).toEqual([
      { id: 'lease-1', change: { memory: '4GiB', compute: 0.25, class: 'small' } }
    ]);
  });

  it('asks again after each restart, the user’s and the server’s own, once the kernel is there', async () => {
    const panel = open({ memory: '4GiB' });
    panel.connectTo('kernel-1');
    await settle();
    panel.status('restarting', 'starting');
    await settle();
    expect(api.changes).toHaveLength(1);
    panel.status('idle', 'busy', 'idle');
    await settle();
    expect(api.changes).toHaveLength(2);
    panel.status('autorestarting', 'idle');
    await settle();
    expect(api.changes).toHaveLength(3);
  });

  it('asks again although JupyterLab announces the restarted kernel before it is there', async () => {
    const panel = open({ memory: '4GiB' });
    panel.connectTo('kernel-1');
    await settle();
    panel.status('restarting', 'starting');
    panel.connectTo('kernel-1');
    panel.status('idle');
    await settle();
    expect(api.changes).toHaveLength(2);
  });

  it('does not undo a live resize when the page is reloaded', async () => {
    open({ memory: '4GiB' }).connectTo('kernel-1');
    await settle();
    restart();
    api.pool = pool({ leases: [lease({ created: 1001 })] });
    open({ memory: '4GiB' }).connectTo('kernel-1');
    await settle();
    expect(api.changes).toHaveLength(1);
  });

  it('leaves a kernel alone that ran before the notebook was opened here', async () => {
    api.pool = pool({ leases: [lease({ created: 1002 - 3600 })] });
    open({ memory: '4GiB' }).connectTo('kernel-1');
    await settle();
    expect(api.changes).toEqual([]);
  });

  it.each([[undefined], [null], [{}]])('asks for nothing for metadata %p', async metadata => {
    open(metadata).connectTo('kernel-1');
    await settle();
    expect(api.changes).toEqual([]);
    expect(notified).toEqual([]);
  });

  it('asks for nothing for a kernel without a lease', async () => {
    open({ memory: '4GiB' }).connectTo('kernel-of-a-machine-without-gpu');
    await settle();
    expect(api.changes).toEqual([]);
    expect(notified).toEqual([]);
  });

  it('shows the server’s sentence when the request is refused', async () => {
    api.refusal = new ApiError(
      "class: 'huge' is not allowed; allowed: small, large",
      'invalid',
      'class'
    );
    open({ class: 'huge' }).connectTo('kernel-1');
    await settle();
    expect(notified).toEqual(["first.ipynb: class: 'huge' is not allowed; allowed: small, large"]);
  });

  it('says what metadata that is no object should be', async () => {
    open('8GiB').connectTo('kernel-1');
    await settle();
    expect(notified).toEqual(['malformed: "8GiB"']);
    expect(api.changes).toEqual([]);
  });

  it('asks for nothing when the user has switched it off', async () => {
    requests.enabled = false;
    open({ memory: '4GiB' }).connectTo('kernel-1');
    await settle();
    expect(api.changes).toEqual([]);
  });

  it('stops looking at a closed notebook', async () => {
    const panel = open({ memory: '4GiB' });
    panel.disposed.emit();
    panel.connectTo('kernel-1');
    await settle();
    expect(api.changes).toEqual([]);
  });
});
