"""Replies of the API, complete as the types of `protocol/api/` require them."""

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
    "capabilities": ["tools"],
    "nodes_online": 3,
    "warm": 2,
    "quantizations": ["Q8_0", "F16"],
    "pricing": {"prompt": "0.00000002", "completion": "0.00000004"},
}
BARE_MODEL = MODEL | {
    "id": "bare",
    "context_length": None,
    "capabilities": [],
    "nodes_online": 0,
    "warm": 0,
    "quantizations": [],
    "pricing": {"prompt": "0", "completion": "0"},
}


def page(*lines: object) -> dict[str, Any]:
    """The only page of a statement."""
    return {"object": "list", "data": list(lines), "next": None}


def model_list(*models: object) -> dict[str, object]:
    return {"object": "list", "data": list(models)}


def speed(*, prefill_tps: float, decode_tps: float) -> dict[str, float]:
    first_token_s = 0.25 + 1000 / prefill_tps
    return {
        "first_token_s": first_token_s,
        "ttft_s": 0.25,
        "prefill_tps": prefill_tps,
        "prefill_square_s": 0.0,
        "decode_tps": decode_tps,
    }


def node(node_id: str, name: str, **changes: object) -> dict[str, Any]:
    return {
        "id": node_id,
        "handle": "amber-otter",
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
                "weights_digest": None,
                "capabilities": None,
                "claimed": speed(prefill_tps=9000.0, decode_tps=120.0),
                "measured": speed(prefill_tps=7654.0, decode_tps=98.7),
                "price": {
                    "prompt_usd_per_mtok": "0.02",
                    "completion_usd_per_mtok": "0.04",
                    "prompt_derivation": "$0.40 an hour at 7,654 tokens/s",
                    "completion_derivation": "set by the owner",
                },
            }
        ],
        "gpus": [],
        "paused": None,
        "kv_used": None,
        "running": 1,
        "queued": 0,
        "slots": 4,
        "rtt_ms": 12.3,
        "in_flight": 1,
        "jobs_done": 1234,
        "jobs_failed": 5,
        "last_seen_at": 1_790_000_000,
        "yours": False,
        "sensors": None,
        **changes,
    }


def node_list(*nodes: object) -> dict[str, object]:
    return {"object": "list", "data": list(nodes)}


def reputation(score: float, lower: float, **changes: object) -> dict[str, Any]:
    return {"node": BERLIN, "name": "berlin", "score": score, "lower": lower, "half_life_days": 30, **changes}


def candidate(node_id: str, name: str, cost_s: float, **parts: float) -> dict[str, object]:
    zero = dict.fromkeys(("network", "queue", "cold_load", "prefill", "decode", "price", "suspect", "jitter"), 0.0)
    return {
        "node": node_id,
        "name": name,
        "region": "eu",
        "cost_s": cost_s,
        "score": None,
        "parts": zero | parts,
        "predicted_ttft_s": 0.1,
        "cached_tokens": 0,
        "price_usd": "0.0000012",
    }


def attempt(node_id: str, name: str, **changes: object) -> dict[str, object]:
    return {
        "node": node_id,
        "name": name,
        "outcome": "done",
        "reason": None,
        "started_ms": 0.0,
        "first_token_ms": None,
        "ended_ms": None,
        "tokens": 0,
        "chars": 0,
        "continued_from": None,
        **changes,
    }


def explanation(**changes: object) -> dict[str, Any]:
    """A dry run."""
    return {
        "match_id": None,
        "policy": "balanced",
        "model": "org/small-model",
        "dry_run": True,
        "preference": None,
        "policy_effective": {},
        "created_at": 1_790_000_000,
        "job": {"prompt_tokens": 500, "output_tokens": 256, "vram_needed_bytes": 3 * 1024**3},
        "candidates_total": 4,
        "funnel": [{"filter": "online", "dropped": 1, "left": 3}, {"filter": "model", "dropped": 0, "left": 3}],
        "rejected": [{"node": LIMA, "name": "lima", "reason": "offline", "detail": "last seen 90 s ago"}],
        "ranked": [
            candidate(BERLIN, "berlin", 1.2345, network=0.0123, decode=1.0, prefill=0.2222),
            candidate(OSLO, "oslo", 2.5, network=0.04, decode=2.4, prefill=0.06),
        ],
        "chosen": BERLIN,
        "outcome": "none",
        "attempts": [],
        "moves": [],
        "nearest_relaxations": [],
        **changes,
    }


def past(**changes: object) -> dict[str, Any]:
    """A match that was made."""
    made = {"match_id": "match_1", "dry_run": False, "outcome": "done", "streamed": True}
    return explanation(**{**made, **changes})


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
            "predicted_ttft_s": 0.1,
            "cached_tokens": 0,
            "price_usd": "0.01",
        }
    ],
)

