import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { MarketLease } from "../src/api/schema.ts";
import { closeText, nextAttemptText, relaxationText, standingText } from "../src/market/orderText.ts";
import { changeText, filterText } from "../src/pages/leases/filterText.ts";
import { marketOrder } from "./leaseMatch.ts";

const nameOf = (provider: string) => (provider === "0xp1" ? "attic" : provider);
const lease = { state: "pending", provider: "0xp1", hourly_usd: "0.31", close_reason: null } as MarketLease;
const standing = (changes: Parameters<typeof marketOrder>[0], nowS = 1_000) => standingText(marketOrder(changes), nameOf, nowS);

test("where an order stands is said in one sentence, with names for providers", () => {
  assert.equal(standing({}), "The auction runs.");
  assert.equal(standing({ attempt: 1 }), "The auction of attempt 2 runs.");
  assert.equal(standing({ state: "matched", lease }), "attic has it, at $0.31 an hour, and has not started it yet.");
  assert.equal(standing({ state: "matched", lease: { ...lease, state: "active" } }), "It runs at attic, for $0.31 an hour.");
  assert.equal(standing({ state: "matched", lease: { ...lease, state: "vacant", provider: null } }), "It waits for another provider.");
  assert.equal(standing({ state: "closed", lease: { ...lease, state: "closed", close_reason: "EMPTY" } }), "The lease has ended: the deposit was used up.");
  assert.equal(standing({ state: "expired", refunded_usd: "1" }), "It ended without a provider, and $1.00 came back.");
});

test("an order without a provider says when the next auction opens", () => {
  const order = marketOrder({ state: "unmatched", next_attempt_at: 1_010 });
  assert.equal(standingText(order, nameOf, 1_000), "Nobody yet. Attempt 2 of 4 opens in 10 s.");
  assert.equal(nextAttemptText(order, 1_009.5), "Attempt 2 of 4 opens in 1 s.");
  assert.equal(nextAttemptText(order, 1_030), "Attempt 2 of 4 opens now.");
  assert.equal(nextAttemptText({ ...order, next_attempt_at: null }, 0), "No further auction opens by itself.");
});

test("what would have helped is said in words", () => {
  const said = (field: string, value: string) => relaxationText({ field, value }, nameOf);
  assert.equal(said("vram_gb", "24"), "24 GB of GPU memory");
  assert.equal(said("max_hourly", "2.4"), "a highest price of $2.40/h");
  assert.equal(said("uptime", "0.9"), "an uptime of 90.0 %");
  assert.equal(said("gpu_count", "0"), "no GPU");
  assert.equal(said("only", "0xp1"), "attic among those that may bid");
  assert.equal(said("ignore", "without 0xp1"), "attic not ruled out");
  assert.equal(said("moon", "full"), "moon full");
});

test("every reason for which a lease ends has words of its own", () => {
  const source = readFileSync(new URL("../../src/sparewatt/protocol/contracts/reasons.py", import.meta.url), "utf8");
  const names = [...(source.split("class CloseReason")[1]?.split(/^class /m)[0] ?? "").matchAll(/^ {4}([A-Z_]+) = [1-9]/gm)].map(([, name]) => name as string);
  assert.ok(names.length >= 5, "the protocol's file was read");
  assert.deepEqual(names.filter((name) => closeText(name) === name.toLowerCase().replaceAll("_", " ")), []);
});

test("every check of a quote, and every field that an order can hold, has words", () => {
  const source = readFileSync(new URL("../../src/sparewatt/leasing/orders/provider_checks.py", import.meta.url), "utf8");
  const checks = [...source.matchAll(/CapacityCheck\(\s*"(\w+)"/g), ...source.matchAll(/"(connected|offers leases|has a price|bond)"/g)].map(([, name]) => name as string);
  assert.ok(checks.length >= 11, "the quote's file was read");
  assert.deepEqual(checks.filter((name) => filterText(name) === name), []);
  assert.equal(filterText("moon"), "moon");
  assert.equal(changeText("max_hourly 0.1→0.2 adds 1 node"), "highest price 0.1→0.2 adds 1 node");
  assert.equal(changeText("region DE→FR adds 1 node"), "region DE→FR adds 1 node");
});
