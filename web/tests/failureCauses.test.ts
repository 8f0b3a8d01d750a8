import assert from "node:assert/strict";
import { test } from "node:test";
import { describeCause, KNOWN_CAUSES } from "../src/pages/node/failureCauses.ts";

test("every cause has a meaning and a remedy", () => {
  for (const cause of KNOWN_CAUSES) {
    const { name, meaning, help } = describeCause(cause);
    assert.ok(name && meaning.endsWith(".") && /[.?]$/.test(help), cause);
  }
});

test("an unknown cause, of a newer gateway, is shown by its own name", () => {
  assert.equal(describeCause("moon_phase").name, "moon phase");
});
