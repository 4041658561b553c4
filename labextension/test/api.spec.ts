import { ServerConnection } from '@jupyterlab/services';
import { PoolApi } from '../src/api';
import { lease, pool } from './samples';

describe('PoolApi', () => {
  const requests: Request[] = [];
  let answer: () => Response;
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://localhost/user/alice/',
    fetch: async (request: RequestInfo | URL) => {
      requests.push(request as Request);
      return answer();
    }
  });
  const api = new PoolApi(settings);

  beforeEach(() => {
    requests.length = 0;
  });

  const json =
    (value: unknown, status = 200) =>
    () =>
      new Response(JSON.stringify(value), { status });

  it('stays below the server’s base_url', async () => {
    answer = json(pool());
    expect(await api.getPool()).toEqual(pool());
    expect(requests[0].url).toMatch(/^http:\/\/localhost\/user\/alice\/vgpu\/api\/pool\b/);
  });

  it('patches the lease', async () => {
    answer = json(lease());
    await api.patchLease('a/b', { memory: '8GiB' });
    expect(requests[0].method).toBe('PATCH');
    expect(requests[0].url).toContain('vgpu/api/leases/a%2Fb');
    expect(await requests[0].json()).toEqual({ memory: '8GiB' });
  });

  it('rejects with the server’s own sentence', async () => {
    answer = json(
      {
        error: {
          code: 'invalid',
          message: 'compute: 2 is not allowed',
          field: 'compute',
          value: 2,
          allowed: '0.01 to 1.0'
        }
      },
      400
    );
    await expect(api.patchLease('lease-1', { compute: 2 })).rejects.toMatchObject({
      message: 'compute: 2 is not allowed',
      code: 'invalid',
      field: 'compute'
    });
  });

  it('says the status where the answer is not ours', async () => {
    answer = () => new Response('<html>', { status: 502, statusText: 'Bad Gateway' });
    await expect(api.getPool()).rejects.toThrow('502 Bad Gateway');
  });
});
