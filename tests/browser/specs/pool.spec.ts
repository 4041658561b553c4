import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { expect, openNotebook, openPanel, parts, picture, row, runCell, test } from './lab';

/** Prints what a CUDA program is told of each device's total memory, in MiB. */
const QUOTA = `
from cuda.bindings import driver

driver.cuInit(0)
totals = []
for device in range(driver.cuDeviceGetCount()[1]):
    context = driver.cuDevicePrimaryCtxRetain(device)[1]
    driver.cuCtxSetCurrent(context)
    totals.append(driver.cuMemGetInfo()[2] // 2**20)
print(totals)
`.trim();

const ALLOCATE = `
from cuda.bindings import driver

driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
error, data = driver.cuMemAlloc(6 * 2**30)
print(error.name)
`.trim();

/** The totals that a CUDA program in the notebook is told now, in MiB. */
async function totals(page: IJupyterLabPageFixture, name: string): Promise<number[]> {
  return JSON.parse((await runCell(page, name)) ?? 'null');
}

/** Sets metadata of the current notebook, as the property inspector does; it is not saved. */
async function ask(page: IJupyterLabPageFixture, metadata: unknown): Promise<void> {
  await page.evaluate(value => {
    const panel = (window as any).jupyterapp.shell.currentWidget;
    panel.content.model.setMetadata('vgpu', value);
  }, metadata);
}

async function restartKernel(page: IJupyterLabPageFixture): Promise<void> {
  await page.evaluate(() => (window as any).jupyterapp.shell.currentWidget.sessionContext.restartKernel());
}

test('two notebooks share the GPUs, and a quota changes while its kernel runs (screenshot)', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(panel).toContainText('Simulated GPUs only');
  await expect(panel.locator('.jp-vgpu-Device')).toHaveCount(2);
  await expect(panel).toContainText('No kernel holds a part of a GPU.');

  await openNotebook(page, 'explore.ipynb', QUOTA);
  await openNotebook(page, 'train.ipynb', ALLOCATE);
  const explore = row(panel, 'explore.ipynb');
  const train = row(panel, 'train.ipynb');
  await expect(parts(explore)).toHaveText([/\/ 16 GiB$/, /\/ 16 GiB$/]);
  await expect(parts(train)).toHaveText([/\/ 16 GiB$/, /\/ 16 GiB$/]);
  expect(await runCell(page, 'train.ipynb')).toBe('CUDA_SUCCESS');
  expect(await totals(page, 'explore.ipynb')).toEqual([16384, 16384]);

  await explore.getByLabel('Memory limit').fill('4');
  await explore.getByLabel('Compute share').fill('25');
  await explore.getByLabel('Compute share').press('Enter');
  // The quota is for each of the kernel's devices; what it uses is a context on each.
  await expect(parts(explore)).toHaveText(['GPU 00.29 / 4 GiB', 'GPU 10.29 / 4 GiB']);
  await expect(explore).toContainText('25% of compute on each GPU');
  await expect(parts(train)).toHaveText(['GPU 06.29 / 16 GiB', 'GPU 10 / 16 GiB']);
  await expect(train).toContainText('100% of compute on each GPU');
  expect(await totals(page, 'explore.ipynb')).toEqual([4096, 4096]);

  await expect(panel.locator('.jp-vgpu-Device')).toContainText(['6.59 / 16 GiB', '0.29 / 16 GiB']);
  await expect(explore).toContainText('Idle');
  await expect(train).toContainText('Idle');
  await page.theme.setLightTheme();
  await picture(page, 'pool-light', page.locator('#jp-main-content-panel'));
  await page.theme.setDarkTheme();
  await picture(page, 'pool-dark', page.locator('#jp-main-content-panel'));
});

test.describe('refusals', () => {
  test.use({ expectedErrors: /(400|409) .*vgpu\/api\/leases\// });

  test('a wrong value shows the server’s error and changes nothing (screenshot)', async ({ page }) => {
    await openNotebook(page, 'wrong.ipynb', QUOTA);
    const panel = await openPanel(page);
    const lease = row(panel, 'wrong.ipynb');
    await expect(lease).toContainText('/ 16 GiB');

    await lease.getByLabel('Memory limit').fill('99');
    await lease.getByLabel('Memory limit').press('Enter');
    await expect(lease.getByRole('alert')).toContainText(/memory.*99 ?GiB.*16 ?GiB/);
    await expect(lease).toContainText('/ 16 GiB');
    await picture(page, 'pool-refused', panel);
    await lease.getByLabel('Memory limit').press('Escape');
    await expect(lease.getByRole('alert')).toHaveCount(0);

    await lease.getByLabel('Compute share').fill('200');
    await lease.getByRole('button', { name: 'Apply' }).click();
    await expect(lease.getByRole('alert')).toContainText(/compute.*200%.*0\.01/);
    await expect(lease).toContainText('100% of compute');
    expect(await totals(page, 'wrong.ipynb')).toEqual([16384, 16384]);
  });

  test('a limit below what a kernel uses is refused with the figure', async ({ page }) => {
    await openNotebook(page, 'full.ipynb', ALLOCATE);
    const panel = await openPanel(page);
    const lease = row(panel, 'full.ipynb');
    expect(await runCell(page, 'full.ipynb')).toBe('CUDA_SUCCESS');

    await lease.getByLabel('Memory limit').fill('2');
    await lease.getByLabel('Memory limit').press('Enter');
    await expect(lease.getByRole('alert')).toContainText(/memory.*2 ?GiB.*at least 6\.29 GiB.*in use on device 0/);
    await expect(parts(lease)).toHaveText(['GPU 06.29 / 16 GiB', 'GPU 10 / 16 GiB']);
  });

  test('the notebook’s metadata is what its kernel gets at the next start, and a refusal is seen', async ({ page }) => {
    await openNotebook(page, 'asks.ipynb', QUOTA);
    const panel = await openPanel(page);
    const lease = row(panel, 'asks.ipynb');
    await expect(lease).toContainText('/ 16 GiB');
    // A restart before the first kernel has answered can leave JupyterLab's own connection to it speaking the wrong subprotocol.
    expect(await totals(page, 'asks.ipynb')).toEqual([16384, 16384]);

    await ask(page, { memory: '3GiB', compute: 0.5 });
    await restartKernel(page);
    await expect(lease).toContainText('/ 3 GiB');
    await expect(lease).toContainText('50% of compute');
    expect(await totals(page, 'asks.ipynb')).toEqual([3072, 3072]);

    await ask(page, { class: 'huge' });
    await restartKernel(page);
    await expect(page.locator('.Toastify__toast')).toContainText(/class.*huge/);
    await expect(lease.getByRole('alert')).toContainText(/class.*huge/);
    await expect(lease).toContainText('/ 3 GiB');
  });
});
