"""A local chain that was killed has lost its older states: the chain's process makes the block that it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparewatt.chain.process import ChainWorker, read_saved_block
from sparewatt.chain.settings import ChainSettings
from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.core.rng import seeded
from sparewatt.testing.clocks import ManualClock


class Chain:
    """The parts of a client and of a database that are asked before anything else."""

    def __init__(self, error: Exception, *, mines: bool = True) -> None:
        self.error, self.mines = error, mines
        self.requests: list[str] = []

    @property
    def chain_requests(self) -> Chain:
        return self

    def inserted(self) -> None:
        raise self.error

    async def request(self, method: str) -> None:
        self.requests.append(method)
        if not self.mines:
            raise ChainRefused("not that either")


@pytest.mark.parametrize(
    ("error", "mine", "requests"),
    [
        (ChainRefused("no state of block 126"), True, ["evm_mine"]),
        (ChainRefused("no state of block 126"), False, []),
        (ChainUnavailable("it is away"), True, []),
    ],
)
async def test_a_state_that_is_lost_is_left_behind(
    tmp_path: Path, error: Exception, *, mine: bool, requests: list[str]
) -> None:
    for mines in (True, False):
        chain = Chain(error, mines=mines)
        anything: Any = chain
        settings = ChainSettings("http://127.0.0.1:1", "", tmp_path, mine=mine)
        worker = ChainWorker(settings, anything, anything, clock=ManualClock(), rng=seeded(1))
        await worker.work(asyncio.Event())
        assert chain.requests == requests


def test_a_chain_whose_file_cannot_be_read_has_saved_nothing(tmp_path: Path) -> None:
    file = tmp_path / "saved-block"
    assert read_saved_block(None) is None, "a chain whose blocks survive their node"
    assert read_saved_block(file) == -1
    file.write_bytes(b"17\n")
    assert read_saved_block(file) == 17
    file.write_bytes(b"")
    assert read_saved_block(file) == -1
