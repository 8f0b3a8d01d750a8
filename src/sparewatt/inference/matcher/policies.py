"""The named policies. Each turns (job, node) into parts whose sum is the cost; the lowest cost wins.

`balanced` is the default. `neuralgrid` is the published formula of NeuralGrid, verbatim, kept for parity and as a
baseline: it rewards oversized cards and a $0 price, and ignores load, so it is never the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher import terms
from sparewatt.inference.matcher.filters import Situation, vram_needed_bytes
from sparewatt.inference.matcher.health import is_suspect
from sparewatt.inference.matcher.model import MatchJob, NodeRow

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Policy:
    """`sign` turns a part into cost: +1 where less is better, -1 for scores. `jitter` spreads near ties."""

    name: str
    unit: str
    part_names: tuple[str, ...]
    parts_of: Callable[[MatchJob, NodeRow, Situation], tuple[float, ...]]
    sign: float
    jitter: float


def balanced_parts(job: MatchJob, row: NodeRow, at: Situation) -> tuple[float, ...]:
    model = row.models[job.model]
    return (
        terms.network_s(row),
        terms.queue_s(job, row, model),
        terms.cold_load_s(model),
        terms.prefill_s(job, model),
        terms.decode_s(job, row, model),
        terms.price_s(job, model),
        terms.SUSPECT_S if is_suspect(row, now_s=at.now_s, rules=at.rules) else 0.0,
    )


def neuralgrid_terms(
    *, online: bool, vram_gb: float, min_vram_gb: float, tflops: float, hourly_rate: float
) -> tuple[float, float, float]:
    """The terms of NeuralGrid's scoreNode as published; the score is their sum, -1 when offline or too small."""
    if not online or vram_gb < min_vram_gb:
        return -1.0, 0.0, 0.0
    return 0.3 * (vram_gb / min_vram_gb), 0.5 * (tflops / 100), 0.2 * (1 / (hourly_rate + 0.01))


def neuralgrid_parts(job: MatchJob, row: NodeRow, _: Situation) -> tuple[float, ...]:
    return neuralgrid_terms(
        online=row.connected,
        vram_gb=row.specs.vram_bytes / GIB,
        min_vram_gb=max(1, vram_needed_bytes(job, row.models[job.model])) / GIB,
        tflops=row.specs.tflops,
        hourly_rate=row.specs.hourly_price_nano / NANO_PER_USD,
    )


BALANCED = Policy(
    name="balanced",
    unit="s",
    part_names=("network", "queue", "cold_load", "prefill", "decode", "price", "suspect"),
    parts_of=balanced_parts,
    sign=1.0,
    jitter=0.2,
)

NEURALGRID = Policy(
    name="neuralgrid",
    unit="score",
    part_names=("vram", "compute", "cost"),
    parts_of=neuralgrid_parts,
    sign=-1.0,
    jitter=0.0,
)

POLICIES = {policy.name: policy for policy in (BALANCED, NEURALGRID)}
