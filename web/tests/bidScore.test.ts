import assert from "node:assert/strict";
import { test } from "node:test";
import { checkRanking, recomputedScore, SCORE_TERMS, scoreTerms, scoreUsd } from "../src/market/bidScore.ts";
import { bid, leaseMatch, score } from "./leaseMatch.ts";

test("the terms of a score add up to it", () => {
  const one = score(900_000);
  const terms = scoreTerms(one);
  const sum = SCORE_TERMS.reduce((total, term) => total + terms[term], 0);
  assert.ok(Math.abs(sum - scoreUsd(one)) < 1e-9);
  assert.deepEqual([terms.price, terms.latency], [0.9, 0.02]);
  assert.ok(terms.risk > 0);
});

test("a score is computed as the protocol says, also where a double would not hold it", () => {
  assert.equal(recomputedScore(score(900_000)).toString(), score(900_000).score);
  const largest = score(2 ** 40 - 1, { latency_uusd: 0, uptime_ppm: 0, reputation_ppm: 1_000_000 });
  assert.equal(recomputedScore(largest), (2n ** 40n - 1n) * 1_000_000n);
  assert.equal(recomputedScore(score(7, { latency_uusd: 0, uptime_ppm: 1_000_000, reputation_ppm: 1_000_000 })), 7n);
});

test("a ranking that holds has no faults", () => {
  assert.deepEqual(checkRanking(leaseMatch()), { bids: 2, faults: [] });
});

test("a false score, and a worse bid in front, are named", () => {
  const forged = bid("0xp1", { score: score(900_000, { score: "1" }), rank: 1 });
  assert.match(checkRanking({ bids: [forged] }).faults.join(), /score of 0xp1 is \d+, not 1/);
  const [worse, better] = [bid("0xp1", { score: score(2_000_000), rank: 1 }), bid("0xp2", { score: score(1_000_000), rank: 2 })];
  assert.match(checkRanking({ bids: [worse, better] }).faults.join(), /0xp2 has a lower score than 0xp1/);
});

test("bids with one score may stand in either order", () => {
  const bids = ["0xp2", "0xp1"].map((provider, at) => bid(provider, { score: score(900_000), rank: at + 1 }));
  assert.deepEqual(checkRanking({ bids }).faults, []);
});
