import { expect, openNotebook, openPanel, picture, runCell, test } from './lab';

test('a machine without a GPU says so, and its notebooks run (screenshot)', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(panel).toContainText('No GPUs to share');
  await expect(panel).toContainText('no GPU was found on this machine');
  await expect(panel.getByRole('heading', { name: 'Kernels' })).toHaveCount(0);
  await picture(page, 'pool-empty', panel);
  await openNotebook(page, 'plain.ipynb', 'print(6 * 7)');
  expect(await runCell(page, 'plain.ipynb')).toBe('42');
});
