import assert from "node:assert/strict";
import { test } from "node:test";
import type { Candidate } from "../src/api/types.ts";
import { ranked, termsOf, weighed } from "../src/match/terms.ts";

function candidate(node: string, parts: Record<string, number>, changes: Partial<Candidate> = {}): Candidate {
  const cost = Object.values(parts).reduce((sum, part) => sum + part, 0);
  return { node, name: node, region: null, cost_s: cost, score: null, parts, predicted_ttft_s: 0, cached_tokens: 0, price_usd: "0", ...changes };
}

const near = candidate("near", { decode: 2, price: 3 });
const cheap = candidate("cheap", { decode: 5, price: 1 });

test("as recorded, the order is the recorded one", () => {
  assert.deepEqual(ranked([near, cheap], {}).map((one) => one.node), ["near", "cheap"]);
  assert.equal(weighed(near, {}), 5);
});

test("a term that counts more can turn the order, and one that counts nothing too", () => {
  assert.equal(ranked([near, cheap], { price: 3 })[0]?.node, "cheap");
  assert.equal(ranked([near, cheap], { decode: 0 })[0]?.node, "cheap");
});

test("of a policy that scores, the highest wins", () => {
  const low = candidate("low", { vram: 1 }, { cost_s: null, score: 1 });
  const high = candidate("high", { vram: 2 }, { cost_s: null, score: 2 });
  assert.equal(ranked([low, high], {})[0]?.node, "high");
});

test("every term of any candidate is named once", () => {
  assert.deepEqual(termsOf([near, candidate("x", { queue: 1, decode: 1 })]), ["decode", "price", "queue"]);
});
