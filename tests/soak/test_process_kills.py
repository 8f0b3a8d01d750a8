"""`sparewatt chain run` killed after every write of every way that money takes.

Run by `make soak`; writes docs/measurements/chain-kills.md. PROCESS_KILLS_STEP=4 takes every fourth write only.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.chain import money_ways as ways
from tests.integration.chain.killed_network import KilledNetwork, Way, killed_network
from tests.integration.databases import migrated_database

STEP = int(os.environ.get("PROCESS_KILLS_STEP", "1"))
REORG_EVERY = 3
WRITES_MAX = 200
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "chain-kills.md"


@dataclass(frozen=True)
class KilledWay:
    name: str
    way: Way
    before: tuple[Way, ...] = ()
    """What must have happened so that there is something to do, without a kill. All have the same reference."""
    after: tuple[Way, ...] = ()
    """What clears up behind it, likewise."""
    is_owners: bool = False
    """Of the provider's owner: others are new accounts, since one may place 60 orders in an hour."""


# Chain time runs ahead with unbondings and exits, so orders come before them.
WAYS = (
    KilledWay("deposit", ways.deposit),
    KilledWay("lease deposit", ways.order, (ways.deposit,), (ways.refund, ways.withdraw)),
    KilledWay("refund", ways.refund, (ways.deposit, ways.order), (ways.withdraw,)),
    KilledWay("withdraw", ways.withdraw, (ways.deposit, ways.order, ways.refund)),
    KilledWay("bond", ways.bond, (ways.deposit,), is_owners=True),
    KilledWay("unbond", ways.unbond, (ways.deposit, ways.bond), is_owners=True),
    KilledWay("exit", ways.leave, (ways.deposit,)),
)


@pytest.fixture(scope="module")
def network(
    server: EmbeddedPostgres, anvil_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledNetwork]:
    dsn = asyncio.run(migrated_database(server))
    with killed_network(tmp_path_factory.mktemp("killed"), anvil_binary, dsn) as started:
        yield started


def kill_everywhere(network: KilledNetwork, killed: KilledWay) -> str:
    """A row of the report."""
    kills = reorgs = 0
    for number in range(1, WRITES_MAX, STEP):
        reference = f"{killed.name.replace(' ', '-')}-{number}"
        for each in killed.before:
            network.take(each, reference, kill_at=None)
        reorg = int(number % REORG_EVERY == 0)
        if network.take(killed.way, reference, kill_at=number, reorg=reorg) is None:
            break
        kills, reorgs = kills + 1, reorgs + reorg
        network.check()
        for each in killed.after:
            network.take(each, reference, kill_at=None)
    else:
        raise AssertionError(f"{killed.name} has no end")
    network.rebuild_index()
    network.check()
    return f"| {killed.name} | {kills} | {reorgs} | 0 |"


def test_money_is_kept_to_the_unit_after_a_kill_between_any_two_writes(network: KilledNetwork) -> None:
    rows, owner, started = [], (network.person, network.deposits), time.monotonic()
    for number, killed in enumerate(WAYS):
        if killed.is_owners:
            network.person, network.deposits = owner
            network.paid_out_before = network.paid_out()
        else:
            network.change_person(f"person{number}@example.org")
        rows.append(kill_everywhere(network, killed))
        write_report(rows, minutes=(time.monotonic() - started) / 60)


def write_report(rows: list[str], *, minutes: float) -> None:
    text = f"""# The chain's process, killed between any two writes

Made by `make soak` (tests/soak/test_process_kills.py). `sparewatt chain run` is a real process; between it and
Postgres, and between it and the chain's node, are proxies. They count what it writes: a statement that changed a row, a
commit, a transaction or a block that the chain took. For each way that money takes, the process is killed (SIGKILL)
after its first write, started again until the way is at its end, then killed after its second write, and so on, until a
way ends without a kill. A gateway is asked over HTTP meanwhile. After a kill in three the chain also loses its last
block, with the transactions in it.

After every kill `ledger audit` agrees with the contracts to the unit, and credits, escrow, bonds, what contracts owe,
tokens and what was paid out are together what came in. At the end of each way the index is dropped and rebuilt, and
audited again.

| way | kills | with a reorg | audits that failed |
| --- | ---: | ---: | ---: |
{chr(10).join(rows)}

Every {"write" if STEP == 1 else f"write in {STEP}"} was tried; it took {minutes:.0f} minutes.
"""
    REPORT.write_text(text)
