import assert from "node:assert/strict";
import { test } from "node:test";
import type { Attempt } from "../src/api/types.ts";
import { arrival } from "../src/match/arrival.ts";

function attempt(changes: Partial<Attempt>): Attempt {
  return { node: "0x1", name: null, outcome: "done", reason: null, started_ms: 0, first_token_ms: null, ended_ms: 9, tokens: 1, ...changes };
}

test("an answer that is not streamed comes in one piece, and never has a first token that never came", () => {
  assert.equal(arrival(attempt({}), false), "in one piece");
  assert.equal(arrival(attempt({ outcome: "failed" }), false), "no answer");
  assert.equal(arrival(attempt({ outcome: "running", ended_ms: null }), false), "will come in one piece");
});

test("a streamed one has a first token, or none yet, or never", () => {
  assert.equal(arrival(attempt({ first_token_ms: 12 }), true), "first token at 12 ms");
  assert.equal(arrival(attempt({ outcome: "running", ended_ms: null }), true), "no token yet");
  assert.equal(arrival(attempt({ outcome: "timed_out" }), true), "first token never");
});
