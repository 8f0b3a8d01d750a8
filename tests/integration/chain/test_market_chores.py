"""The chain's process carries orders on by itself: attempts end, orders without bids end, deposits come back.

A real chain and a real database; after each scene the books agree with the chain to the last unit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.market.market_worker import MarketWorker, make_market_worker
from sparewatt.chain.money.settlement_contract import TOKEN
from sparewatt.chain.senders import SenderPool
from sparewatt.core.clock import SystemClock
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.localnet.anvil import Anvil
from sparewatt.market.chain_records import MarketState, OrderState
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.rule import book_of, task_of
from sparewatt.protocol.contracts.match import Vote
from sparewatt.protocol.contracts.match_messages import SignedVote, write_object
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.contracts.reasons import OrderOutcome
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.store import pockets
from sparewatt.store.request_params import ChainRequestKind
from tests.integration.chain.bookkeeping import Bookkeeping, quick_plan
from tests.integration.chain.setting import OPERATOR
from tests.integration.chain.settling import USER, open_settling
from tests.integration.chain.stepped_chain import DOLLAR, DOLLAR_MICRO, STAKE, VOTER

ATTEMPT_S = 60
ROUNDS_MAX = 80
LATE_STAKER, LATE_VOTER = SigningKey(bytes(31) + b"\x41"), SigningKey(bytes(31) + b"\x42")


@dataclass
class Chores:
    books: Bookkeeping
    worker: MarketWorker

    async def round(self) -> None:
        await self.books.settling.round()
        await self.worker.step()

    def state(self) -> MarketState:
        assert self.worker.fold.built is not None
        return self.worker.fold.built.latest

    async def until_order(self, order_id: str, state: OrderState, *, pass_s: int = 0) -> None:
        for _ in range(ROUNDS_MAX):
            await self.round()
            if order_id in self.state().orders and self.state().orders[order_id].state is state:
                return
            if pass_s:
                await self.books.settling.pass_time(pass_s)
        raise AssertionError(f"the order is not {state}: {self.state().orders.get(order_id)}")

    async def until_credits(self, nano: int) -> None:
        for _ in range(ROUNDS_MAX):
            if await self.books.balance(f"credits:{USER}") == nano:
                return
            self.worker._refunds_at_s = 0.0
            await self.round()
        raise AssertionError(f"credits are {await self.books.balance(f'credits:{USER}')}")


@pytest.fixture
async def chores(anvil: Anvil, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Chores]:
    monkeypatch.setattr(pockets, "REFUND_QUIET_S", 0.0)
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True, plan=quick_plan()) as settling:
        books = Bookkeeping(settling)
        await books.settling.post_snapshot()
        client: ChainClient = settling.client
        worker = make_market_worker(
            client,
            settling.database,
            settling.contracts,
            chain_id=settling.chain_id,
            senders=SenderPool(client, settling.database.chain, (OPERATOR.address,)),
            clock=SystemClock(),
        )
        yield Chores(books, worker)


async def test_an_order_that_nobody_bids_on_ends_and_its_deposit_comes_back_to_credits(chores: Chores) -> None:
    """No validator answers, so every attempt runs out; the order's own further attempts are opened and run out too."""
    books = chores.books
    await books.deposit(10, "one")
    before = await books.all_balances()
    order_id = await books.order(5, "nobody")
    await chores.until_order(order_id, OrderState.OPEN)
    assert await books.balance(f"escrow:{USER}") == 5 * DOLLAR
    await chores.until_order(order_id, OrderState.UNMATCHED, pass_s=ATTEMPT_S + 2)
    assert chores.state().orders[order_id].reason == OrderOutcome.NO_QUORUM
    await chores.until_order(order_id, OrderState.OPEN, pass_s=30)
    assert chores.state().orders[order_id].attempt == 1
    await chores.until_order(order_id, OrderState.EXPIRED, pass_s=ATTEMPT_S + 2)
    assert chores.state().orders[order_id].attempt == 2, "as many as its renter allowed"
    await chores.until_credits(10 * DOLLAR)
    await books.check()
    assert await books.all_balances() == before
    assert chores.worker.fold.attempt_s == ATTEMPT_S


async def test_a_refund_leaves_other_tokens_of_the_address_alone(chores: Chores) -> None:
    """What somebody sent to the address, or an exit paid there, is not swept into credits."""
    books = chores.books
    await books.deposit(10, "one")
    order_id = await books.order(5, "cancelled")
    token = books.settling.contracts[TOKEN]
    await books.settling.send(token.encode_call("faucet", books.address, 2 * DOLLAR_MICRO), LATE_STAKER)
    await books.cancel(order_id, "c")
    await chores.until_credits(10 * DOLLAR)
    assert await books.settling.tokens_at(books.address) == 2 * DOLLAR_MICRO
    await books.check()


async def test_an_order_that_is_asked_while_a_refund_is_under_way_is_paid_for_in_full(chores: Chores) -> None:
    """It may not count on money that is on its way into credits."""
    books = chores.books
    await books.deposit(10, "one")
    order_id = await books.order(5, "first")
    await books.cancel(order_id, "c")
    await chores.worker.refunds.step()
    assert await books.settling.database.pockets.payable_micro(books.address) == 0
    second = await books.order(5, "second")
    await chores.until_credits(5 * DOLLAR)
    await chores.until_order(second, OrderState.OPEN)
    await books.check()


