import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY_ORDER, orderBody } from "../src/pages/leases/orderBody.ts";

test("without an image there is no order", () => {
  assert.equal(orderBody({ ...EMPTY_ORDER, image: "  " }), null);
});

test("empty fields are left out, and 0 GPUs are not empty", () => {
  assert.deepEqual(orderBody({ ...EMPTY_ORDER, image: " ubuntu:24.04 ", gpus: "0" }), { image: "ubuntu:24.04", resources: { gpus: 0 }, duration: "1h" });
});

test("the highest price goes before the other conditions", () => {
  const body = orderBody({ ...EMPTY_ORDER, image: "a", command: "sleep 9", gpus: "2", cpus: "4", memoryGb: "16", diskGb: "50", duration: "", card: "l4", region: "DE", maxHourly: "1.5", policy: "tier=verified" });
  assert.deepEqual(body, { image: "a", resources: { gpus: 2, cpus: 4, memory_gb: 16 }, command: "sleep 9", disk_gb: 50, policy: "max_hourly=1.5 gpu=l4 region=DE tier=verified" });
});

test("ports, variables and names of secrets become lists, and what is no port is left to the gateway", () => {
  const body = orderBody({ ...EMPTY_ORDER, image: "a", ports: "8080, 22 http", env: " A=1 \n\nB=two words\n", secrets: "HF_TOKEN,KEY", egress: "none", maxSpend: " 2.50", name: "job" });
  assert.deepEqual(body, {
    image: "a",
    resources: { gpus: 1 },
    name: "job",
    duration: "1h",
    max_spend: "2.50",
    egress: "none",
    ports: [8080, 22, "http"],
    env: ["A=1 ", "B=two words"],
    secrets: ["HF_TOKEN", "KEY"],
  });
});
