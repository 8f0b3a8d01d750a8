"""The routes of providers over a market in memory: who may call them, what they refuse, what they reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from sparewatt.api.leases.providers import STATUS_NAMES
from sparewatt.core.ids import KeyId, NodeId
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.store.providers import ProviderStatus
from tests.unit.gateway.small_gateway import ADMIN, LENDER, OTHER, Client, bearer, key_row, make_services, running
from tests.unit.leasing.memory_market import KEY, NODE, OFFERED, MarketDatabase

TREASURER, STRANGER = "sk-sw-treasurer", "sk-sw-stranger"
"""Keys with every scope: of the lender's account, and of another."""
DOLLAR = 10**9
WALLET = "0x" + "7" * 40


@dataclass
class Caller:
    client: Client
    database: MarketDatabase

    async def get(self, path: str, key: str = LENDER) -> tuple[int, Any]:
        async with self.client.get(f"/v1{path}", headers=bearer(key)) as reply:
            return reply.status, await reply.json()

    async def post(self, path: str, body: object, key: str = TREASURER) -> tuple[int, Any]:
        async with self.client.post(f"/v1{path}", json=body, headers=bearer(key)) as reply:
            return reply.status, await reply.json()

    async def register(self) -> str:
        status, reply = await self.post("/providers", {"node": "attic"})
        assert status == 201
        return str(reply["provider"]["id"])


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    database, table = MarketDatabase(), NodeTable()
    table.connect(NODE, msgspec.structs.replace(OFFERED, name="attic"), now_s=1.0)
    services = make_services(table, database=database, development=True, chain_url="http://127.0.0.1:1")
    scopes = ("inference", "node", "admin")
    treasurer = replace(key_row("lender", TREASURER, *scopes), id=KeyId("key_treasurer"))
    services.keys.put([treasurer, key_row("stranger", STRANGER, *scopes)])
    database.holds.free_nano = 100 * DOLLAR
    loop = asyncio.get_running_loop()

    def send(node_id: NodeId, request: NodeKeyRequest) -> bool:
        signed = sign_node_key(request, key=KEY, offers_leases=True, wallet=None)
        loop.call_soon(services.node_keys.receive, node_id, signed)
        return True

    services.node_keys.send = send
    async with running(services) as client:
        yield Caller(client, database)


async def test_a_node_becomes_a_provider_with_a_bond(caller: Caller) -> None:
    status, made = await caller.post("/providers", {"node": "attic"})
    assert (status, made["changed"], made["request"]["kind"]) == (201, True, "register")
    provider = made["provider"]
    assert (provider["node"], provider["name"], provider["status"]) == (NODE, "attic", "active")
    assert (provider["held"], provider["offers_leases"], provider["bond_usd"]) == (True, True, "0")

    status, bonded = await caller.post(f"/providers/{provider['id']}/bond", {"usd": "2.5", "id": "b"})
    assert (status, bonded["provider"]["bond_usd"], bonded["provider"]["free_nano"]) == (201, "2.5", 2_500_000_000)
    status, begun = await caller.post("/providers/attic/unbond", {"usd": "1"})
    assert (status, begun["provider"]["free_usd"], begun["provider"]["unbonding_usd"]) == (201, "1.5", "1")
    status, paused = await caller.post(f"/providers/{NODE}/status", {"status": "maintenance"})
    assert (status, paused["provider"]["status"]) == (201, "maintenance")
    assert await caller.get("/providers") == (200, {"object": "list", "data": [paused["provider"]]})
    assert await caller.get("/providers/attic") == (200, paused["provider"])


async def test_what_changes_nothing_is_answered_with_200(caller: Caller) -> None:
    provider = await caller.register()
    assert (await caller.post("/providers", {"node": NODE}))[0] == 200
    assert (await caller.post(f"/providers/{provider}/status", {"status": "active"}))[0] == 200
    for expected in (201, 200):
        assert (await caller.post(f"/providers/{provider}/bond", {"usd": "1", "id": "x"}))[0] == expected
    status, refused = await caller.post(f"/providers/{provider}/bond", {"usd": "2", "id": "x"})
    assert (status, refused["error"]["code"]) == (409, "id_reused")


