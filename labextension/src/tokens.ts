import { Token } from '@lumino/coreutils';
import type { PoolModel } from './model';

/** The pool, for other extensions: snapshot, signal and resize. */
export const IPoolModel = new Token<PoolModel>(
  'jupyter-vgpu:IPoolModel',
  'The GPU pool: its devices and leases as last heard from the server, and changes to them.'
);

/** Commands of this extension. */
export namespace CommandIDs {
  export const show = 'vgpu:show-pool';
  export const refresh = 'vgpu:refresh-pool';
}
