import assert from "node:assert/strict";
import { test } from "node:test";
import { sideBySide } from "../src/market/sideBySide.ts";
import { DIGEST, KEYS, leaseMatch, OTHER_DIGEST } from "./leaseMatch.ts";

const { votes, lists } = leaseMatch();

test("validators that recorded the same agree, and one that nobody heard has no cell", () => {
  const table = sideBySide(leaseMatch());
  assert.equal(table.agrees, true);
  assert.deepEqual(table.rows.map(({ name }) => name), ["Bids listed as sealed", "Bids listed as opened", "Vote in round 1"]);
  for (const { cells } of table.rows) assert.deepEqual(cells.map(({ isSame }) => isSame), [true, true, true, null]);
  assert.deepEqual(table.rows[0]?.cells.map(({ text }) => text), ["3 bids", "3 bids", "3 bids", null]);
});

test("a vote for another result differs, even if most voted for it", () => {
  const others = KEYS.slice(1, 4).map((validator) => ({ validator, round: 0, task_digest: OTHER_DIGEST, agrees: false }));
  const table = sideBySide(leaseMatch({ votes: [...votes.slice(0, 1), ...others] }));
  assert.equal(table.agrees, false);
  assert.deepEqual(table.rows[2]?.cells.map(({ isSame }) => isSame), [true, false, false, false]);
});

test("a list that leaves a bid out differs from the usual one, whatever its order", () => {
  const changed = lists.map((list) => (list.validator !== KEYS[0] ? { ...list, bid_ids: [...list.bid_ids].reverse() } : { ...list, bid_ids: list.bid_ids.slice(1) }));
  const [sealed] = sideBySide(leaseMatch({ lists: changed })).rows;
  assert.deepEqual(sealed?.cells.map(({ text, isSame }) => [text, isSame]), [["2 bids", false], ["3 bids", true], ["3 bids", true], [null, null]]);
  assert.deepEqual(sealed?.cells.map(({ lacks, besides }) => [lacks, besides]), [[["0xp1"], []], [[], []], [[], []], [[], []]]);
});

test("a list with a bid that most do not have names its bidder", () => {
  const changed = lists.map((list) => (list.validator === KEYS[0] ? list : { ...list, bid_ids: list.bid_ids.slice(0, 2) }));
  const [sealed] = sideBySide(leaseMatch({ lists: changed })).rows;
  assert.deepEqual(sealed?.cells[0]?.besides, ["0xp3"]);
});

test("a validator that signed two things is shown with both", () => {
  const twice = [...votes, { validator: KEYS[0], round: 0, task_digest: OTHER_DIGEST, agrees: false }];
  const cell = sideBySide(leaseMatch({ votes: twice })).rows[2]?.cells[0];
  assert.deepEqual([cell?.text, cell?.isSame], ["2 different", false]);
  assert.ok(cell?.title.includes(DIGEST) && cell.title.includes(OTHER_DIGEST));
});

test("a vote of an earlier round may be for another result", () => {
  const earlier = KEYS.slice(0, 2).map((validator) => ({ validator, round: 0, task_digest: OTHER_DIGEST, agrees: false }));
  const later = votes.map((vote) => ({ ...vote, round: 1 }));
  const { certificate } = leaseMatch();
  const table = sideBySide(leaseMatch({ votes: [...earlier, ...later], certificate: certificate && { ...certificate, round: 1 } }));
  assert.deepEqual([table.agrees, table.hasOtherRound], [true, true]);
  assert.deepEqual(table.rows[2]?.cells.map(({ isSame }) => isSame), [true, true, null, null]);
  assert.equal(sideBySide(leaseMatch()).hasOtherRound, false);
});

test("each round has its votes, and without a certificate there is no verdict", () => {
  const second = votes.map((vote) => ({ ...vote, round: 1, agrees: null }));
  const table = sideBySide(leaseMatch({ votes: [...second, ...votes.slice(0, 1)], certificate: null }));
  assert.deepEqual(table.rows.slice(2).map(({ name }) => name), ["Vote in round 1", "Vote in round 2"]);
  assert.equal(table.agrees, null);
});
