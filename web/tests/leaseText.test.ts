import assert from "node:assert/strict";
import { test } from "node:test";
import type { LeaseEvent, LeaseMoney, MarketLease } from "../src/api/schema.ts";
import { bookedText, consequence, endingText, eventFacts, leaseTotals, runwayText, spentShare, uptimeHint, warningText } from "../src/market/leaseText.ts";
import { raisedCap } from "../src/pages/leases/raisedCap.ts";
import { marketOrder } from "./leaseMatch.ts";

const MONEY: LeaseMoney = {
  as_of: 1_000,
  hourly_usd: "0.31",
  spent_usd: "0.5",
  left_usd: "1.5",
  deposited_usd: "2",
  compensated_usd: "0",
  runway_s: 7_200,
  runs_until: 4_600,
  limit: "duration",
  paused_s: 0,
  grace_ends_at: null,
  warning: null,
  next_step: null,
};
const lease = { state: "active", hourly_usd: "0.31", running_since: 900 } as MarketLease;

test("the runway says what ends it", () => {
  assert.deepEqual(runwayText(MONEY, 1_000), { text: "1 h", why: "then its time is over" });
  assert.equal(runwayText({ ...MONEY, limit: "deposit" }, 1_000).why, "then its deposit is used up");
  const paused = { ...MONEY, runs_until: null, grace_ends_at: 1_600 };
  assert.equal(runwayText(paused, 1_000).why, "closed in 10 min unless you resume it");
  assert.equal(runwayText({ ...paused, warning: "deposit_empty" }, 1_000).why, "data kept for 10 min");
  assert.equal(runwayText({ ...MONEY, runs_until: null, runway_s: null }, 1_000).text, "–");
});

test("a warning comes at 80 % and names the way out", () => {
  assert.equal(warningText(MONEY), null);
  assert.match(warningText({ ...MONEY, warning: "deposit_low" }) ?? "", /^80 % .*Top it up/);
  assert.match(warningText({ ...MONEY, warning: "deposit_empty", grace_ends_at: 0 }) ?? "", /until 1970-01-01 00:00:00 UTC; a top-up resumes it/);
  assert.equal(spentShare(MONEY), 0.25);
  assert.equal(spentShare({ spent_usd: "0", left_usd: "0" }), 0);
});

test("closing says what it costs", () => {
  const order = (of: Partial<MarketLease>) => marketOrder({ state: "matched", lease: { ...lease, ...of } });
  assert.match(consequence("close", { order: order({}), money: MONEY }), /spent \$0\.50; about \$1\.50 comes back/);
  const unstarted = order({ state: "pending", running_since: null, created_at: 1_000, confirm_by: 1_030, hourly_usd: "1.2" });
  assert.match(consequence("close", { order: unstarted, money: MONEY }), /the reservation, \$0\.01 at most/);
  assert.match(consequence("cancel", { order: marketOrder({}), money: MONEY }), /costs nothing: \$1\.50 come back/);
});

test("an ending says who, why and what came back", () => {
  const ending = { reason: "EMPTY", who: "network", why: "the deposit was used up", at: 1, paid_usd: "2", refunded_usd: "0", compensation_usd: "0" } as const;
  assert.equal(endingText(ending), "Ended by the network: the deposit was used up. $2.00 paid, $0 refunded.");
  assert.match(endingText({ ...ending, refunded_usd: null, compensation_usd: "0.5" }), /being read from the chain, \$0\.50 compensation from/);
});

test("an event shows the numbers that it has", () => {
  const event = { hourly_usd: "0.31", duration_s: 3_600, amount_usd: null, paid_usd: null, refunded_usd: null, compensation_usd: "0" } as LeaseEvent;
  assert.equal(eventFacts(event), "$0.31/h, for 1 h");
});

test("a top-up beyond the cap raises it to what is put in, and not without a cap", () => {
  assert.equal(raisedCap({ deposited: "2", amount: "0.1", maxSpend: "2" }), "2.1");
  assert.equal(raisedCap({ deposited: "2", amount: "1", maxSpend: "3" }), null);
  assert.equal(raisedCap({ deposited: "2", amount: "1", maxSpend: null }), null);
  assert.equal(raisedCap({ deposited: "2", amount: "x", maxSpend: "2" }), null);
});

test("leases are summed, those that have ended by what they cost only", () => {
  const ending = { reason: "RENTER", who: "renter", why: "", at: 1, paid_usd: "0.5", refunded_usd: "1.5", compensation_usd: "0" } as const;
  const order = marketOrder({ state: "matched", lease });
  const leases = [
    { order, money: { ...MONEY, warning: "deposit_low" as const }, ending: null },
    { order, money: { ...MONEY, runs_until: 4_000 }, ending: null },
    { order: null, money: null, ending: null },
    { order: null, money: { ...MONEY, hourly_usd: "0", runs_until: null }, ending },
  ];
  assert.deepEqual(leaseTotals(leases), { running: 2, hourly: 0.62, spent: 1.5, left: 3, nextEnd: 4_000, warned: 1 });
  assert.equal(leaseTotals([]).nextEnd, null);
});

test("uptime says what counts and what does not", () => {
  const uptime = { as_of: 1, percent: "99.20", running_s: 7_200, down_s: 58, paused_s: 0, waiting_s: 0, outages: 1, credit: null };
  assert.equal(uptimeHint(uptime), "By the chain, over all its providers: ran 2 h, was down 58 s in one outage.");
  assert.match(uptimeHint({ ...uptime, outages: 0, paused_s: 600 }), /ran 2 h\. Not counted: 10 min paused\.$/);
});

test("a booking says until when, and what is over since when", () => {
  assert.match(bookedText({ state: "active", left_at: null, ends_at: 4_600 }, 1_000), /^for 1 h, until /);
  assert.equal(bookedText({ state: "left", left_at: 400, ends_at: null }, 1_000), "left 10 min ago");
  assert.equal(bookedText({ state: "closed", left_at: 400, ends_at: null }, 1_000), "ended 10 min ago");
  assert.equal(bookedText({ state: "pending", left_at: null, ends_at: null }, 1_000), "about to start");
});
