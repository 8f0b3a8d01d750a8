"""/v1/leases/{lease}/pause, resume, top-up, extend, update, scale, events, secrets: who may, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sparewatt.core.ids import KeyId, NodeId
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.lease_offer import LeasePrice
from sparewatt.store.chain_requests import ChainRequestState
from sparewatt.store.lease_acts import LeaseActStore
from sparewatt.store.request_params import ChainRequestKind, LeaseParams
from tests.unit.api.leases.test_leases import BODY, BONDED, DOLLAR, RENTER, STRANGER, Caller
from tests.unit.api.market.test_market import market_of
from tests.unit.gateway.small_gateway import key_row, make_services, running
from tests.unit.leasing.memory_market import OFFERED
from tests.unit.leasing.orders.memory_orders import OrderDatabase
from tests.unit.leasing.orders.samples import OFFER
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    NODE_KEY,
    ORDER,
    accepted,
    confirmed,
    created,
    deposited,
    lookup,
    of_lease,
    registered,
    snapshot,
    stream_started,
)

END_S = 4_000_000_000
EVENTS = [*registered(), BONDED, snapshot(1), lookup(), deposited(), accepted(), created(), confirmed()]
RUNNING = [*EVENTS, stream_started(end_at=END_S)]
PAUSED = [*RUNNING, of_lease("LeasePaused", reason=1)]


class Secrets(LeaseActStore):
    """What of it the API needs, in memory."""

    def __init__(self) -> None:
        self.sealed: dict[tuple[str, str], str] = {}

    async def save_secret(self, order_id: str, attempt: int, *, provider: str, name: str, sealed: str) -> None:
        if (order_id, attempt) == (ORDER, 0):
            self.sealed[provider, name] = sealed

    async def find_details(self, order_id: str, details_hash: str) -> str | None:
        return None

    async def secrets_of(self, order_id: str, attempt: int, *, provider: str) -> dict[str, str]:
        is_known = (order_id, attempt) == (ORDER, 0)
        return {name: sealed for (to, name), sealed in self.sealed.items() if is_known and to == provider}


def sealed_of(caller: Caller) -> dict[tuple[str, str], str]:
    store = caller.database.lease_acts
    assert isinstance(store, Secrets)
    return store.sealed


async def calling(events: list[Any]) -> AsyncIterator[Caller]:
    database, table = OrderDatabase(), NodeTable()
    database.lease_acts = Secrets()
    offer = msgspec.structs.replace(OFFER, prices=(LeasePrice(1, 2_000_000),), longest_s=2**32 - 1)
    table.connect(NodeId(NODE_KEY), msgspec.structs.replace(OFFERED, lease_offer=offer), now_s=1.0)
    services = make_services(table, database=database, development=True, chain_url="http://127.0.0.1:1")
    keys = [replace(key_row("renter", RENTER, "lease"), id=KeyId("key_renter")), key_row("s", STRANGER, "lease")]
    services.keys.put(keys)
    services.market = await market_of(events)
    database.holds.free_nano = 100 * DOLLAR
    database.orders.order_ids = [ORDER]
    async with running(services) as client:
        caller = Caller(client, database)
        status, _ = await caller.post("", BODY | {"name": "job", "max_spend": 5, "id": "mine"})
        assert status == 201
        yield caller


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async for each in calling(RUNNING):
        yield each


@pytest.fixture
async def paused() -> AsyncIterator[Caller]:
    async for each in calling(PAUSED):
        yield each


PATHS = {
    "pause": {},
    "resume": {},
    "reopen": {},
    "top-up": {"usd": "1"},
    "extend": {"duration": "1h"},
    "update": {"duration": "1h"},
    "secrets": {"attempt": 0, "sealed": {}},
}


@pytest.mark.parametrize(("act", "body"), PATHS.items())
async def test_another_accounts_lease_is_not_found(caller: Caller, act: str, body: dict[str, Any]) -> None:
    for wanted in ("job", ORDER):
        assert (await caller.refused(f"/{wanted}/{act}", body, STRANGER))[0] == 404
    assert (await caller.get("/job/events", STRANGER))[0] == 404
    assert (await caller.get("/job/secrets", STRANGER))[0] == 404
    assert (await caller.refused("/job/scale", {"count": 0}, STRANGER))[0] == 404


async def test_a_running_lease_shows_what_it_costs(caller: Caller) -> None:
    money = (await caller.get("/job"))[1]["money"]
    assert (money["hourly_usd"], money["deposited_usd"]) == ("2", "5")
    assert float(money["spent_usd"]) + float(money["left_usd"]) == 5


@pytest.mark.parametrize(
    ("act", "body", "param"),
    [
        ("top-up", {"usd": "-1"}, "usd"),
        ("top-up", {"usd": 0}, "usd"),
        ("top-up", {"usd": "1e99"}, "usd"),
        ("top-up", {"usd": "0.0000001"}, "usd"),
        ("top-up", {}, None),
        ("extend", {"duration": "soon"}, "duration"),
        ("extend", {"duration": ""}, "duration"),
        ("extend", {"duration": "1h", "max_spend": "x"}, "max_spend"),
        ("update", {}, "hourly_usd"),
        ("update", {"hourly_usd": "99"}, "hourly_usd"),
        ("scale", {"count": -1}, "count"),
        ("scale", {"count": 17}, "count"),
        ("pause", {"id": "x" * 101}, "id"),
        ("pause", {"unknown": 1}, None),
    ],
)
async def test_bad_input_is_refused_by_its_field_and_changes_nothing(
    caller: Caller, act: str, body: dict[str, Any], param: str | None
) -> None:
    before = dict(caller.database.sent.rows)
    status, named, _ = await caller.refused(f"/job/{act}", body)
    assert (status, named if param else None) == (400, param)
    assert caller.database.sent.rows == before


async def test_the_cap_of_the_order_is_kept_by_top_ups_and_extensions(caller: Caller) -> None:
    before = dict(caller.database.sent.rows)
    assert await caller.refused("/job/top-up", {"usd": "0.01"}) == (422, "max_spend", "max_spend_reached")
    assert (await caller.refused("/job/top-up", {"usd": "1", "max_spend": "5.99"}))[2] == "max_spend_reached"
    assert caller.database.sent.rows == before


async def test_only_what_fits_its_state_is_asked_of_the_chain(caller: Caller, paused: Caller) -> None:
    assert (await caller.refused("/job/resume", {}))[0] == 422
    assert (await caller.refused("/job/reopen", {}))[0] == 422
    assert (await paused.refused("/job/pause", {}))[0] == 422
    assert (await paused.refused("/job/extend", {"duration": "1h"}))[0] == 422
    for each in (caller, paused):
        assert {row.kind for row in each.database.sent.rows.values()} == {ChainRequestKind.ORDER}


async def test_a_repeated_id_tells_the_outcome_of_the_first_request(paused: Caller) -> None:
    """A pause that was done: the lease cannot be paused again, and the answer is the same."""
    rows = paused.database.sent.rows
    (order,) = rows.values()
    request_id = f"pause:{order.account_id}:again"
    rows[request_id] = replace(
        order,
        id=request_id,
        kind=ChainRequestKind.PAUSE,
        micro=0,
        params=LeaseParams(ORDER),
        state=ChainRequestState.DONE,
    )
    status, reply = await paused.post("/job/pause", {"id": "again"})
    assert (status, reply["request"]["id"], reply["request"]["state"]) == (200, request_id, "done")


async def test_a_scale_is_planned_without_being_done(caller: Caller) -> None:
    status, plan = await caller.post("/job/scale", {"count": 0, "dry_run": True})
    assert (status, plan["done"], len(plan["ended"])) == (200, False, 1)
    assert (await caller.refused("/job/scale", {"count": 2}))[2] == "max_spend_reached"
    status, plan = await caller.post("/job/scale", {"count": 3, "max_spend": "4", "dry_run": True})
    assert (status, plan["to_order"], plan["deposit_usd"]) == (200, 2, "2")
    assert len(caller.database.orders.rows) == 1


async def test_more_leases_are_ordered_as_the_first_one_was_and_once(caller: Caller) -> None:
    body = {"count": 2, "max_spend": "4", "id": "more"}
    status, made = await caller.post("/job/scale", body)
    assert (status, [each["name"] for each in made["ordered"]]) == (200, ["job"])
    first, second = caller.database.orders.rows
    assert first.params is not None
    assert second.params is not None
    assert (second.spec_hash, second.params.terms) == (first.spec_hash, first.params.terms)
    assert second.max_spend_micro == 4_000_000
    assert len((await caller.post("/job/scale", body))[1]["ordered"]) == 1
    assert len(caller.database.orders.rows) == 2
    assert (await caller.refused("/job/scale", body | {"count": 3}))[2] == "id_reused"


async def sealing(caller: Caller, sealed: dict[str, Any], attempt: int = 0) -> tuple[int, Any]:
    caller.database.orders.rows = [replace(row, secrets=("A", "B")) for row in caller.database.orders.rows]
    return await caller.post("/job/secrets", {"attempt": attempt, "sealed": sealed})


async def test_sealed_secrets_are_stored_for_candidates_only(caller: Caller) -> None:
    status, reply = await sealing(caller, {ALICE: {"A": "0xab"}, BOB: {"A": "0xcd"}})
    assert (status, reply["candidates"], reply["missing"]) == (200, [ALICE, BOB], ["B"])
    assert sealed_of(caller) == {(ALICE, "A"): "0xab", (BOB, "A"): "0xcd"}
    assert (await caller.get("/job"))[1]["missing_secrets"] == ["B"]


@pytest.mark.parametrize(
    "sealed",
    [
        {"0x" + "9" * 40: {"A": "0xab"}},
        {ALICE: {"C": "0xab"}},
        {ALICE: {"A": "plain"}},
        {ALICE: {"A": "0x"}},
        {ALICE: {"A": "0x" + "ab" * 60_000, "B": "0x" + "ab" * 60_000}},
        {ALICE: {"A": "0xab"}, BOB: {"A": "zz"}},
    ],
)
async def test_secrets_of_another_form_are_refused_whole(caller: Caller, sealed: dict[str, Any]) -> None:
    status, reply = await sealing(caller, sealed)
    assert (status, sealed_of(caller)) == (400, {})
    assert "plain" not in str(reply["error"]["message"])


async def test_secrets_for_another_auction_are_refused(caller: Caller) -> None:
    assert (await sealing(caller, {ALICE: {"A": "0xab"}}, attempt=1))[0] == 422
