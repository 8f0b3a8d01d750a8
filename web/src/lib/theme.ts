// Dark or light: what was chosen here, else what the system says.
import { useSyncExternalStore } from "react";

export type Theme = "dark" | "light";
const NAME = "sparewatt-theme";
const system = window.matchMedia("(prefers-color-scheme: light)");
const listeners = new Set<() => void>();

export function theme(): Theme {
  const kept = localStorage.getItem(NAME);
  if (kept === "dark" || kept === "light") return kept;
  return system.matches ? "light" : "dark";
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

export function setTheme(chosen: Theme): void {
  localStorage.setItem(NAME, chosen);
  applyTheme();
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, theme);
}

system.addEventListener("change", applyTheme);
