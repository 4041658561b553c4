import { ApiError } from '../src/api';
import { PoolModel } from '../src/model';
import { FakeApi, FakeEvents, GIB, lease, part, pool, settle } from './samples';

describe('PoolModel', () => {
  let api: FakeApi;
  let events: FakeEvents;
  let model: PoolModel;

  beforeEach(() => {
    jest.useFakeTimers();
    api = new FakeApi(pool());
    events = new FakeEvents();
    model = new PoolModel({ api, events, pollSeconds: 5 });
  });

  afterEach(() => {
    model.dispose();
    jest.useRealTimers();
  });

  const limit = () => model.pool!.leases[0].parts[0].memory;

  it('takes a snapshot whenever the event socket opens, first and again', async () => {
    events.connected.emit();
    await settle();
    expect(model.pool).toEqual(api.pool);
    api.pool = pool({ leases: [] });
    events.connected.emit();
    await settle();
    expect(model.pool!.leases).toEqual([]);
  });

  it('takes over the lease that an event brings, without asking again', async () => {
    await model.refresh();
    const changed = lease({ state: 'active' });
    events.event.emit({ type: 'resized', message: '', lease: changed });
    expect(model.pool!.leases).toEqual([changed]);
    expect(api.snapshots).toBe(1);
  });

  it('adds the lease of a new kernel', async () => {
    await model.refresh();
    const added = lease({ id: 'lease-2' });
    events.event.emit({ type: 'created', message: '', lease: added });
    expect(model.pool!.leases.map(one => one.id)).toEqual(['lease-1', 'lease-2']);
  });

  it('takes a snapshot for an event without a lease and for an ended one', async () => {
    await model.refresh();
    api.pool = pool({ leases: [] });
    events.event.emit({ type: 'released', message: '', lease: lease() });
    await settle();
    expect(model.pool!.leases).toEqual([]);
    events.event.emit({ type: 'policy_error', message: '' });
    await settle();
    expect(api.snapshots).toBe(3);
  });

  it('does not let a snapshot undo an event that came while it was under way', async () => {
    await model.refresh();
    const release = api.hold();
    const refreshed = model.refresh();
    const changed = lease({ parts: [part({ memory: 2 * GIB })] });
    api.pool = pool({ leases: [changed] });
    events.event.emit({ type: 'resized', message: '', lease: changed });
    release();
    await refreshed;
    expect(limit()).toBe(2 * GIB);
  });

  it('keeps the last snapshot and says why when the server stops answering', async () => {
    await model.refresh();
    api.failure = new Error('connection refused');
    await expect(model.refresh()).rejects.toThrow('connection refused');
    expect(model.problem).toBe('connection refused');
    expect(model.pool).toEqual(api.pool);
    api.failure = null;
    await model.refresh();
    expect(model.problem).toBeNull();
  });

  it('polls only while somebody looks', async () => {
    await jest.advanceTimersByTimeAsync(60_000);
    expect(api.snapshots).toBe(0);
    model.visible = true;
    await jest.advanceTimersByTimeAsync(10_500);
    expect(api.snapshots).toBe(3); // at once, and after 5 and 10 seconds
    model.visible = false;
    await jest.advanceTimersByTimeAsync(60_000);
    expect(api.snapshots).toBe(3);
  });

  it('looks again within 15 seconds while the server does not answer', async () => {
    model.visible = true;
    await jest.advanceTimersByTimeAsync(100);
    api.failure = new Error('connection refused');
    await jest.advanceTimersByTimeAsync(120_000);
    expect(model.problem).toBe('connection refused');
    api.failure = null;
    await jest.advanceTimersByTimeAsync(15_500);
    expect(model.problem).toBeNull();
  });

  it('starts to poll although the first look fails', async () => {
    api.failure = new Error('connection refused');
    model.visible = true;
    await jest.advanceTimersByTimeAsync(100);
    expect(model.problem).toBe('connection refused');
    api.failure = null;
    await jest.advanceTimersByTimeAsync(15_500);
    expect(model.problem).toBeNull();
  });

  it('never polls faster than every two seconds', async () => {
    model.pollSeconds = 0.1;
    model.visible = true;
    await jest.advanceTimersByTimeAsync(4_500);
    expect(api.snapshots).toBe(3);
  });

  it('shows a resize at once and then what the server made of it', async () => {
    await model.refresh();
    const release = api.hold();
    const resized = model.resize('lease-1', { memory: '6GiB', compute: '75%' });
    expect(model.pool!.leases[0].parts[0]).toMatchObject({ memory: 6 * GIB, compute: 0.75 });
    release();
    expect(await resized).toBe(true);
    expect(model.pool!.leases[0].parts[0]).toMatchObject({ memory: 4 * GIB, compute: 0.25 });
    expect(api.changes).toEqual([{ id: 'lease-1', change: { memory: '6GiB', compute: '75%' } }]);
  });

  it('takes a refused resize back and keeps the server’s sentence until the next attempt', async () => {
    await model.refresh();
    const sentence = "memory: '99GiB' is not allowed; allowed: up to 16 GiB";
    api.refusal = new ApiError(sentence, 'invalid', 'memory');
    const release = api.hold();
    const resized = model.resize('lease-1', { memory: '99GiB' });
    expect(limit()).toBe(99 * GIB);
    release();
    expect(await resized).toBe(false);
    expect(limit()).toBe(8 * GIB);
    expect(model.refusal('lease-1')).toEqual({ message: sentence, field: 'memory' });
    api.refusal = null;
    await model.resize('lease-1', { memory: '4GiB' });
    expect(model.refusal('lease-1')).toBeNull();
  });

  it('leaves a value that only the server can read to the server', async () => {
    await model.refresh();
    const release = api.hold();
    const resized = model.resize('lease-1', { memory: 'a lot' });
    expect(limit()).toBe(8 * GIB);
    release();
    await resized;
  });

  it('forgets the refusal of a lease that has ended', async () => {
    await model.refresh();
    api.refusal = new Error('no');
    await model.resize('lease-1', { memory: '99GiB' });
    api.pool = pool({ leases: [] });
    await model.refresh();
    expect(model.refusal('lease-1')).toBeNull();
  });
});
