import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { expect, openPanel, picture, row, test } from './lab';

/**
 * States that a test machine cannot be brought into at will: the server's answer is put in its place, the rest is real.
 * The values are those of jupyter_vgpu/openapi.yaml.
 */
const GIB = 1024 ** 3;

const device = (index: number, changes: object = {}) => ({
  uuid: `GPU-${index}`,
  index,
  name: 'NVIDIA H200',
  simulated: false,
  managed_by: null,
  memory_total: 141 * GIB,
  memory_pool: 141 * GIB,
  memory_used: 40 * GIB,
  memory_unmanaged: 0,
  utilization: 0.5,
  temperature: 41,
  power: 210,
  unmanaged: [],
  ...changes
});

const part = {
  device: 'GPU-0',
  memory: 20 * GIB,
  memory_guarantee: 20 * GIB,
  memory_used: 19.2 * GIB,
  compute: 0.25,
  compute_cap: null
};

const lease = (name: string, changes: object = {}) => ({
  id: name,
  kernel_id: `kernel-of-${name}`,
  name,
  path: name,
  owner: 'alice',
  uid: 1000,
  class: null,
  priority: 'interactive',
  state: 'active',
  parts: [part],
  processes: [],
  created: 1000,
  idle_since: null,
  message: null,
  queue_position: null,
  ...changes
});

const pool = (changes: object = {}) => ({
  arbiter: { pid: 7, version: '0.1.0', owner: 'alice', scope: 'user', started: 900 },
  time: 1002,
  simulated: false,
  message: null,
  devices: [device(0)],
  leases: [],
  queue: [],
  policy: { source: null, revision: 1, error: null, policy: {} },
  ...changes
});

interface IReply {
  status: number;
  json: object;
}

/** Answers every request for the pool with what `reply` holds at that time. */
async function answer(page: IJupyterLabPageFixture, json: object): Promise<IReply> {
  const reply = { status: 200, json };
  await page.route('**/user/alice/vgpu/api/pool*', route => route.fulfill(reply));
  return reply;
}

test('says that there is no GPU, with the reason', async ({ page }) => {
  await answer(page, pool({ devices: [], message: 'NVML is not installed: no NVIDIA driver on this machine.' }));
  const panel = await openPanel(page);
  await expect(panel).toContainText('No GPU on this machine');
  await expect(panel).toContainText('NVML is not installed');
  await expect(panel.getByRole('heading', { name: 'Devices' })).toHaveCount(0);
});

test('says who else manages a device, why a kernel waits, and what is wrong with the policy (screenshot)', async ({
  page
}) => {
  await answer(
    page,
    pool({
      devices: [device(0), device(1, { managed_by: 'pid 4711 of bob', memory_used: 120 * GIB })],
      leases: [
        lease('train-a-model-with-a-rather-long-name.ipynb'),
        lease('analysis.ipynb', {
          state: 'queued',
          queue_position: 2,
          parts: [{ ...part, memory_used: 0 }],
          message: '20 GiB have to be guaranteed, and device 0 has 4 GiB left to guarantee'
        })
      ],
      policy: {
        source: 'policy.yaml',
        revision: 3,
        error:
          "policy.yaml:3: classes.small.memory: '8GB?' is not allowed; allowed: a number of bytes or a size such as 512MiB, " +
          '8GiB or 8GB, or a fraction of a device from 0.01 to 1.0, such as 0.25 or 25%',
        policy: {}
      }
    })
  );
  const panel = await openPanel(page);
  await expect(panel).toContainText('Managed by pid 4711 of bob');
  await expect(row(panel, 'analysis.ipynb')).toContainText('Waiting for GPU, position 2');
  await expect(panel.getByRole('alert')).toContainText("classes.small.memory: '8GB?'");
  await picture(page, 'pool-notices', panel);
});

test.describe('without an answer', () => {
  test.use({ expectedErrors: /503 .*vgpu\/api\/pool/ });

  test('says that the pool does not answer, and recovers', async ({ page }) => {
    const error = {
      code: 'unavailable',
      message: 'the arbiter does not answer',
      field: null,
      value: null,
      allowed: null
    };
    const reply = await answer(page, { error });
    reply.status = 503;
    const panel = await openPanel(page);
    await expect(panel.getByRole('alert')).toContainText('the arbiter does not answer');
    Object.assign(reply, { status: 200, json: pool() });
    // The panel's poll backs off to 15 seconds at most.
    await expect(panel.getByRole('alert')).toHaveCount(0, { timeout: 40_000 });
    await expect(panel).toContainText('NVIDIA H200');
  });
});
