// The dark or light theme: the visitor's choice, else the system's setting.
import { useSyncExternalStore } from "react";

export type Theme = "dark" | "light";
const STORAGE_KEY = "sparewatt-theme";
const systemIsLight = window.matchMedia("(prefers-color-scheme: light)");
const listeners = new Set<() => void>();

function currentTheme(): Theme {
  const chosen = localStorage.getItem(STORAGE_KEY);
  if (chosen === "dark" || chosen === "light") return chosen;
  return systemIsLight.matches ? "light" : "dark";
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = currentTheme();
  for (const listener of listeners) listener();
}

export function setTheme(theme: Theme): void {
  localStorage.setItem(STORAGE_KEY, theme);
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
