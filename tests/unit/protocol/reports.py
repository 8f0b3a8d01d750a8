"""Reports of a node, for tests: a good one, and the same with something changed."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs, Speed

SPEED = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.2)
MODEL = ModelReport(
    id="llama",
    state="warm",
    weights_bytes=8 * 10**9,
    kv_bytes_per_token=131_072,
    prompt_price_nano=20_000_000,
    completion_price_nano=40_000_000,
    context_length=8192,
    measured=SPEED,
)
SPECS = NodeSpecs(
    name="attic",
    region="eu-west",
    gpu="RTX 4090",
    gpu_count=1,
    vram_bytes=24 * 10**9,
    tflops=82.6,
    hourly_price_nano=100_000_000,
    slots=4,
    backend="openai",
    agent_version="0.1.0",
    models=(MODEL,),
)


def specs_json(**changes: Any) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(SPECS) | changes)


def model_json(**changes: Any) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(MODEL) | changes)
