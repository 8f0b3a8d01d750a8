"""Signed acts and reports of nodes: only those of the lease's own node are taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest

from sparewatt.core.ids import NodeId
from sparewatt.leasing.running.act_intake import WAITING_MAX, ActIntake
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.contracts.lease_acts import ActContracts
from sparewatt.protocol.link.lease_tasks import ActKind, LeaseAct, LeaseReport, ProgramPhase, ProposedUpdate
from sparewatt.protocol.signing import SigningKey
from tests.unit.leasing.running.placed import (
    CLOSED,
    CONFIRMED,
    CONTRACTS,
    DETAILS,
    LOSER_KEY,
    ORDER,
    STAND_IN_KEY,
    VACATED,
    WINNER_KEY,
    act,
    state,
)

UPDATE = ProposedUpdate(
    spec_hash="0x" + "44" * 32, rate_uusd=1_000_000, duration_s=7_200, seq=1, specification={}, content=""
)


@dataclass
class MemoryActs:
    """Implements ActStore."""

    acts: list[tuple[str, LeaseAct]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    async def save(self, account: str, act: LeaseAct) -> bool:
        is_new = (account, act) not in self.acts
        self.acts += [(account, act)] if is_new else []
        return is_new

    async def save_details(self, order_id: str, details_hash: str, document: str) -> None:
        assert order_id == ORDER
        assert details_hash.startswith("0x")
        self.details.append(document)


def intake(market: MarketState | None, *, contracts: ActContracts | None = CONTRACTS) -> tuple[ActIntake, MemoryActs]:
    store = MemoryActs()
    return ActIntake(store=store, state=lambda: market, contracts=lambda: contracts, update_of=lambda *_: UPDATE), store


def node(key: SigningKey) -> NodeId:
    return NodeId(key.address)


async def test_the_winners_confirmation_is_stored_with_its_details() -> None:
    found, store = intake(state())
    assert await found.take(node(WINNER_KEY), act())
    assert (store.acts, store.details) == ([(WINNER_KEY.address, act())], [DETAILS])


@pytest.mark.parametrize(
    ("said", "by"),
    [
        (act(), STAND_IN_KEY),
        (act(key=STAND_IN_KEY), STAND_IN_KEY),
        (act(key=LOSER_KEY), WINNER_KEY),
        (act(term=2), WINNER_KEY),
        (msgspec.structs.replace(act(), nonce=7), WINNER_KEY),
        (msgspec.structs.replace(act(), details="[]"), WINNER_KEY),
        (msgspec.structs.replace(act(), order_id="0x" + "99" * 32), WINNER_KEY),
        (act(ActKind.ACCEPT, key=STAND_IN_KEY, term=2), STAND_IN_KEY),
    ],
    ids=[
        "carried by another node",
        "of a stand-in",
        "signed by another",
        "another term",
        "another number than signed",
        "no document",
        "no such lease",
        "a claim while it is placed",
    ],
)
async def test_what_is_not_the_nodes_own_to_say_is_refused(said: LeaseAct, by: SigningKey) -> None:
    found, store = intake(state())
    assert not await found.take(node(by), said)
    assert (store.acts, store.details) == ([], [])


async def test_a_stand_in_claims_a_vacant_lease_for_its_next_term() -> None:
    found, store = intake(state(VACATED))
    assert await found.take(node(STAND_IN_KEY), act(ActKind.ACCEPT, key=STAND_IN_KEY, term=2))
    assert not await found.take(node(STAND_IN_KEY), act(ActKind.ACCEPT, key=STAND_IN_KEY, term=1))
    assert not await found.take(node(WINNER_KEY), act(ActKind.ACCEPT, key=WINNER_KEY, term=2))
    assert not await found.take(node(LOSER_KEY), act(ActKind.ACCEPT, key=LOSER_KEY, term=2))
    assert len(store.acts) == 1


async def test_an_update_is_accepted_as_it_was_proposed_only() -> None:
    found, store = intake(state(CONFIRMED))
    other = msgspec.structs.replace(UPDATE, rate_uusd=2)
    assert not await found.take(node(WINNER_KEY), act(ActKind.ACCEPT_UPDATE, seq=1, update=other))
    assert await found.take(node(WINNER_KEY), act(ActKind.ACCEPT_UPDATE, seq=1, update=UPDATE))
    assert len(store.acts) == 1


@pytest.mark.parametrize("kind", [ActKind.RESIGN, ActKind.NOTICE, ActKind.CLOSE])
async def test_a_provider_may_leave(kind: ActKind) -> None:
    found, _ = intake(state(CONFIRMED))
    assert await found.take(node(WINNER_KEY), act(kind))


async def test_who_tells_nodes_their_number_hears_of_acts_that_have_one() -> None:
    found, _ = intake(state(CONFIRMED))
    heard: list[str] = []
    found.on_numbered = heard.append
    await found.take(node(WINNER_KEY), act(ActKind.RESIGN))
    await found.take(node(LOSER_KEY), act(ActKind.NOTICE))
    assert heard == []
    await found.take(node(WINNER_KEY), act(ActKind.NOTICE))
    assert heard == [ORDER]


async def test_nothing_is_taken_before_the_market_is_known_or_after_the_lease() -> None:
    for market, contracts in ((None, CONTRACTS), (state(), None), (state(CLOSED), CONTRACTS)):
        found, store = intake(market, contracts=contracts)
        assert not await found.take(node(WINNER_KEY), act())
        assert store.acts == []


async def test_acts_wait_in_a_bounded_queue_and_are_stored_by_its_runner() -> None:
    found, store = intake(state())
    for _ in range(WAITING_MAX + 10):
        found.receive(node(WINNER_KEY), act())
    runner = asyncio.create_task(found.run())
    async with asyncio.timeout(20):
        while not store.acts:  # noqa: ASYNC110 (polls with a ceiling)
            await asyncio.sleep(0)
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
    assert store.acts == [(WINNER_KEY.address, act())]


def test_a_report_is_shown_if_it_comes_from_the_node_that_has_the_lease() -> None:
    found, _ = intake(state())
    report = LeaseReport(order_id=ORDER, term=1, phase=ProgramPhase.PULLING, since=1)
    found.receive(node(STAND_IN_KEY), report)
    found.receive(node(WINNER_KEY), msgspec.structs.replace(report, term=2))
    assert not found.reports
    found.receive(node(WINNER_KEY), report)
    assert found.reports[ORDER].report == report
