// Who may serve it, as chips: each adds one field of the routing vocabulary.

export interface Chip {
  name: string;
  fields: Record<string, unknown>;
}

export const CHIPS: Chip[] = [
  { name: "in the EU", fields: { region: ["EU"] } },
  { name: "in North America", fields: { region: ["NA"] } },
  { name: "already warm", fields: { warm: "require" } },
  { name: "24 GB and up", fields: { vram_gb: ">=24" } },
  { name: "≥ 30 tokens/s", fields: { min_throughput: 30 } },
  { name: "first token ≤ 1 s", fields: { max_ttft_ms: 1000 } },
  { name: "≤ $1 per 1M", fields: { max_price: 1 } },
  { name: "cheapest", fields: { sort: "price" } },
  { name: "fastest", fields: { sort: "throughput" } },
  { name: "no second node", fields: { allow_fallbacks: false } },
];

/** Chips for one field exclude each other: the last one pressed holds. */
export function toggled(on: string[], chip: Chip): string[] {
  if (on.includes(chip.name)) return on.filter((name) => name !== chip.name);
  const taken = new Set(Object.keys(chip.fields));
  const kept = on.filter((name) => !Object.keys(CHIPS.find((one) => one.name === name)?.fields ?? {}).some((field) => taken.has(field)));
  return [...kept, chip.name];
}

export function providerOf(on: string[]): Record<string, unknown> {
  return Object.assign({}, ...CHIPS.filter((chip) => on.includes(chip.name)).map((chip) => chip.fields)) as Record<string, unknown>;
}
