import {
  formatSize,
  formatUsage,
  gibibytes,
  guessFraction,
  guessSize,
  percent,
  withUnit
} from '../src/units';
import { GIB } from './samples';

describe('units', () => {
  it.each([
    [0, '0 B'],
    [512 * 1024 ** 2, '512 MiB'],
    [1.5 * GIB, '1.5 GiB'],
    [16 * GIB, '16 GiB']
  ])('writes %d bytes as %s', (bytes, text) => {
    expect(formatSize(bytes)).toBe(text);
  });

  it('writes use and limit in the limit’s unit', () => {
    expect(formatUsage(300 * 1024 ** 2, 8 * GIB)).toBe('0.29 / 8 GiB');
    expect(formatUsage(0, 512 * 1024 ** 2)).toBe('0 / 512 MiB');
  });

  it.each([
    ['8', 'GiB', '8GiB'],
    [' 0.5 ', 'GiB', '0.5GiB'],
    ['512MiB', 'GiB', '512MiB'],
    ['-1', 'GiB', '-1GiB'],
    ['a lot', 'GiB', 'a lot'],
    ['25', '%', '25%'],
    ['200%', '%', '200%'],
    ['', '%', '']
  ] as const)('sends %p in a field of %s as %p', (typed, unit, sent) => {
    expect(withUnit(typed, unit)).toBe(sent);
  });

  it('shows in a field what it would send back unchanged', () => {
    expect(guessSize(withUnit(gibibytes(12.5 * GIB), 'GiB'))).toBe(12.5 * GIB);
    expect(guessFraction(withUnit(percent(0.25), '%'))).toBe(0.25);
  });

  it('guesses nothing where only the server can tell', () => {
    expect(guessSize('a lot')).toBeNull();
    expect(guessSize(undefined)).toBeNull();
    expect(guessFraction('0.25')).toBeNull();
  });
});
