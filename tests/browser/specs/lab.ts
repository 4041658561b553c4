import { expect, IJupyterLabPageFixture, test as galata } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import * as path from 'path';

export { expect };

const PANEL = 'jupyter-vgpu-pool';

/**
 * Galata's page, on real sessions and kernels. Galata makes and removes its directory and its kernels without regard to a
 * base_url, so the notebooks are in the server's root, and both are removed here.
 */
export const test = galata.extend<{ emptied: void }>({
  kernels: null,
  sessions: null,
  tmpPath: '',
  // Galata gives JupyterLab 15 seconds; a machine with two busy cores needs more.
  waitForApplication: async ({}, use) => {
    await use(async page => {
      await page.locator('#jupyterlab-splash').waitFor({ state: 'detached', timeout: 60_000 });
      await page.getByRole('tab', { name: 'Launcher', selected: true }).waitFor({ timeout: 60_000 });
    });
  },
  emptied: [
    async ({ request, baseURL }, use) => {
      await use();
      for (const session of await (await request.get(`${baseURL}/api/sessions`)).json()) {
        await request.delete(`${baseURL}/api/sessions/${session.id}`);
      }
      for (const file of (await (await request.get(`${baseURL}/api/contents/`)).json()).content) {
        await request.delete(`${baseURL}/api/contents/${encodeURIComponent(file.path)}`);
      }
    },
    { auto: true }
  ]
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
