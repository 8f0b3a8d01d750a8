"""Every behaviour is played once for all tests of this folder: at the same time where that may be, on one gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.databases import migrated_database
from tests.integration.hostile_nodes.behaviour import SMALL
from tests.integration.hostile_nodes.catalogue import BEHAVIOURS
from tests.integration.hostile_nodes.honest import AttackedNetwork, attacked_network
from tests.integration.hostile_nodes.judging import Findings
from tests.integration.hostile_nodes.running import running


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[AttackedNetwork]:
    url = asyncio.run(migrated_database(server))
    with attacked_network(tmp_path_factory.mktemp("attacked"), database_url=url) as found:
        yield found


@pytest.fixture(scope="module")
def played(attacked: AttackedNetwork) -> Mapping[str, Findings]:
    """By name. Small counts: the soak has those of the issue."""

    async def play() -> list[Findings]:
        async with running(attacked, SMALL) as runner:
            return await runner.play(BEHAVIOURS)

    return {findings.behaviour.name: findings for findings in asyncio.run(play())}
