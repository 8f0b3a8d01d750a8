import assert from "node:assert/strict";
import { test } from "node:test";
import type { EarningsGroup } from "../src/api/schema.ts";
import { earningsTotals } from "../src/pages/earnings/earningsTotals.ts";

test("earnings are projected from the days since the first earning", () => {
  const tokens = { jobs: 1, prompt_tokens: 0, completion_tokens: 0 };
  const money = { fee_usd: "0", fee_nano: 0, net_nano: 0, net_promo_usd: "0.5", net_promo_nano: 0 };
  const day = (name: string, net_usd: string): EarningsGroup => ({ name, net_usd, ...tokens, ...money });
  const now = new Date("2026-11-15T12:00:00Z");
  const totals = earningsTotals([day("2026-11-14", "1"), day("2026-11-15", "0.25"), day("2026-10-01", "99")], now);
  assert.deepEqual([totals.today, totals.week], [0.75, 2.25]);
  assert.equal(totals.projected30d, (2.25 / 1.5) * 30);
  assert.equal(earningsTotals([], now).projected30d, 0);
});
