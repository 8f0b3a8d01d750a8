import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { wantedText } from "../src/market/orderText.ts";
import { MEANINGS, rankReasons, reasonText } from "../src/market/reasons.ts";

const SOURCE = new URL("../../src/sparewatt/protocol/contracts/reasons.py", import.meta.url);
const ON_CHAIN_LEASE = ["CloseReason", "HandOverReason"];

test("every reason of the protocol has words of its own", () => {
  const classes = readFileSync(SOURCE, "utf8").split(/^class /m).slice(1);
  const names = classes.filter((text) => !ON_CHAIN_LEASE.some((name) => text.startsWith(name))).flatMap((text) => [...text.matchAll(/^ {4}([A-Z_]+) = [1-9]/gm)].map(([, name]) => name as string));
  assert.ok(names.length > 40, "the protocol's file was read");
  assert.deepEqual(names.filter((name) => !(name in MEANINGS)), []);
  assert.equal(reasonText("MOON_PHASE"), "moon phase");
});

test("the reason that stopped most comes first", () => {
  assert.deepEqual(rankReasons({ BUSY: 1, VRAM: 4, LATE: 1 }), [["VRAM", 4], ["BUSY", 1], ["LATE", 1]]);
});

test("what is wanted is said in a few words", () => {
  const wanted = { gpu_units: 2, gpu_names: ["rtx-4090"], min_vram_gb: 24 };
  assert.equal(wantedText(wanted), "2 × rtx-4090, 24 GB or more");
  assert.equal(wantedText({ ...wanted, gpu_names: ["a", "b", "c", "d"], min_vram_gb: 0 }), "2 × 4 kinds of GPU");
  assert.equal(wantedText({ ...wanted, gpu_names: [], min_vram_gb: 0 }), "2 × any GPU");
  assert.equal(wantedText({ ...wanted, gpu_units: 0 }), "no GPU");
});
