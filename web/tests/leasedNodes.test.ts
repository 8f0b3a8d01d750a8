import assert from "node:assert/strict";
import { test } from "node:test";
import { leasedNodes } from "../src/market/leasedNodes.ts";

const PROVIDERS = [
  { id: "0xa", node_key: "node-a" },
  { id: "0xb", node_key: null },
];

test("leases are counted by the node that runs them", () => {
  const leases = [
    { provider: "0xa", state: "active" as const },
    { provider: "0xa", state: "paused" as const },
  ];
  assert.deepEqual([...leasedNodes(leases, PROVIDERS)], [["node-a", 2]]);
});

test("what is closed, has no provider, or one without a node, is on no node", () => {
  const leases = [
    { provider: "0xa", state: "closed" as const },
    { provider: null, state: "vacant" as const },
    { provider: "0xb", state: "active" as const },
    { provider: "0xunknown", state: "active" as const },
  ];
  assert.equal(leasedNodes(leases, PROVIDERS).size, 0);
});
