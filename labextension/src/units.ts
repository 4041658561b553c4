/** Sizes and fractions for a person. The server parses what a person writes; here is only what the panel shows by itself. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const GIB = 1024 ** 3;

function trimmed(value: number): string {
  return String(Number(value.toFixed(2)));
}

/** "8 GiB", "512 MiB", "1.5 GiB". */
export function formatSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${trimmed(value)} ${UNITS[unit]}`;
}

/** "0.3 / 8 GiB": both figures in the limit's unit, so that they can be compared at a glance. */
export function formatUsage(used: number, limit: number): string {
  let unit = 0;
  while (limit / 1024 ** unit >= 1024 && unit < UNITS.length - 1) {
    unit += 1;
  }
  return `${trimmed(used / 1024 ** unit)} / ${trimmed(limit / 1024 ** unit)} ${UNITS[unit]}`;
}

/** "25%". */
export function formatFraction(fraction: number): string {
  return `${trimmed(fraction * 100)}%`;
}

/** What the memory field shows beside its unit GiB. */
export function gibibytes(bytes: number): string {
  return trimmed(bytes / GIB);
}

/** What the compute field shows beside its unit %. */
export function percent(fraction: number): string {
  return trimmed(fraction * 100);
}

/** A number without a unit gets the one that stands beside the field; everything else goes to the server as it was typed. */
export function withUnit(text: string, unit: 'GiB' | '%'): string {
  const typed = text.trim();
  return /^[+-]?(\d+\.?\d*|\.\d+)$/.test(typed) ? `${typed}${unit}` : typed;
}

/** The bytes of "8GiB", or null where only the server can tell. */
export function guessSize(text: string | number | undefined): number | null {
  const match = typeof text === 'string' ? /^(\d+(?:\.\d+)?)\s*([MG])iB$/.exec(text) : null;
  return match ? Math.round(Number(match[1]) * (match[2] === 'G' ? GIB : 1024 ** 2)) : null;
}

/** The fraction of "25%", or null where only the server can tell. */
export function guessFraction(text: string | number | undefined): number | null {
  const match = typeof text === 'string' ? /^(\d+(?:\.\d+)?)%$/.exec(text) : null;
  return match ? Number(match[1]) / 100 : null;
}
