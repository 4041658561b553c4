import { expect, openPanel, picture, test } from './lab';

test('a machine without a GPU says so, and its notebooks run (screenshot)', async ({ page, request, baseURL }) => {
  const { devices } = await (await request.get(`${baseURL}/vgpu/api/pool`)).json();
  test.skip(devices.length > 0, 'this machine has a GPU');
  const panel = await openPanel(page);
  await expect(panel).toContainText('No GPU');
  await picture(page, 'pool-empty', panel);
  await page.notebook.createNew('plain.ipynb');
  await page.notebook.setCell(0, 'code', 'print(6 * 7)');
  await page.notebook.runCell(0);
  expect((await page.notebook.getCellTextOutput(0))?.join('').trim()).toBe('42');
});
