"""Two thousand jobs with one in twenty going wrong: none lost, none charged twice, every book in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.storm_reckoning import storm

JOBS = 2_000


def test_nothing_is_lost_and_nobody_is_charged_twice(server: EmbeddedPostgres, tmp_path: Path) -> None:
    reckoning = asyncio.run(storm(server, tmp_path, jobs=JOBS, seed=1))
    assert reckoning.wrong == {}
    assert sum(reckoning.states.values()) == JOBS
    assert reckoning.counts["gateways killed"] > 0
    assert reckoning.counts["replies lost"] > 0
