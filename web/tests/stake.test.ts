import assert from "node:assert/strict";
import { test } from "node:test";
import { countVotes, isQuorum, isQuorumShare, shareOf, uusd } from "../src/market/stake.ts";

const four = ["a", "b", "c", "d"].map((vote_key) => ({ vote_key, weight_usd: "100" }));

test("dollars become whole µUSD", () => {
  assert.deepEqual(["0", "1", "0.5", "12.345678", "100000000000.000001"].map(uusd), [0n, 1_000_000n, 500_000n, 12_345_678n, 100_000_000_000_000_001n]);
});

test("exactly two thirds are no quorum, one unit more are", () => {
  assert.deepEqual([isQuorum(2n, 3n), isQuorum(200_001n, 300_000n), isQuorum(0n, 0n)], [false, true, false]);
});

test("a rounded share counts as a quorum if it can be one", () => {
  assert.deepEqual([0, 0.6666, 0.6667, 0.75].map(isQuorumShare), [false, false, true, true]);
});

test("votes count by stake, each key once, strangers for nothing", () => {
  assert.deepEqual(countVotes(["a", "b"], four), { share: 0.5, isQuorum: false });
  assert.deepEqual(countVotes(["a", "b", "c"], four), { share: 0.75, isQuorum: true });
  assert.deepEqual(countVotes(["a", "a", "a", "x", "y"], four), { share: 0.25, isQuorum: false });
});

test("without stake nobody has a share", () => {
  assert.equal(shareOf(0n, 0n), 0);
  assert.deepEqual(countVotes(["a"], []), { share: 0, isQuorum: false });
});
