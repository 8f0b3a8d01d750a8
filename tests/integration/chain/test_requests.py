"""Chain requests of many kinds and accounts by several keys: each ends once and in its account's order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace as with_changes
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from sparewatt.core.errors import IdReused, InsufficientCredits, InvalidField, RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.leasing import lease_requests
from sparewatt.ledger.deposit_adapters import deposit_request
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain import OutboxState
from sparewatt.store.chain_requests import ChainRequestState
from sparewatt.store.request_params import ChainRequestKind, ReopenParams
from tests.integration.chain.killed_lives import killed_process
from tests.integration.chain.requesting import SENDERS, Requesting, open_requesting
from tests.integration.chain.setting import OPERATOR
from tests.integration.chain.single_order import order_one
from tests.integration.chain.stepped_chain import DOLLAR, DOLLAR_MICRO, TERMS

ACCOUNTS, KILLS, CHAOS_S = 10, 8, 120.0
DONE, FAILED = ChainRequestState.DONE, ChainRequestState.FAILED
NOWHERE = "0x" + "77" * 32
OPERATOR_FRIEND = SigningKey(bytes(31) + b"\x55")
"""Anyone who ends an auction that is over."""


@pytest.fixture
async def requesting(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Requesting]:
    async with open_requesting(anvil.url, dsn, tmp_path / "chain") as opened:
        await opened.post_snapshot()
        yield opened


async def deposit(requesting: Requesting, account: AccountId, reference: str, *, dollars: int = 1) -> str:
    address = await requesting.address_of(account)
    new = deposit_request(account, address=address, reference=reference, nano=Nano(dollars * DOLLAR))
    assert await requesting.database.chain_requests.insert(new)
    return new.id


async def execute(dsn: str, statement: str, *values: object) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement, *values)
    await connection.close()


# fifty at once


async def ask_of_many(requesting: Requesting) -> dict[AccountId, list[str]]:
    """Of each account, in this order: one that must fail, a deposit, an order, a deposit, an order."""
    asked: dict[AccountId, list[str]] = {}
    for number in range(ACCOUNTS):
        account = await requesting.make_account(number, promo=10 * DOLLAR)
        cancel = await requesting.leases.act(account, ChainRequestKind.CANCEL, NOWHERE, reference="a")
        asked[account] = [
            cancel.id,
            await deposit(requesting, account, "b", dollars=2),
            await requesting.order(account, "c"),
            await deposit(requesting, account, "d", dollars=3),
            await requesting.order(account, "e", deposit_micro=2 * DOLLAR_MICRO),
        ]
    return asked


async def live_through_kills(anvil: Anvil, dsn: str) -> None:
    async with (
        asyncio.timeout(CHAOS_S),
        killed_process("tests.integration.chain.requesting", anvil.url, dsn, anvil._folder) as kill,
    ):
        await kill(1, KILLS)


async def test_fifty_requests_over_a_stuck_key_and_kills_end_once_and_in_order(
    requesting: Requesting, anvil: Anvil, dsn: str
) -> None:
    """The first key has used a nonce that the chain never saw: what it sends is not mined until the gap is filled."""
    await execute(dsn, "INSERT INTO chain_senders (address, next_nonce) VALUES ($1, 1)", SENDERS[0].address)
    asked = await ask_of_many(requesting)
    await live_through_kills(anvil, dsn)
    rows = {row.id: row for row in await requesting.until_ended([each for ids in asked.values() for each in ids])}
    await requesting.follower.catch_up()
    events = await requesting.events("settlement.Deposited", "deployment_order.PROVIDER_LOOKUP")
    assert len(events) == 4 * ACCOUNTS
    for account, ids in asked.items():
        address = await requesting.address_of(account)
        ended = [rows[each] for each in ids]
        assert [row.state for row in ended] == [FAILED, DONE, DONE, DONE, DONE]
        mine = [event for event in events if address in {event.args.get("account"), event.args.get("renter")}]
        assert ["0x" + event.tx_hash.hex() for event in mine] == [row.tx for row in ended[1:]]
        assert sum(await requesting.balances(account)) == (10 + 2 + 3 - 1 - 2) * DOLLAR
        assert await requesting.tokens_at(address) == 0  # the faucet gave each amount once
        assert [rows[each].result.get("order_id") for each in (ids[2], ids[4])] == [
            event.args["order_id"] for event in mine if event.event == "PROVIDER_LOOKUP"
        ]
    await check_senders(requesting)


async def check_senders(requesting: Requesting) -> None:
    """All three keys have sent, and every nonce that they used is on the chain."""
    used = [await requesting.client.next_nonce(key.address) for key in (*SENDERS, OPERATOR)]
    assert all(used), used
    left = await requesting.database.chain.count_outbox()
    assert set(left) <= {OutboxState.FINAL.value, OutboxState.REFUSED.value, OutboxState.REVERTED.value}


# one that is stuck


async def test_a_key_without_gas_holds_up_its_own_request_only(requesting: Requesting, dsn: str) -> None:
    """Its transaction is in the pool when gas begins to cost something, and it has nothing to pay more with."""
    accounts = [await requesting.make_account(number) for number in range(4)]
    await requesting.client.request("evm_setAutomine", False)
    stuck = await deposit(requesting, accounts[0], "stuck")

    async def is_sent() -> bool:
        await requesting.worker.step()
        await requesting.sender.step()
        return await requesting.client.has_transaction(await newest_hash(dsn))

    await is_sent()
    assert await is_sent()
    poor = await sender_of(dsn, stuck)
    for key in (*SENDERS, OPERATOR):
        await requesting.client.request("anvil_setBalance", key.address, hex(0 if key.address == poor else 10**21))
    await requesting.client.request("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    await requesting.client.request("evm_mine")
    others = [await deposit(requesting, account, "other") for account in accounts[1:]]
    assert {row.state for row in await requesting.until_ended(others)} == {DONE}
    (held_up,) = await requesting.rows([stuck])
    assert held_up.state is ChainRequestState.DECIDED
    await requesting.client.request("anvil_setBalance", poor, hex(10**21))
    assert [row.state for row in await requesting.until_ended([stuck])] == [DONE]
    assert [(await requesting.balances(account))[0] for account in accounts] == [DOLLAR] * 4


async def newest_hash(dsn: str) -> bytes:
    connection = await asyncpg.connect(dsn)
    found = await connection.fetchval("SELECT tx_hash FROM chain_signed ORDER BY outbox_id DESC, number DESC LIMIT 1")
    await connection.close()
    return bytes(found or b"")


async def sender_of(dsn: str, request_id: str) -> str:
    connection = await asyncpg.connect(dsn)
    found = await connection.fetch("SELECT DISTINCT sender FROM chain_outbox WHERE request_id = $1", request_id)
    await connection.close()
    assert len(found) == 1  # the calls of a request stay with one key
    return str(found[0]["sender"])


async def test_waiting_calls_leave_a_key_that_is_not_ours_any_more(requesting: Requesting, dsn: str) -> None:
    account = await requesting.make_account(1)
    request = await deposit(requesting, account, "a")
    await requesting.worker.step()
    await execute(dsn, "UPDATE chain_outbox SET sender = $1", "0x" + "99" * 20)
    assert [row.state for row in await requesting.until_ended([request])] == [DONE]
    assert await sender_of(dsn, request) in {key.address for key in (*SENDERS, OPERATOR)}


# orders and leases


async def test_an_order_is_paid_by_credits_reopened_topped_up_and_cancelled(requesting: Requesting) -> None:
    account = await requesting.make_account(1, promo=10 * DOLLAR)
    address = await requesting.address_of(account)
    (order,) = await requesting.until_ended([await requesting.order(account, "o")])
    assert order.state is DONE
    order_id = order.result["order_id"]
    top_up = await requesting.leases.top_up(account, order_id, micro=2 * DOLLAR_MICRO, reference="t")
    await requesting.until_ended([top_up.id])
    assert await requesting.balances(account) == (0, 7 * DOLLAR)
    await requesting.pass_time(61)
    expire = requesting.contracts["deployment_order"].encode_call("expire_attempt", bytes.fromhex(order_id[2:]))
    await requesting.send(expire, OPERATOR_FRIEND)
    reopen = await requesting.leases.reopen(account, ReopenParams(order_id, TERMS), reference="r")
    cancel = await requesting.leases.act(account, ChainRequestKind.CANCEL, order_id, reference="x")
    ended = await requesting.until_ended([top_up.id, reopen.id, cancel.id])
    assert [(row.state, row.reason) for row in ended] == [(DONE, None)] * 3
    lookups = await requesting.events("deployment_order.PROVIDER_LOOKUP")
    assert [event.args["attempt"] for event in lookups] == [0, 1]
    assert await requesting.database.pockets.payable_micro(address) == 3 * DOLLAR_MICRO
    again = await requesting.until_ended([await requesting.order(account, "again", deposit_micro=3 * DOLLAR_MICRO)])
    assert again[0].state is DONE  # paid by what the escrow owed: no credits were needed
    assert await requesting.balances(account) == (0, 7 * DOLLAR)
    assert await requesting.tokens_at(address) == 0


async def test_an_order_that_the_contract_refuses_gives_the_credits_back(requesting: Requesting) -> None:
    account = await requesting.make_account(1, promo=10 * DOLLAR)
    asked = await requesting.order_params()
    refused = replace(asked, terms=with_changes(TERMS, commit_ms=0))
    request_id = await order_one(requesting.leases, account, refused, deposit_micro=DOLLAR_MICRO, reference="bad")
    (ended,) = await requesting.until_ended([request_id])
    assert ended.state is FAILED
    assert ended.reason == "the contract says BAD_WINDOW."
    await requesting.round()
    assert await requesting.database.credit_holds.find(request_id) is None
    again = await requesting.until_ended([await requesting.order(account, "good")])
    assert again[0].state is DONE  # what the faucet gave for the first one pays for it
    assert await requesting.balances(account) == (0, 9 * DOLLAR)


# what may be asked


async def test_the_same_reference_is_one_request_and_never_another(requesting: Requesting) -> None:
    account = await requesting.make_account(1, promo=10 * DOLLAR)
    assert await requesting.order(account, "o") == await requesting.order(account, "o")
    first = await requesting.leases.top_up(account, NOWHERE, micro=DOLLAR_MICRO, reference="t")
    assert (await requesting.leases.top_up(account, NOWHERE, micro=DOLLAR_MICRO, reference="t")).id == first.id
    with pytest.raises(IdReused):
        await requesting.leases.top_up(account, NOWHERE, micro=2 * DOLLAR_MICRO, reference="t")
    held = await requesting.database.credit_holds.held_by(account)
    assert held == {"request": 2 * DOLLAR}


async def test_orders_at_once_keep_to_the_limit_and_hold_nothing_beyond_it(
    requesting: Requesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_requests, "ORDERS_PER_HOUR", 3)
    account = await requesting.make_account(1, promo=100 * DOLLAR)
    done = await asyncio.gather(
        *(requesting.order(account, f"o{number}") for number in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, RateLimited) for each in done) == 5
    assert await requesting.database.credit_holds.held_by(account) == {"request": 3 * DOLLAR}
    for each in [each for each in done if isinstance(each, str)]:
        await requesting.until_ended([each])
    with pytest.raises(RateLimited):
        await requesting.order(account, "later")
    cancel = await requesting.leases.act(account, ChainRequestKind.CANCEL, NOWHERE, reference="x")
    assert cancel.state is ChainRequestState.ASKED  # the end of a lease has no such limit


async def test_an_order_without_credits_is_refused_and_leaves_nothing(requesting: Requesting) -> None:
    account = await requesting.make_account(1, promo=DOLLAR)
    with pytest.raises(InsufficientCredits, match=r"\$2"):
        await requesting.order(account, "o", deposit_micro=2 * DOLLAR_MICRO)
    assert await requesting.database.chain_requests.find(f"order:{account}:o") is None
    assert await requesting.database.credit_holds.held_by(account) == {}


async def test_an_id_that_is_none_is_refused(requesting: Requesting) -> None:
    account = await requesting.make_account(1)
    for order_id in ("0x12", "77" * 32, "0x" + "77" * 32 + "\n"):
        with pytest.raises(InvalidField, match="64 hex digits"):
            await requesting.leases.act(account, ChainRequestKind.PAUSE, order_id, reference="p")


async def test_a_new_request_wakes_whoever_listens(requesting: Requesting) -> None:
    account = await requesting.make_account(1)
    async with requesting.database.chain_requests.inserted() as inserted:
        assert not inserted.is_set()
        await deposit(requesting, account, "a")
        async with asyncio.timeout(10):
            await inserted.wait()


async def test_a_listener_whose_connection_is_cut_ends_quietly_and_can_be_made_again(
    requesting: Requesting, dsn: str
) -> None:
    account, requests = await requesting.make_account(1), requesting.database.chain_requests
    async with requests.inserted():
        await execute(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    async with requests.inserted() as inserted:
        await deposit(requesting, account, "a")
        async with asyncio.timeout(10):
            await inserted.wait()
