import { expect, IJupyterLabPageFixture, test as galata } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import * as path from 'path';

export { expect };

const PANEL = 'jupyter-vgpu-pool';

interface IFixtures {
  /** Errors of ours on the browser's console that the test provokes: the browser writes a line for each answer that is one. */
  expectedErrors: RegExp | null;
  noOtherErrors: void;
}

/**
 * Galata's page, on real sessions and kernels. Galata makes and removes its directory and its kernels without regard to a
 * base_url, so both are made and removed here. A test fails on any error on the browser's console that is ours, by text, stack or
 * address (the bundle, the API), and that it did not expect; JupyterLab itself has some, as at each restart of a kernel.
 */
export const test = galata.extend<IFixtures>({
  expectedErrors: [null, { option: true }],
  noOtherErrors: [
    // After tmpPath, and so judged before that goes: JupyterLab complains of a directory that vanishes.
    async ({ context, expectedErrors, tmpPath: _ }, use) => {
      const errors: string[] = [];
      context.on('weberror', error => errors.push(`${error.error()} ${error.error().stack}`));
      context.on('console', message => {
        if (message.type() === 'error') {
          errors.push(`${message.text()} (${message.location().url})`);
        }
      });
      await use();
      const ours = errors.filter(error => error.includes('vgpu'));
      expect(ours.filter(error => !expectedErrors?.test(error))).toEqual([]);
    },
    { auto: true }
  ],
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

/** Opens a new notebook with one cell in a tab of its own, and waits for its kernel. */
export async function openNotebook(page: IJupyterLabPageFixture, name: string, source: string): Promise<void> {
  await page.evaluate(
    async ([directory, file, code]) => {
      const { commands, serviceManager } = (window as any).jupyterapp;
      const metadata = { kernelspec: { name: 'python3', display_name: 'Python 3' }, language_info: { name: 'python' } };
      const cell = { id: 'only', cell_type: 'code', metadata: {}, outputs: [], execution_count: null, source: code };
      const path = `${directory}/${file}`;
      const content = { cells: [cell], metadata, nbformat: 4, nbformat_minor: 5 };
      await serviceManager.contents.save(path, { type: 'notebook', format: 'json', content });
      const panel = await commands.execute('docmanager:open', { path });
      await panel.sessionContext.ready;
    },
    [await page.filebrowser.getCurrentDirectory(), name, source]
  );
}

/** Runs the notebook's cell and gives what it printed. */
export async function runCell(page: IJupyterLabPageFixture, notebook: string): Promise<string | undefined> {
  await page.notebook.activate(notebook);
  await page.notebook.runCell(0, true);
  return (await page.notebook.getCellTextOutput(0))?.join('').trim();
}

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

/** What the row says of each of the kernel's devices. */
export function parts(row: Locator): Locator {
  return row.locator('.jp-vgpu-Lease-part');
}

/** Saves the picture for the documentation when asked to; otherwise beside the test's other results. */
export async function picture(page: IJupyterLabPageFixture, name: string, clip: Locator): Promise<void> {
  const directory = process.env.VGPU_SCREENSHOTS
    ? path.join(__dirname, '..', '..', '..', 'docs', 'images')
    : path.join(__dirname, '..', 'test-results');
  // Where the focus happens to be is not what the picture is about.
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.mouse.move(600, 700);
  await clip.screenshot({ path: path.join(directory, `${name}.png`), animations: 'disabled', caret: 'hide' });
}
