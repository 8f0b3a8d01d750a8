"""What nodes drew while they worked, in a real Postgres: added up by day, read as a mean over a span."""

from __future__ import annotations

import datetime as dt

from sparewatt.core.ids import NETWORK_ACCOUNT, NodeId
from sparewatt.store.database import Database
from sparewatt.store.power import DailyEnergy
from tests.integration.money.samples import NOON_S

NODE, OTHER, STRANGER = (NodeId("0x" + digit * 40) for digit in "123")
TODAY = dt.datetime.fromtimestamp(NOON_S, tz=dt.UTC).date()
DAY_S = 86_400.0


async def register(database: Database, *nodes: NodeId) -> None:
    for number, node in enumerate(nodes):
        hashed = bytes([number]) * 32
        await database.insert_join_token(hashed, account_id=NETWORK_ACCOUNT, created_by=None, life_s=60)
        assert await database.exchange_join_token(hashed, node) == "accepted"


async def test_gateways_add_to_the_same_day_and_a_span_has_one_mean(database: Database) -> None:
    await register(database, NODE, OTHER)
    yesterday = TODAY - dt.timedelta(days=1)
    await database.power.add([DailyEnergy(NODE, TODAY, 1000.0, 10.0), DailyEnergy(OTHER, TODAY, 50.0, 1.0)])
    await database.power.add([DailyEnergy(NODE, TODAY, 3000.0, 10.0), DailyEnergy(NODE, yesterday, 1000.0, 5.0)])

    found = await database.power.mean_power_of([NODE, OTHER, STRANGER], from_unix_s=NOON_S, to_unix_s=NOON_S)
    assert {node: (mean.watts, mean.working_s) for node, mean in found.items()} == {
        NODE: (200.0, 20.0),
        OTHER: (50.0, 1.0),
    }
    both = await database.power.mean_power_of([NODE], from_unix_s=NOON_S - DAY_S, to_unix_s=NOON_S)
    assert (both[NODE].watts, both[NODE].working_s) == (200.0, 25.0)
    assert await database.power.mean_power_of([NODE], from_unix_s=NOON_S + DAY_S, to_unix_s=NOON_S + 2 * DAY_S) == {}


async def test_a_node_that_nobody_knows_is_left_out_and_what_is_old_is_forgotten(database: Database) -> None:
    await register(database, NODE)
    old = dt.datetime.now(tz=dt.UTC).date() - dt.timedelta(days=900)
    await database.power.add([DailyEnergy(STRANGER, TODAY, 1.0, 1.0), DailyEnergy(NODE, old, 1.0, 1.0)])
    await database.power.forget_old()
    assert await database.power.mean_power_of([NODE, STRANGER], from_unix_s=0.0, to_unix_s=NOON_S) == {}
