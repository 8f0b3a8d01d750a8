// Ready-made parts of a policy. Each chip sets one field of the vocabulary of docs/reference/policy.md.

export interface PolicyChip {
  name: string;
  fields: Record<string, unknown>;
}

export const CHIPS: PolicyChip[] = [
  { name: "in the EU", fields: { region: ["EU"] } },
  { name: "in North America", fields: { region: ["NA"] } },
  { name: "already warm", fields: { warm: "require" } },
  { name: "24 GB and up", fields: { vram_gb: ">=24" } },
  { name: "≥ 30 tokens/s", fields: { min_throughput: 30 } },
  { name: "first token ≤ 1 s", fields: { max_ttft_ms: 1000 } },
  { name: "≤ $1 per 1M", fields: { max_price: 1 } },
  { name: "cheapest", fields: { sort: "price" } },
  { name: "fastest", fields: { sort: "throughput" } },
  { name: "no failover", fields: { allow_fallbacks: false } },
];

/** Two chips for the same field exclude each other: the one that was pressed last stays. */
export function toggleChip(selected: string[], chip: PolicyChip): string[] {
  if (selected.includes(chip.name)) return selected.filter((name) => name !== chip.name);
  const compatible = CHIPS.filter(({ fields }) => !Object.keys(fields).some((field) => field in chip.fields));
  return [...selected.filter((name) => compatible.some((one) => one.name === name)), chip.name];
}

/** The `provider` object of a request with these chips. */
export function providerOf(selected: string[]): Record<string, unknown> {
  return Object.assign({}, ...CHIPS.filter(({ name }) => selected.includes(name)).map(({ fields }) => fields)) as Record<string, unknown>;
}
