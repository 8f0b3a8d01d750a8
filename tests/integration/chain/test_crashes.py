"""A process that is killed between any two steps of the outbox leaves what the next one needs, and nothing twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.setting import Setting

ROOT = Path(__file__).parents[3]
CHECKPOINTS = ["nonce taken", "signed", "sent", "noted as sent", "noted as mined", "finished"]
CRASH_S = 30.0


async def crash(anvil: Anvil, dsn: str, checkpoint: str) -> int | None:
    argv = ("-m", "tests.integration.chain.crashing", anvil.url, dsn, str(anvil._folder), checkpoint)
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, cwd=ROOT)
    try:
        async with asyncio.timeout(CRASH_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
async def test_a_process_killed_between_two_steps_neither_loses_nor_repeats(
    setting: Setting, anvil: Anvil, dsn: str, checkpoint: str
) -> None:
    ids = [await setting.enqueue(number) for number in range(3)]
    assert await crash(anvil, dsn, checkpoint) == -signal.SIGKILL
    await setting.until_final(*ids)
    assert sorted(await setting.noted_on_chain()) == sorted(await setting.noted_in_index()) == [0, 1, 2]
    assert await setting.store.count_outbox() == {"final": 3}
