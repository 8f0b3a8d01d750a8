"""Answers of the API, as the contract writes them."""

from __future__ import annotations

from typing import Any

BERLIN = "0x" + "a1" * 20
OSLO = "0x" + "b2" * 20
LIMA = "0x" + "b2c3" * 10

MODEL = {
    "id": "org/small-model",
    "object": "model",
    "created": 1_790_000_000,
    "owned_by": "org",
    "context_length": 8192,
    "nodes_online": 3,
    "warm": 2,
    "quantizations": ["Q8_0", "F16"],
    "pricing": {"prompt": "0.00000002", "completion": "0.00000004"},
}
BARE_MODEL = {
    "id": "bare",
    "object": "model",
    "created": 0,
    "owned_by": "x",
    "context_length": None,
    "nodes_online": 0,
    "warm": 0,
    "quantizations": [],
    "pricing": None,
}


def model_list(*models: object) -> dict[str, object]:
    return {"object": "list", "data": list(models)}


def node(node_id: str, name: str, **changes: object) -> dict[str, Any]:
    return {
        "id": node_id,
        "name": name,
        "region": "eu-central",
        "state": "online",
        "gpu": "RTX 4090",
        "gpu_count": 2,
        "agent_version": "0.1.0",
        "backend": "llama.cpp",
        "claimed": {"vram_bytes": 24 * 1024**3, "tflops": 82.6, "hourly_usd": "0.4"},
        "measured": {"tflops": 71.25},
        "models": [
            {
                "id": "org/small-model",
                "state": "on_disk",
                "context_length": 8192,
                "quantization": "Q8_0",
                "claimed": {"prefill_tps": 9000.0, "decode_tps": 120.0},
                "measured": {"ttft_s": 0.25, "prefill_tps": 7654.0, "decode_tps": 98.7},
                "price": {"prompt_usd_per_mtok": "0.02", "completion_usd_per_mtok": "0.04"},
            }
        ],
        "running": 1,
        "queued": 0,
        "slots": 4,
        "rtt_ms": 12.3,
        "in_flight": 1,
        "jobs_done": 1234,
        "jobs_failed": 5,
        "last_seen_at": 1_790_000_000,
        **changes,
    }


def node_list(*nodes: object) -> dict[str, object]:
    return {"object": "list", "data": list(nodes)}


def candidate(node_id: str, name: str, cost_s: float, **parts: float) -> dict[str, object]:
    zero = dict.fromkeys(("network", "queue", "cold_load", "prefill", "decode", "price", "suspect", "jitter"), 0.0)
    return {
        "node": node_id,
        "name": name,
        "region": "eu",
        "cost_s": cost_s,
        "score": None,
        "parts": zero | parts,
        "price_usd": "0.0000012",
    }


def explanation(**changes: object) -> dict[str, object]:
    return {
        "match_id": None,
        "policy": "balanced",
        "model": "org/small-model",
        "dry_run": True,
        "created_at": 1_790_000_000,
        "job": {"prompt_tokens": 500, "output_tokens": 256, "vram_needed_bytes": 3 * 1024**3},
        "candidates_total": 4,
        "funnel": [{"filter": "online", "dropped": 1, "left": 3}, {"filter": "model", "dropped": 0, "left": 3}],
        "rejected": [{"node": LIMA, "name": "lima", "reason": "not_online", "detail": "last seen 90 s ago"}],
        "ranked": [
            candidate(BERLIN, "berlin", 1.2345, network=0.0123, decode=1.0, prefill=0.2222),
            candidate(OSLO, "oslo", 2.5, network=0.04, decode=2.4, prefill=0.06),
        ],
        "chosen": BERLIN,
        "outcome": "none",
        "attempts": [],
        "nearest_relaxations": [],
        **changes,
    }


NOBODY = explanation(
    ranked=[],
    chosen=None,
    funnel=[{"filter": "online", "dropped": 4, "left": 0}],
    nearest_relaxations=["Wait for a node of org/small-model to come back."],
)

NEURALGRID = explanation(
    policy="neuralgrid",
    ranked=[
        {
            "node": BERLIN,
            "name": "berlin",
            "region": "eu",
            "cost_s": None,
            "score": 0.875,
            "parts": {"vram": 0.3, "compute": 0.5, "cost": 0.075},
            "price_usd": "0.01",
        }
    ],
)

PAST = explanation(
    match_id="match_1",
    dry_run=False,
    outcome="done",
    attempts=[
        {
            "node": BERLIN,
            "name": "berlin",
            "outcome": "timed_out",
            "reason": "no first token",
            "started_ms": 0.0,
            "first_token_ms": None,
            "ended_ms": 1000.0,
            "tokens": 0,
        },
        {
            "node": OSLO,
            "name": "oslo",
            "outcome": "done",
            "reason": None,
            "started_ms": 1000.0,
            "first_token_ms": 1500.0,
            "ended_ms": 2000.0,
            "tokens": 42,
        },
    ],
    chosen=OSLO,
)
