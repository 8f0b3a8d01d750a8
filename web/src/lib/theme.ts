// The dark or light theme: the visitor's choice, else the system's setting.
import { useSyncExternalStore } from "react";

export type Theme = "dark" | "light";
const STORAGE_KEY = "sparewatt-theme";
const systemIsLight = window.matchMedia("(prefers-color-scheme: light)");
const listeners = new Set<() => void>();
let theme: Theme = "dark";

/** The theme as last applied. Rendering must not read `systemIsLight.matches`: Chromium drops the change event if a script
 * reads `matches` after the system's setting has changed and before the event. */
export function currentTheme(): Theme {
  return theme;
}

function chosenTheme(): Theme | undefined {
  const chosen = localStorage.getItem(STORAGE_KEY);
  return chosen === "dark" || chosen === "light" ? chosen : undefined;
}

export function applyTheme(): void {
  theme = chosenTheme() ?? (systemIsLight.matches ? "light" : "dark");
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

export function setTheme(chosen: Theme): void {
  localStorage.setItem(STORAGE_KEY, chosen);
  applyTheme();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, currentTheme);
}

/** The value of a colour or another variable of `styles.css`. */
export function cssVariable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

systemIsLight.addEventListener("change", applyTheme);
