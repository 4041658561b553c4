import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ILease, ILeaseChange, IPool } from './pool';

/** The operations that the extension needs. The model's tests put a fake in its place. */
export interface IPoolApi {
  /** One snapshot of everything. Rejects with `ServerConnection.NetworkError` or `ApiError`. */
  getPool(): Promise<IPool>;
  /** Changes a lease, all or nothing; resolves to the lease after the change. A refusal rejects with `ApiError`. */
  patchLease(id: string, change: ILeaseChange): Promise<ILease>;
}

/** The server refused. `message` is the server's own sentence: field, value, what is allowed. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly field: string | null
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** The API below the server's base_url. */
export class PoolApi implements IPoolApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  getPool(): Promise<IPool> {
    return this.request<IPool>('pool');
  }

  patchLease(id: string, change: ILeaseChange): Promise<ILease> {
    return this.request<ILease>(`leases/${encodeURIComponent(id)}`, {
      method: 'PATCH',
      body: JSON.stringify(change)
    });
  }

  private async request<T>(path: string, init: RequestInit = {}): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, 'vgpu/api', path);
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (!response.ok) {
      throw await asError(response);
    }
    return (await response.json()) as T;
  }
}

async function asError(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new ApiError(error.message, error.code, error.field);
  } catch {
    // Not our server extension's answer: a proxy's page, or no extension at all.
    return new ApiError(`${response.status} ${response.statusText}`, 'unavailable', null);
  }
}
