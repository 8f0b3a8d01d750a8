import assert from "node:assert/strict";
import { test } from "node:test";
import type { HistoryKindName, LeaseStateName, MarketLease } from "../src/api/schema.ts";
import { actionsOf, currentStep, leaseSteps } from "../src/market/leaseSteps.ts";
import { marketOrder } from "./leaseMatch.ts";

const held = (state: LeaseStateName) => ({ phase: "matched" as const, order: marketOrder({ state: "matched", lease: { state } as MarketLease }) });
const events = (...kinds: HistoryKindName[]) => kinds.map((kind, at) => ({ kind, at: at + 1 }));
const states = (...of: Parameters<typeof leaseSteps>) => leaseSteps(...of).map(({ name, state }) => `${name} ${state}`);

test("a lease is where the chain says", () => {
  assert.equal(currentStep({ phase: "sending", order: null }), "ordered");
  assert.equal(currentStep({ phase: "matched", order: marketOrder({ state: "matched" }) }), "matched");
  assert.equal(currentStep(held("pending")), "starting");
  assert.equal(currentStep(held("vacant")), "starting");
  assert.equal(currentStep(held("active")), "running");
  assert.equal(currentStep(held("paused")), "paused");
  assert.equal(currentStep(held("unplaced")), "ordered");
  assert.equal(currentStep({ phase: "expired", order: null }), "closed");
});

test("a lease that runs has not paused, unless it did", () => {
  const until = events("ordered", "matched", "placed", "started");
  assert.deepEqual(states(held("active"), until), ["ordered done", "matched done", "starting done", "running now", "paused to come", "closed to come"]);
  const again = [...until, ...events("paused")];
  assert.equal(states(held("active"), again)[4], "paused done");
});

test("an order that ended without a provider left out what came after", () => {
  const ended = states({ phase: "expired", order: null }, events("ordered", "expired"));
  assert.deepEqual(ended, ["ordered done", "matched left out", "starting left out", "running left out", "paused left out", "closed now"]);
});

test("an attempt that expired has not closed the order", () => {
  assert.equal(states({ phase: "unmatched", order: null }, events("ordered", "expired")).at(-1), "closed to come");
});

test("one may do what the state allows, and nothing with what has ended", () => {
  assert.deepEqual(actionsOf(held("active")), ["pause", "extend", "top-up", "close"]);
  assert.deepEqual(actionsOf(held("paused")), ["resume", "top-up", "close"]);
  assert.deepEqual(actionsOf(held("unplaced")), ["reopen", "top-up", "close"]);
  assert.deepEqual(actionsOf({ phase: "open", order: null }), ["top-up", "cancel"]);
  assert.deepEqual(actionsOf({ phase: "closed", order: null }), []);
  assert.deepEqual(actionsOf({ phase: "sending", order: null }), []);
});
