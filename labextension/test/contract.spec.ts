import Ajv2020 from 'ajv/dist/2020';
import { readFileSync } from 'fs';
import { load } from 'js-yaml';
import { join } from 'path';
import { device, lease, part, pool } from './samples';

const file = join(__dirname, '..', '..', 'jupyter_vgpu', 'openapi.yaml');
const document = load(readFileSync(file, 'utf-8')) as Record<string, unknown>;
const ajv = new Ajv2020({ strict: false });
ajv.addSchema(document, 'openapi');

function valid(schema: string, value: unknown): boolean {
  return ajv.validate(`openapi#/components/schemas/${schema}`, value);
}

describe('what these tests take for the server’s answers', () => {
  it('are answers by openapi.yaml', () => {
    expect(valid('Pool', pool())).toBe(true);
    expect(valid('Pool', pool({ arbiter: null, devices: [], leases: [], message: 'no GPU' }))).toBe(
      true
    );
    expect(valid('Device', device({ managed_by: 'pid 12 of bob' }))).toBe(true);
    expect(valid('Lease', lease({ parts: [part()] }))).toBe(true);
  });

  it('would be noticed if they were not', () => {
    expect(valid('Lease', { ...lease(), state: 'asleep' })).toBe(false);
    expect(valid('Pool', { ...pool(), extra: 1 })).toBe(false);
  });

  it('allow the changes that the panel sends', () => {
    expect(valid('LeaseChange', { memory: '8GiB', compute: '25%' })).toBe(true);
    expect(valid('LeaseChange', { quota: 1 })).toBe(false);
  });
});
