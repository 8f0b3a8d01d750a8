"""/v1/leases over a market in memory: who may call it, what it refuses, what it replies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from sparewatt.core.ids import KeyId, NodeId
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.lease_offer import LeasePrice
from tests.unit.api.market.test_market import market_of
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, Client, bearer, key_row, make_services, running
from tests.unit.leasing.memory_market import OFFERED
from tests.unit.leasing.orders.memory_orders import OrderDatabase
from tests.unit.leasing.orders.samples import OFFER
from tests.unit.market.market_events import (
    ALICE,
    NODE_KEY,
    ORDER,
    OTHER_ORDER,
    accepted,
    an_event,
    created,
    deposited,
    lookup,
    registered,
    snapshot,
)

RENTER, STRANGER = "sk-sw-renter", "sk-sw-stranger"
DOLLAR = 10**9
BONDED = an_event("stake_registry.BondChanged", provider=ALICE, free=10_000_000, locked=0, unbonding=0)
EVENTS = [
    *registered(),
    BONDED,
    snapshot(1),
    lookup(),
    deposited(),
    accepted(),
    created(),
    lookup(OTHER_ORDER),
]
BODY = {"image": "me/train:1", "duration": "2h"}


@dataclass
class Caller:
    client: Client
    database: OrderDatabase

    async def get(self, path: str, key: str = RENTER) -> tuple[int, Any]:
        async with self.client.get(f"/v1/leases{path}", headers=bearer(key)) as reply:
            return reply.status, await reply.json()

    async def post(self, path: str, body: object, key: str = RENTER) -> tuple[int, Any]:
        async with self.client.post(f"/v1/leases{path}", json=body, headers=bearer(key)) as reply:
            return reply.status, await reply.json()

    async def refused(self, path: str, body: object, key: str = RENTER) -> tuple[int, str | None, str]:
        status, reply = await self.post(path, body, key)
        error = reply["error"]
        return status, error["param"], error["code"]


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    database, table = OrderDatabase(), NodeTable()
    offer = msgspec.structs.replace(OFFER, prices=(LeasePrice(1, 400_000),))
    specs = msgspec.structs.replace(OFFERED, name="attic", lease_offer=offer)
    table.connect(NodeId(NODE_KEY), specs, now_s=1.0)
    services = make_services(table, database=database, development=True, chain_url="http://127.0.0.1:1")
    services.keys.put(
        [
            replace(key_row("renter", RENTER, "lease"), id=KeyId("key_renter")),
            key_row("stranger", STRANGER, "lease"),
        ]
    )
    services.market = await market_of(EVENTS)
    database.holds.free_nano = 100 * DOLLAR
    async with running(services) as client:
        yield Caller(client, database)


async def test_a_quote_holds_and_sends_nothing(caller: Caller) -> None:
    status, quote = await caller.post("/dry-run", BODY)
    assert (status, quote["able"], quote["providers"]) == (200, 1, 1)
    assert (quote["max_hourly_usd"], quote["deposit_usd"]) == ("0.5", "1")
    assert [(offer["provider"], offer["name"]) for offer in quote["offers"]] == [(ALICE, "attic")]
    assert (caller.database.holds.held, caller.database.sent.rows) == ({}, {})


async def test_a_quote_tells_why_nobody_can(caller: Caller) -> None:
    _, quote = await caller.post("/dry-run", BODY | {"policy": {"max_hourly": "0.1"}})
    assert (quote["able"], quote["funnel"][-1]) == (0, {"filter": "max_hourly", "dropped": 1, "left": 0})
    assert quote["nearest_relaxations"] == ["max_hourly 0.1→0.4 adds 1 node"]


async def test_an_order_holds_credits_and_is_found_by_id_order_and_name(caller: Caller) -> None:
    caller.database.orders.order_ids = [OTHER_ORDER]
    status, made = await caller.post("", BODY | {"id": "mine", "name": "job"})
    assert (status, made["created"], made["id"], made["total_usd"]) == (201, True, "mine", "1")
    (lease,) = made["leases"]
    assert (lease["phase"], lease["order_id"], lease["max_hourly_usd"]) == ("open", OTHER_ORDER, "0.5")
    assert sum(nano for nano, _ in caller.database.holds.held.values()) == DOLLAR
    for wanted in (lease["id"], OTHER_ORDER, "job"):
        status, shown = await caller.get(f"/{wanted}")
        assert (status, shown["id"], shown["content"]["image"]) == (200, lease["id"], "me/train:1")
    assert (await caller.get(""))[1]["data"][0]["id"] == lease["id"]


async def test_contracts_of_another_release_are_named_instead_of_a_market_without_providers(caller: Caller) -> None:
    caller.database.sent.trouble = "The contracts are of another release."
    for path in ("/dry-run", ""):
        assert (await caller.refused(path, BODY))[::2] == (503, "contracts_outdated")
    assert (caller.database.holds.held, caller.database.orders.rows) == ({}, [])


async def test_a_repeated_id_orders_nothing_and_another_order_under_it_is_refused(caller: Caller) -> None:
    await caller.post("", BODY | {"id": "mine"})
    status, again = await caller.post("", BODY | {"id": "mine"})
    assert (status, again["created"], len(caller.database.orders.rows)) == (200, False, 1)
    assert await caller.refused("", BODY | {"id": "mine", "duration": "3h"}) == (409, "id", "id_reused")
    assert len(caller.database.holds.held) == 1


async def test_a_batch_has_one_name_and_many_ids(caller: Caller) -> None:
    caller.database.purse.on_chain_micro = 1_500_000
    _, made = await caller.post("", BODY | {"count": 3, "name": "job"})
    assert [lease["name"] for lease in made["leases"]] == ["job"] * 3
    assert len({lease["id"] for lease in made["leases"]}) == 3
    held = [nano for nano, _ in caller.database.holds.held.values()]
    assert sorted(held) == [DOLLAR // 2, DOLLAR]  # what stands on the chain pays for one and a half


async def test_too_few_credits_for_all_hold_none(caller: Caller) -> None:
    caller.database.holds.free_nano = 2 * DOLLAR
    assert (await caller.refused("", BODY | {"count": 3}))[0] == 402
    assert (caller.database.holds.held, caller.database.holds.free_nano) == ({}, 2 * DOLLAR)
    assert caller.database.sent.rows == {}


async def test_a_full_account_holds_nothing(caller: Caller) -> None:
    caller.database.orders.is_full = True
    assert (await caller.refused("", BODY))[0] == 429
    assert caller.database.holds.held == {}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"image": "a\nb"}, "image"),
        ({"count": 10**6}, "count"),
        ({"max_spend": "0.01"}, "max_spend"),
        ({"policy": {"min_throughput": 5}}, "min_throughput"),
        ({"policy": {"sort": "price"}}, "sort"),
        ({"policy": {"gpu": ["h100"]}}, "policy.max_hourly"),
        ({"id": "x" * 101}, "id"),
        ({"duraton": "2h"}, "duraton"),
    ],
)
async def test_a_bad_order_is_refused_by_its_field_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    assert (await caller.refused("", BODY | fields))[:2] == (400, param)
    assert (caller.database.holds.held, caller.database.sent.rows) == ({}, {})


async def test_a_body_that_is_no_object_or_too_large_is_refused(caller: Caller) -> None:
    assert (await caller.refused("", [BODY]))[0] == 400
    assert (await caller.refused("", BODY | {"env": {"A": "x" * 140_000}}))[0] == 413
    many = {f"A{number}": "" for number in range(1_000)}
    assert (await caller.refused("", BODY | {"env": many}))[:2] == (400, "env")


async def test_only_the_lease_scope_rents(caller: Caller) -> None:
    for key in (USER, LENDER):
        assert (await caller.post("", BODY, key))[0] == 403
        assert (await caller.get("", key))[0] == 403
    assert (await caller.post("", BODY, ADMIN))[0] == 201


async def test_another_account_sees_and_ends_nothing(caller: Caller) -> None:
    caller.database.orders.order_ids = [ORDER]
    _, made = await caller.post("", BODY | {"name": "job"})
    for key in (STRANGER, ADMIN):
        for wanted in (made["leases"][0]["id"], ORDER, "job"):
            assert (await caller.get(f"/{wanted}", key))[0] == 404
            assert await caller.refused(f"/{wanted}/close", {}, key) == (404, None, "lease_not_found")
        assert (await caller.get("", key))[1]["data"] == []


@pytest.mark.parametrize("wanted", ["%00", "%F0%9F%92%A9%0A", "a" * 200, "..%2F..", "%ED%A0%80"])
async def test_what_is_no_id_is_not_found(caller: Caller, wanted: str) -> None:
    status, _ = await caller.get(f"/{wanted}")
    assert status == 404


async def test_a_lease_is_closed_and_an_order_without_one_is_not(caller: Caller) -> None:
    caller.database.orders.order_ids = [ORDER, OTHER_ORDER]
    _, matched = await caller.post("", BODY | {"name": "a"})
    _, waiting = await caller.post("", BODY | {"name": "b"})
    assert (matched["leases"][0]["phase"], waiting["leases"][0]["phase"]) == ("matched", "open")
    assert (await caller.refused("/b/close", {}))[0] == 422
    assert (await caller.refused("/a/cancel", {}))[0] == 422
    assert (await caller.get("/a"))[1]["order"]["lease"]["provider"] == ALICE


async def test_an_order_that_is_not_on_the_chain_yet_cannot_be_ended(caller: Caller) -> None:
    _, made = await caller.post("", BODY | {"name": "job"})
    assert made["leases"][0]["phase"] == "sending"
    assert (await caller.refused("/job/cancel", {}))[0] == 422


async def test_a_failed_order_tells_why(caller: Caller) -> None:
    _, made = await caller.post("", BODY | {"name": "job"})
    caller.database.orders.fail(made["leases"][0]["id"], "the contract says NO_SNAPSHOT.")
    shown = (await caller.get("/job"))[1]
    assert (shown["phase"], shown["problem"]) == ("failed", "the contract says NO_SNAPSHOT.")


async def test_the_list_comes_in_pages(caller: Caller) -> None:
    await caller.post("", BODY | {"count": 3})
    first = (await caller.get("?limit=2"))[1]
    rest = (await caller.get(f"?limit=2&after={first['next']}"))[1]
    ids = [each["id"] for each in first["data"] + rest["data"]]
    assert (len(ids), len(set(ids)), rest["next"]) == (3, 3, None)
    assert (await caller.get("?after=x"))[0] == 400


async def test_the_reply_may_wait_for_the_orders_id(caller: Caller) -> None:
    caller.database.orders.order_ids = [OTHER_ORDER]
    status, made = await caller.post("?wait_ms=1000", BODY)
    assert (status, made["leases"][0]["order_id"]) == (201, OTHER_ORDER)
    assert (await caller.post("?wait_ms=99999", BODY))[0] == 400
