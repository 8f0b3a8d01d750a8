import assert from "node:assert/strict";
import { test } from "node:test";
import { formatRelaxation } from "../src/match/relaxation.ts";

test("a relaxation has few digits, and stays true", () => {
  const sentences = [
    "max_price 0.3→0.34123456789 adds 3 nodes",
    "max_ttft_ms 500→712.3456789 adds 2 nodes",
    "min_throughput 50→31.28765 adds 1 node",
    "uptime >=0.99→>=0.97163 adds 1 node",
    "max_price prompt=0.1 completion=0.5→prompt=0.1 completion=0.000612345 adds 1 node",
  ];
  assert.deepEqual(sentences.map(formatRelaxation), [
    "max_price 0.3→0.342 adds 3 nodes",
    "max_ttft_ms 500→713 adds 2 nodes",
    "min_throughput 50→31.2 adds 1 node",
    "uptime >=0.99→>=0.971 adds 1 node",
    "max_price prompt=0.1 completion=0.5→prompt=0.1 completion=0.000612 adds 1 node",
  ]);
});

test("a relaxation without numbers is unchanged", () => {
  const sentences = ["without region and tier adds 4 nodes", "vram_gb >=80→>=24 adds 2 nodes", "region EU→NA adds 1 node", "a prompt under 4096 tokens adds 1 node(s)", ""];
  assert.deepEqual(sentences.map(formatRelaxation), sentences);
});
