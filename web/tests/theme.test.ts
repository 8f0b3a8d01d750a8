import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const system = { isLight: false, reads: 0, onChange: () => {} };
const stored = new Map<string, string>();
const root = { dataset: {} as { theme?: string } };
const query = {
  get matches() {
    system.reads += 1;
    return system.isLight;
  },
  addEventListener: (_: string, listener: () => void) => {
    system.onChange = listener;
  },
};
Object.assign(globalThis, {
  window: { matchMedia: () => query },
  document: { documentElement: root },
  localStorage: { getItem: (key: string) => stored.get(key) ?? null, setItem: (key: string, value: string) => stored.set(key, value) },
});
const { applyTheme, currentTheme, setTheme } = await import("../src/lib/theme.ts");

beforeEach(() => {
  stored.clear();
  system.isLight = false;
  applyTheme();
});

test("the theme follows the system until the visitor chooses one", () => {
  assert.equal(currentTheme(), "dark");
  system.isLight = true;
  system.onChange();
  assert.deepEqual([currentTheme(), root.dataset.theme], ["light", "light"]);
  setTheme("dark");
  system.onChange();
  assert.deepEqual([currentTheme(), root.dataset.theme], ["dark", "dark"]);
});

test("a render does not read the media query, or Chromium drops its change event", () => {
  const before = system.reads;
  system.isLight = true;
  assert.equal(currentTheme(), "dark");
  assert.equal(system.reads, before);
});
