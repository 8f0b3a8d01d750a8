import assert from "node:assert/strict";
import { test } from "node:test";
import type { RankedNode } from "../src/api/schema.ts";
import { partNames, rankCandidates, weightedCost } from "../src/match/costParts.ts";

function candidate(node: string, parts: Record<string, number>, changes: Partial<RankedNode> = {}): RankedNode {
  const cost = Object.values(parts).reduce((sum, part) => sum + part, 0);
  return { node, name: node, region: null, cost_s: cost, score: null, parts, predicted_ttft_s: 0, cached_tokens: 0, price_usd: "0", quantization: null, served_as: null, ...changes };
}

const near = candidate("near", { decode: 2, price: 3 });
const cheap = candidate("cheap", { decode: 5, price: 1 });

test("without weights the order is the recorded one", () => {
  assert.deepEqual(rankCandidates([near, cheap], {}).map((one) => one.node), ["near", "cheap"]);
  assert.equal(weightedCost(near, {}), 5);
});

test("a part that counts more, or nothing, can change the order", () => {
  assert.equal(rankCandidates([near, cheap], { price: 3 })[0]?.node, "cheap");
  assert.equal(rankCandidates([near, cheap], { decode: 0 })[0]?.node, "cheap");
});

test("if a ranking scores, the highest score wins", () => {
  const low = candidate("low", { vram: 1 }, { cost_s: null, score: 1 });
  const high = candidate("high", { vram: 2 }, { cost_s: null, score: 2 });
  assert.equal(rankCandidates([low, high], {})[0]?.node, "high");
});

test("each part of any candidate is named once", () => {
  assert.deepEqual(partNames([near, candidate("x", { queue: 1, decode: 1 })]), ["decode", "price", "queue"]);
});
