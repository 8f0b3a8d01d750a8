import assert from "node:assert/strict";
import { test } from "node:test";
import { countdown, leftMs, openPhase, phaseSteps, reportedPhase } from "../src/market/phases.ts";
import { leaseMatch, marketOrder } from "./leaseMatch.ts";

const running = (name: "commit" | "reveal" | "vote" | "certified") => leaseMatch({ phase: { name, round: 0, ends_in_ms: 300 }, certificate: null, votes: [] });

test("each phase marks what is done, what runs and what is to come", () => {
  const states = (name: "commit" | "reveal" | "vote" | "certified") => phaseSteps(running(name), 300).map(({ state }) => state);
  assert.deepEqual(states("commit"), ["done", "now", "waiting", "waiting", "waiting"]);
  assert.deepEqual(states("reveal"), ["done", "done", "now", "waiting", "waiting"]);
  assert.deepEqual(states("vote"), ["done", "done", "done", "now", "waiting"]);
  assert.deepEqual(states("certified"), ["done", "done", "done", "done", "now"]);
});

test("the lookup comes first, with how many were asked", () => {
  assert.deepEqual(phaseSteps(running("commit"), 300)[0], { name: "Lookup", state: "done", note: "4 nodes asked" });
  const { counts } = leaseMatch();
  assert.equal(phaseSteps(leaseMatch({ counts: { ...counts, asked: 0 } }), null)[0]?.note, "no node asked");
});

test("the phase that runs has a countdown, and those to come their length", () => {
  const [, sealed, opened] = phaseSteps(running("commit"), 300);
  assert.match(sealed?.note ?? "", /^3 sealed, 1 declined · 0\.3 s left$/);
  assert.match(opened?.note ?? "", /0\.4 s$/);
  assert.match(phaseSteps(running("vote"), 58_000)[3]?.note ?? "", /times out in 58 s$/);
  assert.doesNotMatch(phaseSteps(running("vote"), null)[3]?.note ?? "", /times out/);
});

test("an attempt with a certificate is done; one that ended without has failed at it, and one without a winner says so", () => {
  assert.deepEqual(phaseSteps(leaseMatch(), null).map(({ state }) => state), ["done", "done", "done", "done", "done"]);
  const over = leaseMatch({ phase: { name: "over", round: 2, ends_in_ms: null }, certificate: null });
  assert.deepEqual(phaseSteps(over, null).map(({ state }) => state), ["done", "done", "done", "done", "failed"]);
  const { certificate } = leaseMatch();
  const nobody = leaseMatch({ phase: { name: "unmatched", round: 0, ends_in_ms: null }, certificate: certificate && { ...certificate, candidates: [] } });
  assert.deepEqual(phaseSteps(nobody, null)[4], { name: "Certificate", state: "nobody", note: "on the chain: nobody won" });
});

test("votes of another round do not count for this one", () => {
  const votes = [0, 0, 1].map((round, at) => ({ validator: `0x${at}`, round, task_digest: "0x", agrees: null }));
  const match = leaseMatch({ phase: { name: "vote", round: 1, ends_in_ms: null }, certificate: null, votes });
  assert.match(phaseSteps(match, null)[3]?.note ?? "", /^1 of 4 voted, round 2/);
});

test("where an auction is by what validators report does not depend on this machine's clock", () => {
  assert.deepEqual(reportedPhase(running("commit"), 200), { name: "commit", leftMs: 200, share: 0.75 });
  assert.deepEqual(reportedPhase(running("reveal"), null), { name: "reveal", leftMs: null, share: 0 });
  assert.deepEqual(reportedPhase(running("certified"), 9_000), { name: "vote", leftMs: null, share: 1 });
  assert.equal(reportedPhase(leaseMatch(), null), null);
});

test("a countdown ends at zero, and is unknown without an end", () => {
  assert.deepEqual([leftMs(500, 1_000, 1_200), leftMs(500, 1_000, 9_000), leftMs(null, 0, 0)], [300, 0, null]);
  assert.deepEqual([countdown(0), countdown(1_234), countdown(59_001)], ["0.0 s", "1.2 s", "60 s"]);
});

test("an open order is where the clock says, and others have no phase", () => {
  const at = (passedMs: number) => openPhase(marketOrder(), 1_000_000 + passedMs);
  assert.deepEqual(at(-500), { name: "commit", leftMs: 800, share: 0 });
  assert.deepEqual(at(400), { name: "commit", leftMs: 400, share: 0.5 });
  assert.deepEqual(at(1_000), { name: "reveal", leftMs: 200, share: 0.5 });
  assert.deepEqual(at(60_000), { name: "vote", leftMs: null, share: 1 });
  assert.equal(openPhase(marketOrder({ state: "matched" }), 1_000_000), null);
});