async def test_another_account_sees_and_does_nothing(caller: Caller) -> None:
    provider = await caller.register()
    assert (await caller.post("/providers", {"node": "attic"}, key=STRANGER))[0] == 403
    assert (await caller.post("/providers/wallet", {"node": "attic", "wallet": WALLET}, key=STRANGER))[0] == 403
    for act, body in (("bond", {"usd": "1"}), ("unbond", {"usd": "1"}), ("status", {"status": "left"})):
        for wanted in (provider, NODE, "attic"):
            status, reply = await caller.post(f"/providers/{wanted}/{act}", body, key=STRANGER)
            assert (status, reply["error"]["code"]) == (404, "provider_not_found")
    assert (await caller.get(f"/providers/{provider}", key=STRANGER))[0] == 404
    assert (await caller.get("/providers", key=STRANGER))[1]["data"] == []
    assert (await caller.get(f"/providers/{provider}", key=ADMIN))[0] == 200, "an operator sees it"
    assert (await caller.get("/providers?account=acc_lender", key=STRANGER))[0] == 403
    assert [each["id"] for each in (await caller.get("/providers?account=acc_lender", key=ADMIN))[1]["data"]] == [
        provider
    ]


async def test_an_operator_who_acts_for_another_owners_provider_is_told_whose_it_is(caller: Caller) -> None:
    provider = await caller.register()
    before = dict(caller.database.sent.rows)
    for act, body in (("bond", {"usd": "1"}), ("unbond", {"usd": "1"}), ("status", {"status": "left"})):
        for wanted in (provider, NODE, "attic"):
            status, reply = await caller.post(f"/providers/{wanted}/{act}", body, key=ADMIN)
            assert (status, reply["error"]["code"]) == (403, "not_owner")
            assert "acc_lender" in reply["error"]["message"]
    assert caller.database.sent.rows == before
    status, reply = await caller.post("/providers/cellar/bond", {"usd": "1"}, key=ADMIN)
    assert (status, reply["error"]["code"]) == (404, "provider_not_found")


async def test_money_needs_the_scope_of_money(caller: Caller) -> None:
    provider = await caller.register()
    for act in ("bond", "unbond"):
        assert (await caller.post(f"/providers/{provider}/{act}", {"usd": "1"}, key=LENDER))[0] == 403
    assert (await caller.post("/providers", {"node": "attic"}, key=LENDER))[0] == 200
    assert (await caller.get("/providers", key=OTHER))[0] == 403


@pytest.mark.parametrize(
    "body",
    [
        {"usd": "0"},
        {"usd": "-1"},
        {"usd": "1e400"},
        {"usd": "99999999999999"},
        {"usd": "0.0000001"},
        {"usd": "nan"},
        {"nano": -5},
        {"nano": 1},
        {"nano": 10**30},
        {"usd": "1", "nano": 10**9},
        {"usd": "1", "currency": "EUR"},
        {"usd": "1", "id": ""},
        {"usd": "1", "id": "x" * 101},
        {"usd": "1", "account": "acc_other"},
        {},
    ],
)
async def test_amounts_that_are_none_change_nothing(caller: Caller, body: dict[str, object]) -> None:
    provider = await caller.register()
    before = dict(caller.database.sent.rows)
    for act in ("bond", "unbond"):
        assert (await caller.post(f"/providers/{provider}/{act}", body))[0] == 400
    assert caller.database.sent.rows == before
    assert caller.database.holds.free_nano == 100 * DOLLAR


async def test_more_than_there_is_is_refused(caller: Caller) -> None:
    provider = await caller.register()
    status, reply = await caller.post(f"/providers/{provider}/bond", {"usd": "100.01"})
    assert (status, reply["error"]["code"]) == (402, "insufficient_credits")
    assert (await caller.post(f"/providers/{provider}/unbond", {"usd": "0.01"}))[0] == 422


@pytest.mark.parametrize("body", [{"status": "suspended"}, {"status": "registered"}, {"status": 2}, {}])
async def test_a_status_that_is_not_the_owners_to_set_is_refused(caller: Caller, body: dict[str, object]) -> None:
    provider = await caller.register()
    assert (await caller.post(f"/providers/{provider}/status", body))[0] == 400


async def test_a_wallet_gets_the_transaction_that_it_sends(caller: Caller) -> None:
    status, made = await caller.post("/providers/wallet", {"node": "attic", "wallet": WALLET})
    assert (status, made["chain_id"], made["sender"], made["value"]) == (200, 31337, WALLET, "0x0")
    assert made["data"].startswith("0x")
    assert caller.database.sent.rows == {}
    for wallet in ("0x12", "", WALLET + "0", 7):
        assert (await caller.post("/providers/wallet", {"node": "attic", "wallet": wallet}))[0] == 400


async def test_a_node_that_nobody_knows_is_not_registered(caller: Caller) -> None:
    assert (await caller.post("/providers", {"node": "cellar"}))[0] == 404
    assert (await caller.get("/providers/cellar"))[0] == 404


def test_every_status_of_the_contract_has_a_name() -> None:
    assert [STATUS_NAMES[ProviderStatus(number)] for number in (0, 2, 3, 4, 5)] == [
        "unregistered",
        "active",
        "maintenance",
        "suspended",
        "left",
    ]
