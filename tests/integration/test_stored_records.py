"""What nodes made of their jobs, in a real Postgres: gateways add to the same days, and old days go."""

from __future__ import annotations

import datetime as dt

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.check_counts import CheckCount
from sparewatt.store.database import Database
from sparewatt.store.node_results import KEPT_DAYS, NodeResultCount
from sparewatt.store.node_tiers import NodeTier
from sparewatt.trust.tiers import Tier
from tests.integration.databases import fresh_database
from tests.unit.protocol.reports import SPECS

OPERATOR = AccountId("acc_network")
NODE, OTHER = NodeId("0xa"), NodeId("0xb")


async def test_gateways_add_to_the_same_days_and_old_ones_are_forgotten(server: EmbeddedPostgres) -> None:
    today = dt.datetime.now(tz=dt.UTC).date()
    old = today - dt.timedelta(days=KEPT_DAYS + 1)
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.node_results
        await store.add([NodeResultCount(NODE, today, "done", 3, 100.0), NodeResultCount(OTHER, today, "done", 1, 1.0)])
        await store.add(
            [NodeResultCount(NODE, today, "done", 2, 90.0), NodeResultCount(NODE, old, "link_lost", 1, 10.0)]
        )
        known = await store.counts_of(NODE)
        assert known == [
            NodeResultCount(NODE, old, "link_lost", 1, 10.0),
            NodeResultCount(NODE, today, "done", 5, 100.0),
        ]
        await store.forget_old()
        assert await store.counts_of(NODE) == [NodeResultCount(NODE, today, "done", 5, 100.0)]
        await database.close()


async def test_checks_are_counted_by_node_day_and_kind(server: EmbeddedPostgres) -> None:
    today = dt.datetime.now(tz=dt.UTC).date()
    old = today - dt.timedelta(days=KEPT_DAYS + 1)
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.check_counts
        await store.add([CheckCount(NODE, today, "rerun", 3, 0, 100.0), CheckCount(OTHER, today, "probe", 0, 1, 1.0)])
        await store.add([CheckCount(NODE, today, "rerun", 1, 1, 90.0), CheckCount(NODE, old, "schema", 1, 0, 10.0)])
        counted = CheckCount(NODE, today, "rerun", 4, 1, 100.0)
        assert await store.counts_of(NODE) == [CheckCount(NODE, old, "schema", 1, 0, 10.0), counted]
        await store.forget_old()
        assert await store.counts_of(NODE) == [counted]
        assert await store.counts_since(today) == [counted, CheckCount(OTHER, today, "probe", 0, 1, 1.0)]
        await database.close()


async def test_a_tier_that_stays_keeps_its_time(server: EmbeddedPostgres) -> None:
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.node_tiers
        await store.put({NODE: Tier.VERIFIED, OTHER: Tier.COMMUNITY}, unix_s=100.0)
        await store.put({NODE: Tier.VERIFIED, OTHER: Tier.VERIFIED}, unix_s=200.0)
        assert await store.all() == {NODE: NodeTier(Tier.VERIFIED, 100.0), OTHER: NodeTier(Tier.VERIFIED, 200.0)}
        await database.close()


async def test_a_node_that_never_served_is_forgotten_and_its_key_may_join_again(server: EmbeddedPostgres) -> None:
    today = dt.datetime.now(tz=dt.UTC).date()
    served, idle, here, new = (NodeId(f"0x{number:040}") for number in range(1, 5))
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        for number, node_id in enumerate((served, idle, here, new)):
            hashed = bytes([number]) * 32
            await database.insert_join_token(hashed, account_id=OPERATOR, created_by=None, life_s=60)
            assert await database.exchange_join_token(hashed, node_id) == "accepted"
        await database.save_nodes([(served, SPECS, 100.0), (idle, SPECS, 100.0), (here, SPECS, 100.0)])
        await database.node_results.add(
            [NodeResultCount(served, today, "done", 1, 1.0), NodeResultCount(idle, today, "timed_out", 1, 1.0)]
        )
        assert {node.id: node.has_served for node in await database.list_nodes()} == {
            served: True,
            idle: False,
            here: False,
        }
        await database.note_nodes_seen([here])
        await database.forget_unserved_nodes(after_s=3600.0)
        assert [node.id for node in await database.list_nodes()] == [served, here]
        assert set(await database.forgotten_among([served, idle, here])) == {idle}
        owner = await database.find_node_owner(idle)
        assert owner is not None
        assert owner.account_id == OPERATOR
        await database.save_nodes([(idle, SPECS, 200.0)])
        assert await database.forgotten_among([idle]) == []
        await database.close()


async def test_a_node_in_a_lease_is_known_by_its_order_and_forgotten_when_it_ends(server: EmbeddedPostgres) -> None:
    leased, plain, order = NodeId(f"0x{1:040}"), NodeId(f"0x{2:040}"), "0x" + "a1" * 32
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        for number, (node_id, lease_order) in enumerate(((leased, order), (plain, None))):
            hashed = bytes([number]) * 32
            await database.insert_join_token(
                hashed, account_id=OPERATOR, created_by=None, life_s=60, lease_order=lease_order
            )
            assert await database.exchange_join_token(hashed, node_id) == "accepted"
        await database.save_nodes([(leased, SPECS, 100.0), (plain, SPECS, 100.0)])
        owners = [await database.find_node_owner(node_id) for node_id in (leased, plain)]
        assert [owner and owner.lease_order for owner in owners] == [order, None]
        assert await database.nodes_of_leases() == [(leased, order)]
        await database.forget_nodes([leased])
        assert [node.id for node in await database.list_nodes()] == [plain]
        assert await database.nodes_of_leases() == [], "it was not seen for an hour: nobody has it in memory"
        await database.close()
