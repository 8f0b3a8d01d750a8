"""Both scans over a hundred thousand random tables. Run by `make soak`; writes docs/measurements/scans.md."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numpy as np

from sparewatt.inference.matcher import kernel
from tests.unit.inference.scans import LARGE_SHARE, compare_scans

TABLES = 100_000
SEED = 1
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "scans.md"


def test_both_scans_agree_on_a_hundred_thousand_tables() -> None:
    assert kernel.ready(), "the package has no compiled scan for this platform, or a stale one: run `make scan`"
    chance = np.random.default_rng(SEED)
    began_s = time.monotonic()
    ranked = [compare_scans(chance) for _ in range(TABLES)]
    REPORT.write_text(report(ranked, seconds=time.monotonic() - began_s))


def report(ranked: list[int], *, seconds: float) -> str:
    return f"""# The compiled scan against the numpy scan

Made by `make soak` (tests/soak/test_scans.py), seed {SEED}, Python {platform.python_version()}, numpy {np.__version__}.

{TABLES:,} random tables (1 to 39 nodes, {LARGE_SHARE:.0%} of them 600 to 2,499; a third with all
numbers equal, a third with two values per number, so that ties are everywhere; ids that share their first 128 bits),
with random jobs, weights, places left out and places named. Each table must give the same best 8 (one in ten: 64), the
same cost, parts and predictions to the bit, and the same reason for every node that was stopped.

| tables | with somebody ranked | ranked in all | different | time |
| --- | --- | --- | --- | --- |
| {len(ranked):,} | {sum(n > 0 for n in ranked):,} | {sum(ranked):,} | 0 | {seconds:.0f} s |
"""
