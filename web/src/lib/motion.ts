const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export function isStill(): boolean {
  return still.matches;
}