PAST = past(
    attempts=[
        attempt(BERLIN, "berlin", outcome="timed_out", reason="no first token", ended_ms=1000.0),
        attempt(OSLO, "oslo", started_ms=1000.0, first_token_ms=1500.0, ended_ms=2000.0, tokens=42),
    ],
    chosen=OSLO,
)

ACCOUNT = {
    "id": "acc_1",
    "name": "ann",
    "email": "ann@example.org",
    "role": "user",
    "policy": None,
    "chain_address": None,
    "created_at": 1.0,
    "closed_at": None,
}


def api_key(key_id: str = "key_1", **changes: object) -> dict[str, Any]:
    return {
        "id": key_id,
        "account_id": "acc_1",
        "name": "app",
        "prefix": "sk-sw-a",
        "scopes": ["inference"],
        "policy": None,
        "budget": None,
        "requests_per_min": None,
        "tokens_per_min": None,
        "created_at": 1.0,
        "expires_at": None,
        "last_used_at": None,
        "revoked_at": None,
        **changes,
    }


CREDITS: dict[str, Any] = {
    "total_credits": 3,
    "total_usage": 0.00003,
    "balance_usd": "2.99997",
    "balance_nano": 2_999_970_000,
    "promo_usd": "0.99998",
    "promo_nano": 999_980_000,
    "promo_expires_at": None,
    "paid_usd": "1.99999",
    "paid_nano": 1_999_990_000,
    "reserved_usd": "0.25",
    "reserved_nano": 250_000_000,
    "granted_usd": "1",
    "granted_nano": 10**9,
    "deposited_usd": "2",
    "deposited_nano": 2 * 10**9,
    "expired_usd": "0",
    "expired_nano": 0,
}
TREASURY = {
    "balance_usd": "10",
    "balance_nano": 10**10,
    "daily_budget_usd": "2",
    "daily_budget_nano": 2 * 10**9,
    "redeemed_today_usd": "0",
    "redeemed_today_nano": 0,
}

FIRST_TOKEN_BOUNDS_S = [0.1, 0.5, 1.0]
NODE_TOTALS = {"nodes": {"online": 2, "offline": 1}, "gpus": 3, "vram_gb": 72, "jobs": 4, "tokens_per_s": 90}
PRICE_RANGE = {"low": "0.1", "median": "0.2", "high": "0.3"}
NETWORK_OVERVIEW = {
    "object": "network",
    "at": 100.0,
    "signup": "open",
    "billing": True,
    "chain": True,
    "development": False,
    "totals": {**NODE_TOTALS, "first_token_ms": 210},
    "regions": [],
    "classes": [],
    "models": [
        {
            "id": "m",
            "nodes": 2,
            "warm": 1,
            "measured": 1,
            "quantizations": [],
            "capabilities": [],
            "context_length": None,
            "prompt_usd_per_mtok": PRICE_RANGE,
            "completion_usd_per_mtok": PRICE_RANGE,
        }
    ],
}


def pulse_node(node_id: str, name: str, **changes: object) -> dict[str, Any]:
    counts = dict.fromkeys(("running", "queued", "tokens", "jobs_done", "jobs_failed"), 0)
    sensors = dict.fromkeys(("paused", "power_watts", "temperature_c", "utilisation"))
    return {"id": node_id, "name": name, "region": "eu", "slots": 4, "rtt_ms": 1.0, **counts, **sensors, **changes}


def a_pulse(at: float = 100.0, **changes: Any) -> dict[str, Any]:
    done = int(10 * (at - 100))
    model = {
        "id": "org/small-model",
        "nodes": 2,
        "warm": 2,
        "running": 4,
        "waiting": 1,
        "requests": {"done": done, "failed": 0},
        "prompt_tokens": 0,
        "completion_tokens": 50 * done,
        "first_token_counts": [0, done, 0, 0],
    }
    sensors = {"temperature_c": 71.0, "power_watts": 312.0, "utilisation": 0.97}
    berlin = pulse_node(BERLIN, "berlin", gpu="RTX 4090", state="busy", running=4, tokens=50 * done, **sensors)
    oslo = pulse_node(OSLO, "oslo", gpu="L40S", state="suspect", jobs_failed=3, slots=8)
    return {
        "object": "pulse",
        "at": at,
        "started_at": 1.0,
        "instance": "feed_a",
        "totals": NODE_TOTALS,
        "running": 4,
        "waiting": 1,
        "tokens_written": 55 * done,
        "errors": {"no_capacity": 2 * int(at - 100), "old": 7},
        "first_token_bounds_s": FIRST_TOKEN_BOUNDS_S,
        "models": [model],
        "busiest": [berlin],
        "troubled": [oslo],
        **changes,
    }
