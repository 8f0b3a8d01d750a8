/** The middle one, of two the lower; null of none. */
export function median(values: number[]): number | null {
  return [...values].sort((a, b) => a - b)[(values.length - 1) >> 1] ?? null;
}
