"""What a price per hour means per token: the hour, divided by what the machine does in it at one stated load.

The load is the same for every node: a prompt of 1,000 tokens, and up to eight answers at once with contexts of 1,000
tokens. A node that runs so earns its price per hour. Nodes make their prices with these functions, and gateways check
and explain them.
"""

from __future__ import annotations

from sparewatt.core.money import Nano, per_mtok
from sparewatt.protocol.link.node_report import PRICE_NANO_MAX, PriceBasis, Speed

REFERENCE_TOKENS = 1000
"""Of a prompt, and of each answer's context."""
REFERENCE_JOBS_MAX = 8
PRICE_DIGITS = 2
"""Significant: a speed is not known better than that."""
RATE_MIN, RATE_MAX = 1e-3, 1e7


def reference_basis(speed: Speed, *, slots: int) -> PriceBasis:
    """A server that was not measured with several answers at once counts with one."""
    jobs = max(1, min(slots, REFERENCE_JOBS_MAX)) if speed.step_per_job_s is not None else 1
    return PriceBasis(
        prompt_tps=_rate(REFERENCE_TOKENS / speed.prefill_s(REFERENCE_TOKENS)),
        completion_tps=_rate(jobs / speed.step_s(jobs, jobs * REFERENCE_TOKENS)),
        jobs=jobs,
    )


def reference_price(hourly_nano: int, tokens_per_s: float) -> Nano:
    """Per million tokens."""
    exact = min(PRICE_NANO_MAX, per_mtok(hourly_nano, tokens_per_s))
    return Nano(int(float(f"{exact:.{PRICE_DIGITS}g}")))


def _rate(value: float) -> float:
    return float(f"{min(RATE_MAX, max(RATE_MIN, value)):.4g}")
