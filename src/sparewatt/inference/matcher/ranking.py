"""The named policies. The lowest cost wins.

`fast`, `balanced` and `economy` differ in what a dollar is worth; a request may move that, and what single parts count
for. `neuralgrid` is the published formula of NeuralGrid, verbatim, kept for parity and as a baseline: it rewards
oversized cards and a $0 price, and ignores load, so it is never the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.match_query import AS_THEY_ARE
from sparewatt.inference.matcher.model import AS_USUAL, Preference, Sort

JITTER = 0.2
EMPHASIS = 4.0
"""How much more a part counts that the request sorts by. The rest still breaks ties and keeps herds apart."""
UNTIL_FIRST_TOKEN = ("network", "queue", "cold_load", "memory", "prefill")


@dataclass(frozen=True, slots=True)
class Ranking:
    """`usd_weight` is None for a policy that scores instead of predicting seconds."""

    name: str
    usd_weight: float | None
    part_names: tuple[str, ...]
    jitter: float

    @property
    def unit(self) -> str:
        return "score" if self.usd_weight is None else "s"

    def weighed(self, preference: Preference) -> tuple[float, tuple[float, ...]]:
        """What a dollar is worth, and what each part counts for. A policy that scores prefers nothing."""
        if preference is AS_USUAL or self.usd_weight is None:
            return self.usd_weight or 0.0, AS_THEY_ARE
        return preferred(preference, self.usd_weight)


FAST = Ranking("fast", 0.0, PARTS, JITTER)
BALANCED = Ranking("balanced", 1e4, PARTS, JITTER)
ECONOMY = Ranking("economy", 4e4, PARTS, JITTER)
NEURALGRID = Ranking("neuralgrid", None, ("vram", "compute", "cost"), 0.0)

RANKINGS = {ranking.name: ranking for ranking in (FAST, BALANCED, ECONOMY, NEURALGRID)}


@lru_cache(maxsize=1024)
def preferred(preference: Preference, usd_weight: float) -> tuple[float, tuple[float, ...]]:
    """What a dollar is worth to the request, and what each part counts for."""
    usd, emphasised = _sorted_by(preference.sort, usd_weight)
    weights = dict.fromkeys(PARTS, 1.0) | dict.fromkeys(emphasised, EMPHASIS)
    for name, weight in preference.weights:
        weights[name] *= weight
    return usd, tuple(weights.values())


def _sorted_by(sort: Sort | None, usd_weight: float) -> tuple[float, tuple[str, ...]]:
    match sort:
        case None:
            return usd_weight, ()
        case "price":
            return ECONOMY.usd_weight or 0.0, ()
        case "throughput":
            return FAST.usd_weight or 0.0, ("decode",)
        case "latency":
            return FAST.usd_weight or 0.0, UNTIL_FIRST_TOKEN
        case _:
            assert_never(sort)
