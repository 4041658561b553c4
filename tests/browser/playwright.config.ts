import base from '@jupyterlab/galata/lib/playwright-config';
import { defineConfig } from '@playwright/test';
import { existsSync } from 'fs';

/** Both servers sit below a base_url, as behind JupyterHub; VGPU_TEST_PORT moves them where the ports are taken. */
const port = Number(process.env.VGPU_TEST_PORT ?? 18931);
const servers = {
  simulated: { port, environment: { VGPU_SIMULATED: '2x16GiB' } },
  none: { port: port + 1, environment: { VGPU_SIMULATED: '', VGPU_TEST_NO_GPU: '1' } }
};
const address = (at: number) => `http://localhost:${at}/user/alice`;

const chromium = process.env.VGPU_CHROMIUM ?? '/usr/bin/chromium';
if (!existsSync(chromium)) {
  throw new Error(`VGPU_CHROMIUM: ${chromium} does not exist; name a Chromium, or install one`);
}

export default defineConfig({
  ...base,
  testDir: './specs',
  outputDir: './test-results',
  reporter: 'list',
  // The specs share one pool: what one kernel holds, another sees.
  workers: 1,
  timeout: 120_000,
  expect: { timeout: 20_000 },
  use: {
    ...base.use,
    viewport: { width: 1200, height: 760 },
    trace: 'retain-on-failure',
    video: 'off',
    launchOptions: { executablePath: chromium, args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none'] }
  },
  projects: [
    { name: 'simulated', testIgnore: '**/nogpu.spec.ts', use: { baseURL: address(servers.simulated.port) } },
    { name: 'none', testMatch: '**/nogpu.spec.ts', use: { baseURL: address(servers.none.port) } }
  ],
  webServer: Object.values(servers).map(server => ({
    command: `exec python server.py ${server.port}`,
    url: `${address(server.port)}/api`,
    env: server.environment,
    timeout: 60_000,
    gracefulShutdown: { signal: 'SIGTERM' as const, timeout: 10_000 }
  }))
});
