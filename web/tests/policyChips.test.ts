import assert from "node:assert/strict";
import { test } from "node:test";
import { CHIPS, providerOf, toggleChip } from "../src/pages/playground/policyChips.ts";

test("chips for the same field exclude each other", () => {
  const chip = (name: string) => CHIPS.find((one) => one.name === name)!;
  const on = toggleChip(toggleChip(toggleChip([], chip("in the EU")), chip("cheapest")), chip("in North America"));
  assert.deepEqual(providerOf(on), { region: ["NA"], sort: "price" });
  assert.deepEqual(toggleChip(on, chip("cheapest")), ["in North America"]);
});
