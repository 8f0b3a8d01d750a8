import assert from "node:assert/strict";
import { test } from "node:test";
import type { RegistryStatusName } from "../src/api/schema.ts";
import { narrowed, offersOf, optionsOf } from "../src/pages/leases/facets.ts";

const TABLES = {
  countries: [
    { id: 56, name: "DE" },
    { id: 75, name: "FR" },
  ],
  gpu_models: [{ id: 44, name: "rtx-4090", class: 4 }],
};
const provider = (id: string, country: number, price: string, units = 1, status: RegistryStatusName = "active") => ({
  id,
  status,
  gpu_units: units,
  gpu_model: 44,
  vram_gb: 24,
  country,
  price_hint_usd: price,
});
const OFFERS = offersOf([provider("dear", 56, "2"), provider("cheap", 75, "1"), provider("silent", 56, "0"), provider("bare", 56, "0.1", 0), provider("gone", 56, "1", 1, "left")], TABLES);
const NONE = { card: "", region: "", maxHourly: "" };
const names = (offers: typeof OFFERS) => offers.map(({ provider: name }) => name);

test("offers are of those that may bid, the cheapest first and those without a price last", () => {
  assert.deepEqual(names(OFFERS), ["bare", "cheap", "dear", "silent"]);
});

test("a choice narrows them, and an offer without a price stays", () => {
  assert.deepEqual(names(narrowed(OFFERS, { ...NONE, card: "rtx-4090", region: "DE" })), ["dear", "silent"]);
  assert.deepEqual(names(narrowed(OFFERS, { ...NONE, maxHourly: "1" })), ["bare", "cheap", "silent"]);
  assert.equal(narrowed(OFFERS, { ...NONE, maxHourly: "no number" }).length, 4);
});

test("an option counts what it would leave with the other choices as they are", () => {
  assert.deepEqual(optionsOf(OFFERS, "card", NONE), [{ value: "rtx-4090", count: 3 }]);
  assert.deepEqual(optionsOf(OFFERS, "card", { ...NONE, region: "FR" }), [{ value: "rtx-4090", count: 1 }]);
  assert.deepEqual(optionsOf(OFFERS, "region", { ...NONE, maxHourly: "0.5", region: "FR" }), [
    { value: "DE", count: 2 },
    { value: "FR", count: 0 },
  ]);
});
