import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { ApiError } from '../src/api';
import { PoolView } from '../src/components/poolview';
import { PoolModel } from '../src/model';
import type { INotebooks } from '../src/notebooks';
import type { ILease, IPool } from '../src/pool';
import { device, FakeApi, FakeEvents, GIB, lease, part, pool } from './samples';

const trans = nullTranslator.load('jupyter_vgpu');

class FakeNotebooks implements INotebooks {
  readonly changed = new Signal<this, void>(this);
  own = true;
  nameOf = (one: ILease) => one.name;
  isOwn = () => this.own;
}

describe('PoolView', () => {
  let api: FakeApi;
  let model: PoolModel;
  let notebooks: FakeNotebooks;
  let host: HTMLElement;
  let root: Root;

  const draw = () => act(() => root.render(<PoolView {...{ model, notebooks, trans }} />));
  const show = async (answer: IPool) => {
    api.pool = answer;
    await model.refresh();
    draw();
  };
  const field = (name: string) =>
    host.querySelector<HTMLInputElement>(`input[aria-label^="${name}"]`)!;
  const apply = () => host.querySelector<HTMLButtonElement>('button[type=submit]')!;
  const type = (input: HTMLInputElement, text: string) =>
    act(() => {
      const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')!.set!;
      set.call(input, text);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    });
  const submit = () =>
    act(async () => {
      apply().click();
    });

  beforeEach(() => {
    (globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;
    api = new FakeApi(pool());
    model = new PoolModel({ api, events: new FakeEvents(), pollSeconds: 5 });
    model.changed.connect(() => draw());
    notebooks = new FakeNotebooks();
    host = document.body.appendChild(document.createElement('div'));
    root = createRoot(host);
  });

  afterEach(() => {
    act(() => root.unmount());
    host.remove();
    model.dispose();
  });

  it('lists devices and kernels with used and limit, state and share', async () => {
    await show(pool());
    expect(host.querySelector('.jp-vgpu-Device')!.textContent).toContain('Simulated GPU 16 GiB');
    expect(host.querySelector('.jp-vgpu-Device')!.textContent).toContain('2 / 16 GiB');
    const row = host.querySelector('.jp-vgpu-Lease')!.textContent;
    expect(row).toContain('first.ipynb');
    expect(row).toContain('Idle');
    expect(row).toContain('1 / 8 GiB');
    expect(row).toContain('50% of compute');
  });

  it('says that the devices are simulated', async () => {
    await show(pool());
    expect(host.textContent).toContain('Simulated GPUs only');
    await show(pool({ message: 'These devices are simulated.' }));
    expect(host.querySelectorAll('.jp-vgpu-Notice')).toHaveLength(1);
    expect(host.querySelector('.jp-vgpu-Notice')!.textContent).toContain(
      'These devices are simulated.'
    );
    await show(
      pool({ simulated: false, devices: [device({ simulated: false, name: 'NVIDIA H200' })] })
    );
    expect(host.textContent).not.toContain('Simulated');
  });

  it('says that there is no GPU, with the server’s message', async () => {
    await show(
      pool({ devices: [], leases: [], simulated: false, message: 'NVML found no device.' })
    );
    expect(host.textContent).toContain('No GPU on this machine');
    expect(host.textContent).toContain('NVML found no device.');
  });

  it('says who else manages a device', async () => {
    await show(pool({ devices: [device({ managed_by: 'pid 123 of bob' })], leases: [] }));
    expect(host.textContent).toContain('Managed by pid 123 of bob');
  });

  it('says that no arbiter runs, and why', async () => {
    await show(
      pool({ arbiter: null, devices: [], leases: [], message: 'A gateway runs the kernels.' })
    );
    expect(host.textContent).toContain('No GPUs to share');
    expect(host.textContent).toContain('A gateway runs the kernels.');
  });

  it('announces a server that does not answer', async () => {
    api.failure = new Error('connection refused');
    await model.refresh().catch(() => undefined);
    draw();
    expect(host.querySelector('[role=alert]')!.textContent).toContain('connection refused');
  });

  it('announces a policy error', async () => {
    const policy = {
      source: 'policy.yaml',
      revision: 2,
      error: "classes.small.memory: '8GB?'",
      policy: {}
    };
    await show(pool({ policy }));
    expect(host.querySelector('[role=alert]')!.textContent).toContain(
      "classes.small.memory: '8GB?'"
    );
  });

  it('shows the position of a kernel that waits, and the lease’s message', async () => {
    await show(
      pool({ leases: [lease({ state: 'queued', queue_position: 2, message: 'device 0 is full' })] })
    );
    expect(host.textContent).toContain('Waiting for GPU, position 2');
    expect(host.textContent).toContain('device 0 is full');
  });

  it('resizes with the units that stand beside the fields, sending what was edited alone', async () => {
    await show(pool());
    expect(field('Memory limit').value).toBe('8');
    expect(apply().disabled).toBe(true);
    type(field('Memory limit'), '4');
    await submit();
    expect(api.changes).toEqual([{ id: 'lease-1', change: { memory: '4GiB' } }]);
    expect(field('Memory limit').value).toBe('4');
    expect(field('Compute share').value).toBe('25');
  });

  it('keeps a refused value in its field beside the server’s sentence', async () => {
    await show(pool());
    api.refusal = new ApiError("compute: '200%' is not allowed", 'invalid', 'compute');
    type(field('Compute share'), '200');
    await submit();
    expect(api.changes).toEqual([{ id: 'lease-1', change: { compute: '200%' } }]);
    expect(host.querySelector('.jp-vgpu-Lease [role=alert]')!.textContent).toBe(
      "compute: '200%' is not allowed"
    );
    expect(field('Compute share').value).toBe('200');
    expect(field('Compute share').getAttribute('aria-invalid')).toBe('true');
    expect(field('Memory limit').getAttribute('aria-invalid')).toBe('false');
    expect(host.querySelector('.jp-vgpu-Lease-terms')!.textContent).toBe('50% of compute');
  });

  it('takes an edit back on Escape, and what the server said of it', async () => {
    await show(pool());
    api.refusal = new ApiError("memory: '99GiB' is not allowed", 'invalid', 'memory');
    type(field('Memory limit'), '99');
    await submit();
    expect(host.querySelector('.jp-vgpu-Lease [role=alert]')).not.toBeNull();
    act(() => {
      field('Memory limit').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Escape', bubbles: true })
      );
    });
    expect(field('Memory limit').value).toBe('8');
    expect(host.querySelector('.jp-vgpu-Lease [role=alert]')).toBeNull();
  });

  describe('of a kernel with several devices', () => {
    const devices = [device(), device({ uuid: 'GPU-1', index: 1, memory_pool: 24 * GIB })];
    const parts = [
      part({ memory: 16 * GIB, memory_used: 2 * GIB }),
      part({ device: 'GPU-1', memory: 24 * GIB, memory_used: 0 })
    ];

    it('shows used and limit on each', async () => {
      await show(pool({ devices, leases: [lease({ parts })] }));
      const rows = [...host.querySelectorAll('.jp-vgpu-Lease-part')];
      expect(rows.map(row => row.textContent)).toEqual(['GPU 02 / 16 GiB', 'GPU 10 / 24 GiB']);
      expect(host.querySelector('.jp-vgpu-Lease-terms')!.textContent).toBe(
        '50% of compute on each GPU'
      );
      expect(
        [...host.querySelectorAll('.jp-vgpu-Lease [role=meter]')].map(bar =>
          bar.getAttribute('aria-label')
        )
      ).toEqual(['Memory of first.ipynb on GPU 0', 'Memory of first.ipynb on GPU 1']);
    });

    it('offers one quota, which is for each of them and begins with the largest', async () => {
      await show(pool({ devices, leases: [lease({ parts })] }));
      expect(host.querySelector('form')!.textContent).toContain('Memory each');
      expect(field('Memory limit').getAttribute('aria-label')).toContain('on each of its GPUs');
      expect(field('Memory limit').value).toBe('24');
      type(field('Memory limit'), '4');
      await submit();
      expect(api.changes).toEqual([{ id: 'lease-1', change: { memory: '4GiB' } }]);
    });

    it('names the shares where they differ', async () => {
      const uneven = [parts[0], { ...parts[1], compute: 0.25 }];
      await show(pool({ devices, leases: [lease({ parts: uneven })] }));
      expect(host.querySelector('.jp-vgpu-Lease-terms')!.textContent).toBe('50%, 25% of compute');
    });
  });

  it('follows the lease while nobody edits', async () => {
    await show(pool());
    await show(pool({ leases: [lease({ parts: [part({ memory: 12 * GIB })] })] }));
    expect(field('Memory limit').value).toBe('12');
  });

  it('offers no control over another server’s kernel', async () => {
    notebooks.own = false;
    await show(pool());
    expect(host.querySelector('form')).toBeNull();
    expect(host.textContent).toContain('alice, on another server');
    await show(pool({ leases: [lease({ kernel_id: null, name: 'python train.py' })] }));
    expect(host.textContent).toContain('command of alice');
  });
});
