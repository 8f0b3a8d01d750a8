import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, duration, ms, percent, plural, short, usd, usdAlike } from "../src/lib/format.ts";

test("money has no more digits than matter, and no cost is rounded to zero", () => {
  const shown = ["0", "1", "0.99999", "12.3456", "0.12", "0.0389", "0.5", "0.000044", "0.000000001", "-27"].map(usd);
  assert.deepEqual(shown, ["$0", "$1.00", "$1.00", "$12.35", "$0.12", "$0.0389", "$0.50", "$0.000044", "$0.000000001", "−$27.00"]);
});

test("thousands are set apart, and amounts that are compared have the same decimals", () => {
  assert.deepEqual([usd(4000), usd("1234567.891"), usd(999.999)], ["$4,000.00", "$1,234,567.89", "$1,000.00"]);
  assert.deepEqual([0.02, 0.0715, 0.008, 0].map(usdAlike([0.02, 0.027])), ["$0.0200", "$0.0715", "$0.0080", "$0.0000"]);
  assert.deepEqual([1.1, 1234.5].map(usdAlike([1.1, 1.05])), ["$1.10", "$1,234.50"]);
  assert.equal(usdAlike([])(0), "$0.00");
});

test("times are relative in both directions", () => {
  assert.deepEqual([ago(100, 100.4), ago(40, 100), ago(100 + 7200, 100)], ["now", "1 min ago", "in 2 h"]);
  assert.equal(duration(90_000), "1 d");
});

test("an unknown value is a dash, not a zero", () => {
  assert.deepEqual([ms(null), ms(58.46), ms(1234), ms(20_000)], ["–", "58.5 ms", "1.23 s", "20 s"]);
  assert.deepEqual([percent(null), percent(1), percent(0.99951), percent(0.5)], ["–", "100 %", "99.95 %", "50.0 %"]);
});

test("large counts are short, small ones whole", () => {
  assert.deepEqual([short(999), short(77_700), short(1_250_000), plural(1, "node"), plural(2, "node")], ["999", "77.7k", "1.25M", "1 node", "2 nodes"]);
});
