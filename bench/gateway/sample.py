"""One target under one workload, once: what the generator saw, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    scenario: str
    target: str
    round: int
    load: dict[str, Any]
    """As the generator printed it; empty where there was none."""
    cpu_s: float
    database_cpu_s: float = 0.0
    helper_cpu_s: float = 0.0
    """Of what stands behind the target on the other core: our nodes."""
    memory_bytes: int = 0
    settled: bool = True
    faults: list[str] = field(default_factory=list)
    """Why it does not count."""

    @property
    def overrun_ms(self) -> float:
        """For how long, at worst, the generator was kept from its core by something that is no part of this."""
        return float(self.load.get("overrun_ms", 0.0))
