import { expect, IJupyterLabPageFixture, test as galata } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import * as path from 'path';

export { expect };

const PANEL = 'jupyter-vgpu-pool';

/**
 * Galata's page, on real sessions and kernels. Galata makes and removes its directory and its kernels without regard to a
 * base_url, so both are made and removed here.
 */
export const test = galata.extend({
  kernels: null,
  sessions: null,
  tmpPath: async ({ request, baseURL }, use, info) => {
    const directory = `test-${info.testId}`;
    const contents = `${baseURL}/api/contents/${directory}`;
    expect((await request.put(contents, { data: { type: 'directory' } })).status()).toBe(201);
    await use(directory);
    for (const session of await (await request.get(`${baseURL}/api/sessions`)).json()) {
      await request.delete(`${baseURL}/api/sessions/${session.id}`);
    }
    const { content } = await (await request.get(contents)).json();
    for (const file of content) {
      await request.delete(`${baseURL}/api/contents/${file.path}`);
    }
    await request.delete(contents);
  }
});

/** Opens the panel and gives it. */
export async function openPanel(page: IJupyterLabPageFixture): Promise<Locator> {
  await page.sidebar.openTab(PANEL);
  const panel = page.locator(`#${PANEL}`);
  await expect(panel).toBeVisible();
  return panel;
}

/** The panel's row of the notebook. */
export function row(panel: Locator, notebook: string): Locator {
  return panel.locator('.jp-vgpu-Lease').filter({ hasText: notebook });
}

/** Saves the picture for the documentation when asked to; otherwise beside the test's other results. */
export async function picture(page: IJupyterLabPageFixture, name: string, clip: Locator): Promise<void> {
  const directory = process.env.VGPU_SCREENSHOTS
    ? path.join(__dirname, '..', '..', '..', 'docs', 'images')
    : path.join(__dirname, '..', 'test-results');
  await page.mouse.move(600, 700);
  await clip.screenshot({ path: path.join(directory, `${name}.png`), animations: 'disabled', caret: 'hide' });
}
