import assert from "node:assert/strict";
import { test } from "node:test";
import { groupRefusals } from "../src/market/refusals.ts";

const refusal = (validator: string, provider: string, reason = "LATE", late_by_ms = 0) => ({ validator, provider, code: 32, reason, late_by_ms });

test("one reason of several validators is one row, with the longest delay", () => {
  const groups = groupRefusals([refusal("v1", "p2"), refusal("v1", "p1", "LATE", 5), refusal("v2", "p1", "LATE", 9), refusal("v2", "p1", "LATE", 1)]);
  assert.deepEqual(groups, [
    { provider: "p1", reason: "LATE", validators: ["v1", "v2"], late_by_ms: 9 },
    { provider: "p2", reason: "LATE", validators: ["v1"], late_by_ms: 0 },
  ]);
});

test("two reasons against one provider stay apart", () => {
  assert.equal(groupRefusals([refusal("v1", "p1"), refusal("v1", "p1", "UNBONDED")]).length, 2);
});
