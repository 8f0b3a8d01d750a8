"""A real chain (anvil) and a real Postgres for each test, with the echo deployed and everything put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.store.database import Database
from sparewatt.supervisor.anvil import Anvil
from sparewatt.supervisor.anvil_binary import find_anvil
from sparewatt.supervisor.postgres import EmbeddedPostgres
from sparewatt.supervisor.spawn import free_port
from tests.integration.chain.setting import Setting, open_setting

EMPTY = """TRUNCATE chain_index, chain_blocks, chain_events, chain_readers, chain_senders, chain_outbox, chain_signed,
chain_requests
RESTART IDENTITY"""


@pytest.fixture(scope="session")
def anvil_binary() -> Path:
    try:
        return asyncio.run(find_anvil(tell=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")


@pytest.fixture(scope="session")
def postgres_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all tests of the chain; each finds its tables empty."""
    with asyncio.Runner() as runner:
        server = EmbeddedPostgres(tmp_path_factory.mktemp("chain") / "pg")
        runner.run(server.start())
        yield server.dsn
        runner.run(server.stop())


@pytest.fixture
async def dsn(postgres_dsn: str) -> str:
    await (await Database.connect(postgres_dsn)).close()
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(EMPTY)
    await connection.close()
    return postgres_dsn


@pytest.fixture
async def anvil(tmp_path: Path, anvil_binary: Path) -> AsyncIterator[Anvil]:
    chain = Anvil(tmp_path / "chain", binary=anvil_binary, port=free_port(), log_path=tmp_path / "anvil.log")
    async with chain:
        yield chain


@pytest.fixture
async def setting(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Setting]:
    async with open_setting(anvil.url, dsn, tmp_path / "chain") as opened:
        yield opened
