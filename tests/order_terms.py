"""The terms of a usual order: one GPU of any kind for a day, at three dollars an hour at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparewatt.protocol.contracts.match import OrderTerms

_USUAL = OrderTerms(
    countries=0,
    tiers=0,
    gpu_models=0,
    min_gpu_class=0,
    min_vram_gb=0,
    gpu_units=1,
    compliance=0,
    min_uptime_ppm=0,
    min_reputation_ppm=0,
    max_price_uusd=3_000_000,
    latency_value=100,
    rtt_row=bytes(range(32)),
    payment_rule=0,
    commit_ms=800,
    reveal_ms=400,
    start_s=30,
    standin_s=20,
    down_s=10,
    reclaim_s=100,
    empty_grace_s=600,
    duration_s=86_400,
    only=(),
    ignore=(),
)


def order_terms(**changes: Any) -> OrderTerms:
    return replace(_USUAL, **changes)
