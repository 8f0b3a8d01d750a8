"""`sparewatt chain run` killed in each way that money takes, once with a reorg: the books agree with the chain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.chain import money_ways as ways
from tests.integration.chain.killed_network import KilledNetwork, Way, killed_network
from tests.integration.databases import migrated_database

SEED = 1
WRITES_MIN = 13
"""The shortest way has this many at least, so each kill comes before its end."""


@pytest.fixture(scope="module")
def network(
    server: EmbeddedPostgres, anvil_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledNetwork]:
    dsn = asyncio.run(migrated_database(server))
    with killed_network(tmp_path_factory.mktemp("killed"), anvil_binary, dsn) as started:
        yield started


def test_money_is_kept_to_the_unit_though_the_chain_s_process_is_killed_in_every_way_it_takes(
    network: KilledNetwork,
) -> None:
    rng, lease = random.Random(SEED), "lease"  # noqa: S311 (repeatable on purpose)
    walk: list[tuple[Way, str]] = [
        (ways.deposit, "in"),
        (ways.order, lease),
        (ways.refund, lease),
        (ways.withdraw, "back"),
        (ways.bond, "bond"),
        (ways.unbond, "unbond"),
        (ways.leave, "out"),
    ]
    for way, reference in walk:
        reorg = 1 if way is ways.order else 0
        assert network.take(way, reference, kill_at=rng.randint(1, WRITES_MIN), reorg=reorg), "nothing was killed"
        network.check()
    assert network.chain.starts == len(walk) + 1
    network.rebuild_index()
    network.check()
