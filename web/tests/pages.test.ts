import assert from "node:assert/strict";
import { test } from "node:test";
import type { EarningSum } from "../src/api/types.ts";
import { asCsv } from "../src/lib/download.ts";
import { sumsOf } from "../src/pages/earnings/sums.ts";
import { CHIPS, providerOf, toggled } from "../src/pages/playground/chips.ts";

test("a spreadsheet runs no formula that a stranger named a model by", () => {
  assert.equal(asCsv([{ model: "=1+1", note: 'a "quoted", line', n: -3 }]), "model,note,n\r\n'=1+1,\"a \"\"quoted\"\", line\",-3");
});

test("chips for one field exclude each other", () => {
  const chip = (name: string) => CHIPS.find((one) => one.name === name)!;
  const on = toggled(toggled(toggled([], chip("in the EU")), chip("cheapest")), chip("in North America"));
  assert.deepEqual(providerOf(on), { region: ["NA"], sort: "price" });
  assert.deepEqual(toggled(on, chip("cheapest")), ["in North America"]);
});

test("earnings are projected by the days there are", () => {
  const day = (name: string, net: string): EarningSum => ({ name, jobs: 1, prompt_tokens: 0, completion_tokens: 0, fee_usd: "0", net_usd: net, net_promo_usd: "0.5" });
  const now = new Date("2026-11-15T12:00:00Z");
  const sums = sumsOf([day("2026-11-14", "1"), day("2026-11-15", "0.25"), day("2026-10-01", "99")], now);
  assert.deepEqual([sums.today, sums.week], [0.75, 2.25]);
  assert.equal(sums.projected, (2.25 / 1.5) * 30);
  assert.equal(sumsOf([], now).projected, 0);
});
