"""The chain's process of a local network in this process, and one that kills itself on the way to new contracts.

`python -m … URL DSN FOLDER CHECKPOINT`; a checkpoint is a step of the start-over, or `step N` of the deployment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparewatt.accounts.custody import SECRET_BYTES
from sparewatt.chain import deployment, process
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import RECORD_FILE
from sparewatt.chain.process import ChainWorker
from sparewatt.chain.restart import start_over_if_outdated
from sparewatt.chain.settings import ChainSettings
from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.store.database import Database
from tests.integration.chain.crashing import crash_at

READY_S, POLL_S = 60.0, 0.05


def settings_for(url: str, dsn: str, folder: Path, *, test_money: bool = True) -> ChainSettings:
    return ChainSettings(
        chain_url=url,
        database_url=dsn,
        data=folder,
        deploy=True,
        mine=True,
        test_money=test_money,
        depth=2,
        poll_s=POLL_S,
        secret="00" * SECRET_BYTES,
        ready_file=folder / "ready",
    )


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while not await holds():  # noqa: ASYNC110 (it is the database that changes)
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(what) from None


@asynccontextmanager
async def chain_process(settings: ChainSettings) -> AsyncIterator[Database]:
    """As `sparewatt chain run`, from when it is ready."""
    client, stop = ChainClient(settings.chain_url), asyncio.Event()
    database = await Database.connect(settings.database_url)
    assert settings.ready_file is not None
    settings.ready_file.unlink(missing_ok=True)
    ready = settings.ready_file
    worker = ChainWorker(settings, client, database, clock=SystemClock(), rng=SystemRng())
    working = asyncio.create_task(worker.work(stop))

    async def is_ready() -> bool:
        if working.done():
            working.result()
        return ready.exists()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "BLOCK_S", POLL_S)
            await until(is_ready, "the chain's process is not ready")
            yield database
    finally:
        stop.set()
        await asyncio.wait([working])
        await client.close()
        await database.close()


def age(folder: Path, contract: str = "settlement") -> None:
    """Make the record that of an older release, which had another contract of this name."""
    path = folder / RECORD_FILE
    record = json.loads(path.read_bytes())
    record["contracts"][contract]["made_of"] = "0x" + "0" * 64
    path.write_text(json.dumps(record))


async def start_and_crash(url: str, dsn: str, folder: str, checkpoint: str) -> None:
    steps = iter(range(1, 100))
    send = deployment.send_directly

    async def counted(*args: object, **named: object) -> object:
        crash_at(checkpoint, f"step {next(steps)}")
        return await send(*args, **named)  # type: ignore[arg-type]

    async def watched(database: Database, data: Path, *, wanted: list[str]) -> bool:
        return await start_over_if_outdated(
            database, data, wanted=wanted, checkpoint=lambda reached: crash_at(checkpoint, reached)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment, "send_directly", counted)
        patch.setattr(process, "start_over_if_outdated", watched)
        async with chain_process(settings_for(url, dsn, Path(folder))):
            pass


if __name__ == "__main__":
    asyncio.run(start_and_crash(*sys.argv[1:]))
