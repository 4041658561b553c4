import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { expect, openPanel, picture, row, test } from './lab';

/** What a CUDA program in the notebook is told, in MiB: free and total. */
const QUOTA = `
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1]
driver.cuCtxSetCurrent(context)
print(driver.cuMemGetInfo()[2] // 2**20)
`.trim();

async function open(page: IJupyterLabPageFixture, name: string): Promise<void> {
  await page.notebook.createNew(name);
  await page.notebook.setCell(0, 'code', QUOTA);
}

/** Runs the cell and gives what it printed. */
async function total(page: IJupyterLabPageFixture, name: string): Promise<number> {
  await page.notebook.activate(name);
  await page.notebook.runCell(0);
  return Number((await page.notebook.getCellTextOutput(0))?.join('').trim());
}

/** Sets metadata of the current notebook, as the property inspector does; it is not saved. */
async function ask(page: IJupyterLabPageFixture, metadata: unknown): Promise<void> {
  await page.evaluate(value => {
    const panel = (window as any).jupyterapp.shell.currentWidget;
    panel.content.model.setMetadata('vgpu', value);
  }, metadata);
}

async function restartKernel(page: IJupyterLabPageFixture): Promise<void> {
  await page.evaluate(() => (window as any).jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart());
}

test('two notebooks share the GPUs, and a quota changes while its kernel runs (screenshot)', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(panel).toContainText('Simulated GPUs only');
  await expect(panel.locator('.jp-vgpu-Device')).toHaveCount(2);
  await expect(panel).toContainText('No kernel holds a part of a GPU.');

  await open(page, 'first.ipynb');
  await open(page, 'second.ipynb');
  const first = row(panel, 'first.ipynb');
  const second = row(panel, 'second.ipynb');
  await expect(first).toContainText('16 GiB');
  await expect(second).toContainText('16 GiB');
  expect(await total(page, 'first.ipynb')).toBe(16384);

  await first.getByLabel('Memory limit').fill('4');
  await first.getByLabel('Compute share').fill('25');
  await first.getByLabel('Compute share').press('Enter');
  await expect(first).toContainText('/ 4 GiB');
  await expect(first).toContainText('25% of compute');
  await expect(second).toContainText('/ 16 GiB');
  expect(await total(page, 'first.ipynb')).toBe(4096);
  expect(await total(page, 'second.ipynb')).toBe(16384);

  await page.theme.setLightTheme();
  await picture(page, 'pool-light', page.locator('#jp-main-content-panel'));
  await page.theme.setDarkTheme();
  await picture(page, 'pool-dark', page.locator('#jp-main-content-panel'));
});

test('a wrong value shows the server’s error and changes nothing (screenshot)', async ({ page }) => {
  await open(page, 'wrong.ipynb');
  const panel = await openPanel(page);
  const lease = row(panel, 'wrong.ipynb');
  await expect(lease).toContainText('/ 16 GiB');

  await lease.getByLabel('Memory limit').fill('99');
  await lease.getByLabel('Memory limit').press('Enter');
  await expect(lease.getByRole('alert')).toContainText(/memory.*99 ?GiB.*16 ?GiB/);
  await expect(lease).toContainText('/ 16 GiB');
  await picture(page, 'pool-refused', panel);
  await lease.getByLabel('Memory limit').press('Escape');

  await lease.getByLabel('Compute share').fill('200');
  await lease.getByRole('button', { name: 'Apply' }).click();
  await expect(lease.getByRole('alert')).toContainText(/compute.*200%.*0\.01/);
  await expect(lease).toContainText('100% of compute');
  expect(await total(page, 'wrong.ipynb')).toBe(16384);
});

test('the notebook’s metadata is what its kernel gets at the next start, and a refusal is seen', async ({ page }) => {
  await open(page, 'asks.ipynb');
  const panel = await openPanel(page);
  const lease = row(panel, 'asks.ipynb');
  await expect(lease).toContainText('/ 16 GiB');

  await ask(page, { memory: '3GiB', compute: 0.5 });
  await restartKernel(page);
  await expect(lease).toContainText('/ 3 GiB');
  await expect(lease).toContainText('50% of compute');
  expect(await total(page, 'asks.ipynb')).toBe(3072);

  await ask(page, { class: 'huge' });
  await restartKernel(page);
  await expect(page.locator('.Toastify__toast')).toContainText(/class.*huge/);
  await expect(lease.getByRole('alert')).toContainText(/class.*huge/);
  await expect(lease).toContainText('/ 3 GiB');
});
