"""A real chain (anvil) and a database for each test, with the echo deployed and everything put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil import Anvil
from sparewatt.localnet.anvil_binary import find_anvil
from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.chain.setting import Setting, open_setting
from tests.integration.databases import fresh_database


@pytest.fixture(scope="session")
def anvil_binary() -> Path:
    try:
        return asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")


@pytest.fixture
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with fresh_database(server) as dsn:
        yield dsn


@pytest.fixture
async def anvil(tmp_path: Path, anvil_binary: Path) -> AsyncIterator[Anvil]:
    chain = Anvil(tmp_path / "chain", binary=anvil_binary, port=free_port(), log_path=tmp_path / "anvil.log")
    await chain.start()
    try:
        yield chain
    finally:
        await chain.stop()


@pytest.fixture
async def setting(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Setting]:
    async with open_setting(anvil.url, dsn, tmp_path / "chain") as opened:
        yield opened
