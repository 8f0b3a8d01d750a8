import assert from "node:assert/strict";
import { test } from "node:test";
import { asCsv } from "../src/lib/download.ts";

test("a text that looks like a formula is quoted in a CSV file", () => {
  assert.equal(asCsv([{ model: "=1+1", note: 'a "quoted", line', n: -3 }]), "model,note,n\r\n'=1+1,\"a \"\"quoted\"\", line\",-3");
});
