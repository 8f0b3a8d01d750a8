import assert from "node:assert/strict";
import { test } from "node:test";
import { readable } from "../src/match/relaxation.ts";

test("a relaxation has few digits, and still holds", () => {
  const said = [
    "max_price 0.3→0.34123456789 adds 3 nodes",
    "max_ttft_ms 500→712.3456789 adds 2 nodes",
    "min_throughput 50→31.28765 adds 1 node",
    "uptime >=0.99→>=0.97163 adds 1 node",
    "max_price prompt=0.1 completion=0.5→prompt=0.1 completion=0.000612345 adds 1 node",
  ];
  assert.deepEqual(said.map(readable), [
    "max_price 0.3→0.342 adds 3 nodes",
    "max_ttft_ms 500→713 adds 2 nodes",
    "min_throughput 50→31.2 adds 1 node",
    "uptime >=0.99→>=0.971 adds 1 node",
    "max_price prompt=0.1 completion=0.5→prompt=0.1 completion=0.000612 adds 1 node",
  ]);
});

test("what is no number stays as it is", () => {
  const said = ["without region and tier adds 4 nodes", "vram_gb >=80→>=24 adds 2 nodes", "region EU→NA adds 1 node", "a prompt under 4096 tokens adds 1 node(s)", ""];
  assert.deepEqual(said.map(readable), said);
});
