"""The named policies. Each turns (job, columns) into parts; their signed sum is the cost, and the lowest cost wins.

`fast`, `balanced` and `economy` differ in what a dollar is worth. `neuralgrid` is the published formula of NeuralGrid,
verbatim, kept for parity and as a baseline: it rewards oversized cards and a $0 price, and ignores load, so it is never
the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.inference.matcher.entries import Floats
from sparewatt.inference.matcher.formula import PARTS, JobNumbers
from sparewatt.inference.matcher.model import HealthRules, MatchJob
from sparewatt.inference.matcher.scan import balanced_parts, neuralgrid_parts

JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Policy:
    """`usd_weight` is None for a policy that scores instead of predicting seconds."""

    name: str
    usd_weight: float | None
    part_names: tuple[str, ...]
    jitter: float

    @property
    def unit(self) -> str:
        return "score" if self.usd_weight is None else "s"

    @property
    def sign(self) -> float:
        return -1.0 if self.usd_weight is None else 1.0

    def parts(
        self, job: MatchJob, data: Floats, *, strain: float, now_s: float, rules: HealthRules
    ) -> tuple[Floats, ...]:
        if self.usd_weight is None:
            return neuralgrid_parts(job, data)
        numbers = JobNumbers(float(job.prompt_tokens), float(job.output_tokens), strain, self.usd_weight)
        return balanced_parts(numbers, data, now_s=now_s, rules=rules)


FAST = Policy("fast", 0.0, PARTS, JITTER)
BALANCED = Policy("balanced", 1e4, PARTS, JITTER)
ECONOMY = Policy("economy", 4e4, PARTS, JITTER)
NEURALGRID = Policy("neuralgrid", None, ("vram", "compute", "cost"), 0.0)

POLICIES = {policy.name: policy for policy in (FAST, BALANCED, ECONOMY, NEURALGRID)}
