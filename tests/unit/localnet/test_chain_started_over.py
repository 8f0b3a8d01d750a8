"""What `up` tells its user about the chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from sparewatt.chain import process
from sparewatt.core.rng import seeded
from sparewatt.localnet import chain
from sparewatt.localnet.chain import ChainPlan, LocalChain
from sparewatt.localnet.setup_commands import SetupRunner
from sparewatt.machine.children import ChildSpec, Supervisor
from sparewatt.testing.clocks import ManualClock

RECORD = {"contracts": {"token": {"address": "0x1"}}}


def write_files(ready_file: Path, ready: bytes) -> None:
    ready_file.write_bytes(ready)
    (ready_file.parent / "contracts.json").write_text(json.dumps(RECORD))


class Children:
    """A chain's process that is ready at once, and writes this into its ready file."""

    def __init__(self, ready: bytes) -> None:
        self._ready = ready

    async def start(self, spec: ChildSpec) -> None:
        (ready_file,) = (word.removeprefix("--ready-file=") for word in spec.argv if word.startswith("--ready-file="))
        write_files(Path(ready_file), self._ready)


async def told_by(data: Path, ready: bytes) -> list[str]:
    told: list[str] = []
    local = LocalChain(
        plan=ChainPlan("http://127.0.0.1:1", None),
        data=data,
        dsn="",
        children=cast(Supervisor, Children(ready)),
        setup=None,
        setups=SetupRunner(),
        clock=ManualClock(),
        rng=seeded(1),
        notify=told.append,
    )
    async with local.in_background() as starting:
        deployed: Any = await starting
    assert deployed.contracts == {"token": "0x1"}
    return told


@pytest.fixture(autouse=True)
def web3_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_is_web3_installed", lambda: True)


async def test_a_chain_that_was_started_over_is_told_in_one_line(tmp_path: Path) -> None:
    told = await told_by(tmp_path, process.STARTED_OVER)
    assert [line for line in told if "started over" in line] == told[:1]
    assert "Credits are kept" in told[0]


async def test_a_chain_that_goes_on_is_only_up(tmp_path: Path) -> None:
    assert await told_by(tmp_path, b"ready\n") == ["The chain is up at http://127.0.0.1:1."]
