import assert from "node:assert/strict";
import { test } from "node:test";
import type { MatchAttempt } from "../src/api/schema.ts";
import { firstTokenText } from "../src/match/firstToken.ts";

function attempt(changes: Partial<MatchAttempt>): MatchAttempt {
  return {
    node: "0x1",
    name: null,
    outcome: "done",
    reason: null,
    started_ms: 0,
    first_token_ms: null,
    ended_ms: 9,
    tokens: 1,
    chars: 4,
    continued_from: null,
    ...changes,
  };
}

test("an answer that is not streamed comes in one piece, and has no time of a first token", () => {
  assert.equal(firstTokenText(attempt({}), false), "in one piece");
  assert.equal(firstTokenText(attempt({ outcome: "failed" }), false), "no answer");
  assert.equal(firstTokenText(attempt({ outcome: "running", ended_ms: null }), false), "will come in one piece");
});

test("a streamed answer has a first token, none yet, or never one", () => {
  assert.equal(firstTokenText(attempt({ first_token_ms: 12 }), true), "first token at 12 ms");
  assert.equal(firstTokenText(attempt({ outcome: "running", ended_ms: null }), true), "no token yet");
  assert.equal(firstTokenText(attempt({ outcome: "timed_out" }), true), "first token never");
});
