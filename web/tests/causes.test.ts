import assert from "node:assert/strict";
import { test } from "node:test";
import { KNOWN_CAUSES, wordsOf } from "../src/pages/node/causes.ts";

test("every cause says what it means and what to do", () => {
  for (const cause of KNOWN_CAUSES) {
    const { name, means, help } = wordsOf(cause);
    assert.ok(name && means.endsWith(".") && /[.?]$/.test(help), cause);
  }
});

test("a cause of a newer gateway is shown by its own name", () => {
  assert.equal(wordsOf("moon_phase").name, "moon phase");
});