async def test_a_refund_waits_a_moment_for_the_renter_s_next_order(
    chores: Chores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is paid with what is owed, at once; a withdrawal first would take two more transactions."""
    books = chores.books
    await books.deposit(10, "one")
    await books.cancel(await books.order(5, "first"), "c")
    monkeypatch.setattr(pockets, "REFUND_QUIET_S", 60.0)
    assert not await chores.worker.refunds.step()
    assert await books.settling.database.pockets.payable_micro(books.address) == 5 * DOLLAR_MICRO
    await books.settling.execute("UPDATE chain_requests SET changed_at = now() - interval '61 seconds'")
    assert await chores.worker.refunds.step()


async def test_a_refund_is_asked_once_and_not_while_another_request_of_the_address_is_under_way(chores: Chores) -> None:
    books, requests = chores.books, chores.books.settling.database.chain_requests
    await books.deposit(10, "one")
    order_id = await books.order(5, "first")
    await books.cancel(order_id, "c")
    asked = await books.ask_order(4, "next")
    assert not await chores.worker.refunds.step(), "the order counts on what is owed"
    await books.until_ended(asked)
    assert await chores.worker.refunds.step()
    assert not await chores.worker.refunds.step()
    await chores.until_credits(6 * DOLLAR)
    assert await requests.count_finished(books.address, ChainRequestKind.WITHDRAW) == 1
    await books.check()


async def test_a_certificate_that_a_gateway_collected_is_submitted_unless_it_is_forged(chores: Chores) -> None:
    """The leader died before it sent it. A forged one costs no gas: it is not even tried."""
    books, settling = chores.books, chores.books.settling
    await books.deposit(10, "one")
    order_id = await books.order(5, "nobody")
    await chores.until_order(order_id, OrderState.OPEN)
    order, matches = chores.state().orders[order_id], settling.database.lease_matches
    raw_id = bytes.fromhex(order_id[2:])
    task = task_of(
        book_of(raw_id, []),
        attempt=0,
        policy_hash=struct_hash(order.terms),
        snapshot_epoch=1,
        snapshot_root=bytes(32),
        stake_version=order.stake_version,
    )
    vote = Vote(raw_id, 0, 0, struct_hash(task))

    async def store(signer: SigningKey) -> None:
        signed = SignedVote(vote, settling.signed(signer, "task_manager", vote))
        written = write_object(QuorumCertificate(task, 0, order.terms, (), (), (), (signed,), (signer.address,)))
        text = msgspec.json.encode(written).decode()
        await matches.save(order_id, 0, opened_at=order.opened_at[0], evidence="{}", certificate=text)
        await books.settling.execute("UPDATE lease_matches SET certified_at = now() - interval '1 second'")

    async with settling.database.chain_requests.inserted() as asked:
        await store(LATE_VOTER)
        await asyncio.wait_for(asked.wait(), 5.0)
    await chores.round()
    assert await settling.database.chain.find(f"certificate:{order_id}:0:0") is None
    await books.settling.execute("DELETE FROM lease_matches")
    await store(VOTER)
    await chores.until_order(order_id, OrderState.UNMATCHED)
    assert chores.state().orders[order_id].reason == OrderOutcome.NONE_ELIGIBLE
    assert (await matches.find_acceptance(order_id, 0) or ("",))[0].startswith("0x")


async def test_stake_that_waits_is_activated_when_its_time_has_come(chores: Chores) -> None:
    books = chores.books
    settling = books.settling
    token, stakes = settling.contracts[TOKEN], settling.contracts["stake_registry"]
    await settling.send(token.encode_call("faucet", LATE_STAKER.address, STAKE), LATE_STAKER)
    await settling.send(token.encode_call("approve", stakes.address, STAKE), LATE_STAKER)
    proof = settling.signed(LATE_VOTER, "stake_registry", VoteKey(LATE_STAKER.address, LATE_VOTER.address))
    join = stakes.encode_call("join", LATE_VOTER.address, proof, "http://127.0.0.1:1", STAKE)
    await settling.send(join, LATE_STAKER)
    for _ in range(ROUNDS_MAX):
        await chores.round()
        if not chores.state().validators[LATE_STAKER.address].pending_uusd:
            break
        await books.settling.pass_time(1)
    state = chores.state()
    assert state.weight_of(LATE_VOTER.address, state.stake_version) is not None
    assert state.validators[LATE_STAKER.address].stake_uusd == STAKE


async def test_an_idle_local_chain_is_told_that_it_needs_a_block(chores: Chores) -> None:
    """Without blocks a chain's time stands still, and an attempt would never end."""
    books, worker = chores.books, chores.worker
    await books.deposit(10, "one")
    order_id = await books.order(5, "nobody")
    await chores.until_order(order_id, OrderState.OPEN)
    assert not worker.needs_block
    worker._time._seen_s -= ATTEMPT_S + 10  # as if the last block had come that long ago
    await worker.step()
    assert worker.needs_block


async def test_the_index_dropped_and_rebuilt_gives_the_same_orders(chores: Chores) -> None:
    books = chores.books
    settling = books.settling
    await books.deposit(10, "one")
    first = await books.order(5, "first")
    await books.cancel(first, "c")
    await chores.until_credits(10 * DOLLAR)
    await books.order(2, "second")
    await chores.round()
    index = MarketIndex(settling.database.market_events, has_chain=True)
    await index.follow()
    before = index.view().latest
    await settling.follower.begin(rebuild=True)
    await settling.follower.catch_up()
    await index.follow()
    assert index.view().latest == before
    fresh = MarketIndex(settling.database.market_events, has_chain=True)
    await fresh.follow()
    assert fresh.view().latest == before
    await chores.worker.step()
    assert chores.state() == before
