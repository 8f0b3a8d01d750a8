"""A model that only makes vectors is measured by what it reads."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.measurement.embedding_speed import is_embedding_only, measure_embedding_model
from sparewatt.testing import EngineSettings, running_engine
from tests.unit.node.rig import MODEL, rigged


@pytest.mark.parametrize(
    ("says", "is_so"),
    [(None, False), ((), False), (("embeddings",), True), (("embeddings", "chat"), False), (("chat",), False)],
)
def test_who_only_reads_says_so(says: tuple[str, ...] | None, *, is_so: bool) -> None:
    assert is_embedding_only(says) is is_so


async def test_reading_is_timed() -> None:
    async with (
        running_engine(EngineSettings(models=(MODEL,), prefill_tps=2000.0)) as url,
        aiohttp.ClientSession() as session,
    ):
        speed = await measure_embedding_model(
            OpenAIBackend(url, session), MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1)
        )
    assert 0 < speed.prefill_tps <= 2000.0
    assert speed.ttft_s > 0


async def test_a_server_that_cannot_is_not_measured() -> None:
    async with running_engine(EngineSettings(models=("other",))) as url, aiohttp.ClientSession() as session:
        with pytest.raises(BadBackendReply):
            await measure_embedding_model(
                OpenAIBackend(url, session), MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1)
            )


async def test_a_node_reports_what_its_server_says_it_can_do(tmp_path: Path) -> None:
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), capabilities=("embeddings",))) as rig:
        await rig.inventory.refresh()
        (model,) = rig.inventory.specs.models
    assert model.capabilities == ("embeddings",)
    assert model.measured is not None
