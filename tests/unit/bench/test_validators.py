"""The table of idle validators: figures of the kernel, and medians of the starts."""

from __future__ import annotations

import os

from bench.validators import Idle, Start, memory_mb, report


def test_memory_of_a_process_is_read() -> None:
    own = os.getpid()
    assert 5 < memory_mb(own, "Pss") <= memory_mb(own, "Rss") < 10_000


def test_the_table_has_medians_of_starts_and_every_validator() -> None:
    starts = [Start(4.0, each, 20.0) for each in (6.0, 30.0, 7.0)]
    idle = [Idle(100.0, 0.4, 52.0, 36.0, 19), Idle(100.0, 1.5, 61.0, 40.0, 19)]
    text = report(starts, [Start(3.5), Start(3.9)], idle)
    assert "| from then to the first snapshot on the chain | ≤ 15 s | 7.0 s |" in text
    assert "`--no-chain` | | 3.7 s |" in text
    assert "| 1 | 0.40% | 1% | 52 MB | 36 MB | 60 MB | 19 |" in text
    assert "| 2 | 1.50% | 1% | 61 MB | 40 MB | 60 MB | 19 |" in text
