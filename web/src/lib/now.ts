// One timer for all relative times on the page.
import { useSyncExternalStore } from "react";

let now = Date.now() / 1000;
const listeners = new Set<() => void>();

window.setInterval(() => {
  now = Date.now() / 1000;
  for (const listener of listeners) listener();
}, 1_000);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Unix seconds. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}
