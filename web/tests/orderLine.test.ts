import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY_ORDER } from "../src/pages/leases/orderBody.ts";
import { orderLine, shellWord } from "../src/pages/leases/orderLine.ts";

test("what needs no quotes has none", () => {
  assert.equal(shellWord("ghcr.io/me/train:1"), "ghcr.io/me/train:1");
});

test("nothing in a value ends its quotes", () => {
  assert.equal(shellWord("it's; rm -rf $HOME `x`"), `'it'\\''s; rm -rf $HOME \`x\`'`);
  assert.equal(shellWord("a\nb"), "'a\nb'");
});

test("a line has the order's fields and names secrets without their values", () => {
  const line = orderLine({ ...EMPTY_ORDER, image: "me/train:1", command: "python train.py", card: "l4", policy: "tier=verified", ports: "80 443", env: "MODE=full run", secrets: "HF_TOKEN" });
  assert.equal(
    line,
    "sparewatt lease create --image me/train:1 --command 'python train.py' --gpus 1 --duration 1h --policy 'gpu=l4 tier=verified' --port 80 --port 443 --env 'MODE=full run' --secret HF_TOKEN",
  );
});
