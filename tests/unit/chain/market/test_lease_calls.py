"""Calls that move a lease: which are wanted, from when on, and their arguments."""

from __future__ import annotations

import pytest

from sparewatt.chain.market.decisions import DueAct, MarketAct
from sparewatt.chain.market.lease_calls import act_call, act_due_at, contract_of, due_call, has_number
from sparewatt.evm.contract_abi import Contract, Contracts, shipped_abis
from sparewatt.evm.model import ContractCall
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.lease_acts import details_hash_of
from sparewatt.protocol.link.lease_tasks import ActKind, ProposedUpdate
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.lease_acts import StoredAct
from tests.unit.leasing.relay.auction import MOVES, OPENED_AT, ORDERS, STAKES
from tests.unit.leasing.running.placed import (
    AUCTION,
    CLOSED,
    CONFIRMED,
    DETAILS,
    LOSER_KEY,
    NOTICED,
    ORDER,
    STAND_IN_KEY,
    STREAMING,
    VACATED,
    WINNER,
    WINNER_KEY,
    act,
    proposed,
    state,
)

ADDRESSES = {"deployment_order": ORDERS, "lease_moves": MOVES, "escrow": "0x" + "c5" * 20, "stake_registry": STAKES}
CONTRACTS = Contracts(shipped_abis(), ADDRESSES)
LEASE_ID = AUCTION.order_id
UPDATE = ProposedUpdate(
    spec_hash="0x" + "44" * 32, rate_uusd=1_000_000, duration_s=7_200, seq=1, specification={}, content=""
)
RUNNING = (CONFIRMED, STREAMING)


def stored(kind: ActKind, *, key: SigningKey = WINNER_KEY, term: int = 1, seq: int = 0) -> StoredAct:
    update = UPDATE if kind is ActKind.ACCEPT_UPDATE else None
    return StoredAct(key.address, act(kind, key=key, term=term, seq=seq, update=update))


def record(market: MarketState) -> object:
    certificate = market.orders[ORDER].certificate
    assert certificate is not None
    return certificate.record.values()


@pytest.mark.parametrize(
    ("kind", "events", "due_at"),
    [
        (ActKind.CONFIRM, (), 0),
        (ActKind.CONFIRM, RUNNING, None),
        (ActKind.CONFIRM, (VACATED,), None),
        (ActKind.CONFIRM, (CLOSED,), None),
        (ActKind.RESIGN, RUNNING, 0),
        (ActKind.RESIGN, (*RUNNING, NOTICED), OPENED_AT + 70),
        (ActKind.RESIGN, (CLOSED,), None),
        (ActKind.NOTICE, RUNNING, 0),
        (ActKind.NOTICE, (*RUNNING, NOTICED), None),
        (ActKind.CLOSE, RUNNING, None),
        (ActKind.CLOSE, (*RUNNING, NOTICED), OPENED_AT + 70),
        (ActKind.ACCEPT_UPDATE, RUNNING, None),
        (ActKind.ACCEPT_UPDATE, (*RUNNING, proposed(UPDATE.spec_hash)), 0),
        (ActKind.ACCEPT_UPDATE, (*RUNNING, proposed(UPDATE.spec_hash, seq=2)), None),
    ],
)
def test_an_act_is_wanted_while_the_lease_waits_for_it(
    kind: ActKind, events: tuple[ChainEvent, ...], due_at: int | None
) -> None:
    assert act_due_at(state(*events), stored(kind, seq=int(kind is ActKind.ACCEPT_UPDATE))) == due_at


def test_acts_of_another_node_or_term_are_not_sent() -> None:
    assert act_due_at(state(), stored(ActKind.CONFIRM, key=STAND_IN_KEY)) is None
    assert act_due_at(state(), stored(ActKind.CONFIRM, term=2)) is None
    assert act_due_at(MarketState(), stored(ActKind.CONFIRM)) is None


def test_a_stand_in_is_placed_in_its_turn_and_nobody_else() -> None:
    market = state(VACATED)
    claim = stored(ActKind.ACCEPT, key=STAND_IN_KEY, term=2)
    assert act_due_at(market, claim) == market.leases[ORDER].vacated_at
    shown = (LEASE_ID, record(market), 1, bytes.fromhex(claim.act.signature))
    assert act_call(CONTRACTS, market, claim) == CONTRACTS["lease_moves"].encode_call("take_over", *shown)
    for key, term in ((STAND_IN_KEY, 1), (WINNER_KEY, 2), (LOSER_KEY, 2)):
        assert act_due_at(market, stored(ActKind.ACCEPT, key=key, term=term)) is None
    assert act_due_at(state(), claim) is None


def test_acts_become_the_calls_that_the_contracts_take() -> None:
    market = state(*RUNNING, proposed(UPDATE.spec_hash))
    account, orders, moves = WINNER_KEY.address, CONTRACTS["deployment_order"], CONTRACTS["lease_moves"]
    terms = (bytes.fromhex("44" * 32), 1_000_000, 7_200, 1)
    calls: list[tuple[ActKind, Contract, str, tuple[object, ...]]] = [
        (ActKind.CONFIRM, orders, "confirm_start_with_signature", (details_hash_of(DETAILS),)),
        (ActKind.NOTICE, orders, "give_notice_with_signature", ()),
        (ActKind.CLOSE, orders, "close_with_signature", (3,)),
        (ActKind.ACCEPT_UPDATE, moves, "accept_update_with_signature", terms),
    ]
    for kind, contract, function, args in calls:
        said = stored(kind, seq=int(kind is ActKind.ACCEPT_UPDATE))
        signed = (said.act.deadline, bytes.fromhex(said.act.signature))
        assert act_call(CONTRACTS, market, said) == contract.encode_call(function, account, LEASE_ID, *args, *signed)
        assert (has_number(said.act), CONTRACTS[contract_of(said.act)]) == (True, contract)
    resign = stored(ActKind.RESIGN)
    handed_over = moves.encode_call(
        "hand_over", LEASE_ID, record(market), 18, 0, [], bytes.fromhex(resign.act.signature)
    )
    assert act_call(CONTRACTS, market, resign) == handed_over
    assert not has_number(resign.act)


def test_what_time_makes_due_becomes_a_call() -> None:
    market, orders = state(), CONTRACTS["deployment_order"]
    expected_calls: list[tuple[MarketAct, ContractCall]] = [
        (MarketAct.EXPIRE, orders.encode_call("expire_attempt", LEASE_ID)),
        (MarketAct.REOPEN, orders.encode_call("reopen", LEASE_ID, AUCTION.terms.values())),
        (MarketAct.RESUME, orders.encode_call("resume", LEASE_ID)),
        (MarketAct.CLOSE_DURATION, orders.encode_call("close", LEASE_ID, 2)),
        (MarketAct.CLOSE_EMPTY, orders.encode_call("close", LEASE_ID, 4)),
        (MarketAct.SETTLE, CONTRACTS["escrow"].encode_call("settle", LEASE_ID)),
    ]
    for what, expected in expected_calls:
        assert due_call(CONTRACTS, market, DueAct(what, ORDER, 0, "")) == expected
    late = due_call(CONTRACTS, market, DueAct(MarketAct.NO_START, ORDER, 0, ""))
    assert late == CONTRACTS["lease_moves"].encode_call("hand_over", LEASE_ID, record(market), 16, 0, [], b"")
    activate = due_call(CONTRACTS, market, DueAct(MarketAct.ACTIVATE, WINNER, 0, ""))
    assert activate == CONTRACTS["stake_registry"].encode_call("activate", WINNER)
