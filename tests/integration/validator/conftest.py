"""A chain with the contracts, two providers with bonds, and four validators that joined by themselves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil import Anvil
from sparewatt.localnet.anvil_binary import find_anvil
from sparewatt.machine.spawn import free_port
from tests.integration.chain.market_scene import ALICE, BOB, USD, open_market
from tests.integration.chain.test_market_view import deploy
from tests.integration.validator.validator_network import ValidatorNetwork, ValidatorProcess

VALIDATORS = 4
BOND = 200 * USD
"""Enough for every order of a file: a stand-in's bond backs each lease that it may still claim."""
FAULTY_MODULE = "tests.integration.validator.faulty_validator"
PATIENT_MODULE = "tests.integration.validator.long_rounds"
"""Of the honest ones beside a faulty one."""


@pytest.fixture(scope="session")
def anvil_binary() -> Path:
    try:
        return asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def network(tmp_path_factory: pytest.TempPathFactory, anvil_binary: Path) -> AsyncIterator[ValidatorNetwork]:
    async with open_network(tmp_path_factory.mktemp("network"), anvil_binary) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def faulty_network(
    tmp_path_factory: pytest.TempPathFactory, anvil_binary: Path
) -> AsyncIterator[ValidatorNetwork]:
    """Its last validator takes its faults from a file; the others leave all proofs to the test."""
    folder, options = tmp_path_factory.mktemp("faulty"), ("--no-challenge",)
    async with open_network(folder, anvil_binary, options=options, faulty=VALIDATORS - 1) as opened:
        yield opened


@asynccontextmanager
async def open_network(
    folder: Path, anvil_binary: Path, *, options: Sequence[str] = (), faulty: int | None = None
) -> AsyncIterator[ValidatorNetwork]:
    usual = "sparewatt" if faulty is None else PATIENT_MODULE
    chain = Anvil(folder / "chain", binary=anvil_binary, port=free_port(), log_path=folder / "anvil.log")
    await chain.start()
    validators: list[ValidatorProcess] = []
    try:
        record = await deploy(chain.url, folder / "deployed")
        async with open_market(chain.url, record) as market, aiohttp.ClientSession() as session:
            for provider in (ALICE, BOB):
                await market.add_provider(provider, bond=BOND)
            for number in range(VALIDATORS):
                validators.append(
                    ValidatorProcess(
                        folder / f"v{number}",
                        chain.url,
                        folder / "deployed" / "contracts.json",
                        ("--join-stake", "1000", *options),
                        FAULTY_MODULE if number == faulty else usual,
                    )
                )
                await validators[-1].start()
            for validator in validators:
                await validator.ready()
            network = ValidatorNetwork(market, validators, session)
            await network.until_weighed()
            yield network
    finally:
        for validator in validators:
            if validator.process is not None:
                await validator.stop(signal.SIGKILL)
        await chain.stop()
