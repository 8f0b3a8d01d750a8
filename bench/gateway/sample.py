"""One measurement of one target under one workload: the generator's figures, processor time and memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    scenario: str
    target: str
    round: int
    load: dict[str, Any]
    """As printed by the load generator; empty without one."""
    cpu_s: float
    database_cpu_s: float = 0.0
    helper_cpu_s: float = 0.0
    """Of the target's helpers on the other core: our nodes."""
    memory_bytes: int = 0
    settled: bool = True
    faults: list[str] = field(default_factory=list)
    """Why it does not count."""

    @property
    def overrun_ms(self) -> float:
        """The longest time for which other programs kept the generator from its core."""
        return float(self.load.get("overrun_ms", 0.0))
