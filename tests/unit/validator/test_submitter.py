"""Certificates become calls with the right hints, once, and being second is no error."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainReverted, ChainUnavailable
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ContractCall, TransactionReceipt
from sparewatt.market.chain_records import (
    AcceptedCertificate,
    LeaseRecord,
    LeaseState,
    MarketState,
    OrderRecord,
    OrderState,
    SnapshotRecord,
    WeightChange,
    WeightHistory,
)
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.outages.model import DownCertificate
from sparewatt.market.snapshots.model import SnapshotCertificate
from sparewatt.protocol.contracts.match import (
    NO_PROVIDER,
    Award,
    BidCommit,
    BidLeaf,
    CertificateRecord,
    Down,
    ReputationSnapshot,
    Task,
    Vote,
)
from sparewatt.protocol.contracts.match_messages import SignedCommit, SignedVote
from sparewatt.protocol.contracts.outage_messages import SignedDown
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.testing.clocks import InstantClock
from sparewatt.validator import submitter
from sparewatt.validator.submitter import DONE_BY_ANOTHER, TRIES_MAX, CertificateSubmitter, votes_with_hints
from sparewatt.validator.transaction_sender import TransactionSender
from tests.order_terms import order_terms

ORDER = b"\1" * 32
ORDER_ID = "0x" + ORDER.hex()
SIGNERS = tuple(f"0x{number:040x}" for number in (1, 2, 3))
TERMS = order_terms()
ADDRESSES = {name: f"0x{index:040x}" for index, name in enumerate(shipped_abis(), 1)}
CONTRACTS = Contracts(shipped_abis(), ADDRESSES)
LEAF = BidLeaf("0x" + "aa" * 20, 5, b"\2" * 32, b"\3" * 32, 1, 1, 0, 0, 7)
COMMIT = SignedCommit(BidCommit(ORDER, 0, LEAF.provider, b"\4" * 32), b"\x0b" * 65)
NO_LEAF = 0xFFFF


def a_state() -> MarketState:
    state = MarketState(stake_version=3, totals={1: 10, 2: 20, 3: 30})
    state.orders[ORDER_ID] = OrderRecord(
        order_id=ORDER_ID,
        renter="0x" + "bb" * 20,
        state=OrderState.OPEN,
        attempt=0,
        terms=TERMS,
        spec_hash="0x" + "00" * 32,
        stake_version=2,
        snapshot_epoch=1,
        expires_at=0,
        max_attempts=3,
        created_at=0,
        opened_at={0: 1},
    )
    for index, signer in enumerate(SIGNERS):
        changes = (WeightChange(1, 10 if index else 0), WeightChange(2, 10), WeightChange(3, 10 if index < 2 else 0))
        state.histories[signer] = WeightHistory(signer, changes, dropped=index)
    return state


def task(*, first: int = 0) -> Task:
    return Task(ORDER, 0, struct_hash(TERMS), 1, b"\5" * 32, 2, b"\6" * 32, 1, first, NO_LEAF, NO_LEAF)


def votes() -> tuple[SignedVote, ...]:
    return tuple(SignedVote(Vote(ORDER, 0, 0, b"\7" * 32), bytes([number]) * 65) for number in (1, 2, 3))


def a_match() -> QuorumCertificate:
    return QuorumCertificate(task(), 1, TERMS, (LEAF,), ((b"\x0c" * 32,),), (COMMIT,), votes(), SIGNERS)


def a_snapshot(epoch: int = 1) -> SnapshotCertificate:
    snapshot = ReputationSnapshot(epoch, 0, b"\x08" * 32, 2, b"\x09" * 32)
    signed = tuple(SignedSnapshot(snapshot, bytes([number]) * 65) for number in (1, 2, 3))
    return SnapshotCertificate(snapshot, signed, SIGNERS)


@dataclass
class MemorySender:
    calls: list[ContractCall] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    async def send(self, call: ContractCall) -> TransactionReceipt:
        self.calls.append(call)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return TransactionReceipt(b"", 5, b"", succeeded=True, gas_used=1)


def a_submitter(sender: MemorySender, state: MarketState | None = None) -> CertificateSubmitter:
    state = state or a_state()
    anything: Any = sender
    return CertificateSubmitter(cast(TransactionSender, anything), CONTRACTS, lambda: state, InstantClock())


async def settled(submitting: CertificateSubmitter) -> None:
    for _ in range(2_000):
        if not submitting._tasks:
            return
        await asyncio.sleep(0)
    raise AssertionError("it is still submitting")


HINTED = [(bytes([number]) * 65, number) for number in (1, 2, 3)]
"""Index 1 of each history, after what was dropped of it."""


async def test_a_match_becomes_the_call_that_the_contract_takes() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender)
    submitting.submit_match(a_match())
    await settled(submitting)
    candidates = [(LEAF.values(), [b"\x0c" * 32], COMMIT.signature)]
    expected = CONTRACTS["task_manager"].encode_call(
        "accept_match", task().values(), 1, TERMS.values(), candidates, HINTED
    )
    assert sender.calls == [expected]
    assert (submitting.counts.accepted, submitting.counts.failed) == (1, 0)


async def test_a_certificate_without_candidates_says_that_there_is_no_match() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender)
    none = replace(a_match(), task=task(first=NO_LEAF), leaves=(), paths=(), commits=())
    submitting.submit_match(none)
    await settled(submitting)
    expected = CONTRACTS["task_manager"].encode_call("accept_no_match", task(first=NO_LEAF).values(), 1, HINTED)
    assert sender.calls == [expected]


async def test_a_snapshot_counts_by_the_newest_version_and_drops_who_has_no_weight_there() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender)
    submitting.submit_snapshot(a_snapshot())
    await settled(submitting)
    hinted = [(bytes([1]) * 65, 2), (bytes([2]) * 65, 3)]
    snapshot = a_snapshot().snapshot
    assert sender.calls == [CONTRACTS["task_manager"].encode_call("post_snapshot", *snapshot.values(), hinted)]


async def test_a_book_is_published_with_its_record() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender)
    none = Award(NO_PROVIDER, 0)
    record = CertificateRecord(struct_hash(task()), 1, (Award(LEAF.provider, 5), none, none))
    submitting.submit_book(task(), record, [LEAF])
    await settled(submitting)
    arguments = (task().values(), record.values(), [LEAF.values()])
    assert sender.calls == [CONTRACTS["dispute_book"].encode_call("publish_book", *arguments)]


@pytest.mark.parametrize("reason", sorted(DONE_BY_ANOTHER))
async def test_being_second_is_no_error(reason: str) -> None:
    sender = MemorySender(errors=[ChainReverted(reason)])
    submitting = a_submitter(sender)
    submitting.submit_match(a_match())
    await settled(submitting)
    assert len(sender.calls) == 1
    assert (submitting.counts.already_done, submitting.counts.failed) == (1, 0)


@pytest.mark.parametrize("change", [{"state": OrderState.MATCHED}, {"attempt": 1}, None])
async def test_nothing_is_sent_for_an_order_that_is_done(change: dict[str, Any] | None) -> None:
    state = a_state()
    if change is None:
        del state.orders[ORDER_ID]
    else:
        state.orders[ORDER_ID] = replace(state.orders[ORDER_ID], **change)
    sender = MemorySender()
    submitting = a_submitter(sender, state)
    submitting.submit_match(a_match())
    await settled(submitting)
    assert (sender.calls, submitting.counts.already_done) == ([], 1)


async def test_a_snapshot_that_is_posted_is_not_sent_again() -> None:
    state = a_state()
    state.snapshots[1] = SnapshotRecord(1, "0x", 0, "0x", 1)
    sender = MemorySender()
    submitting = a_submitter(sender, state)
    submitting.submit_snapshot(a_snapshot())
    await settled(submitting)
    assert sender.calls == []


async def test_trouble_is_tried_again_and_then_given_up() -> None:
    sender = MemorySender(errors=[ChainUnavailable("away"), ChainReverted("TOO_EARLY")])
    submitting = a_submitter(sender)
    submitting.submit_match(a_match())
    await settled(submitting)
    assert (len(sender.calls), submitting.counts.accepted) == (3, 1)
    sender.errors = [ChainReverted("NO_QUORUM")] * TRIES_MAX
    submitting.submit_match(a_match())
    await settled(submitting)
    assert (len(sender.calls), submitting.counts.failed) == (3 + TRIES_MAX, 1)


async def test_the_same_certificate_is_not_submitted_twice_at_once() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender)
    submitting.submit_match(a_match())
    submitting.submit_match(a_match())
    submitting.submit_match(replace(a_match(), round=2))
    await settled(submitting)
    assert len(sender.calls) == 2


async def test_submissions_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter, "SUBMISSIONS_MAX", 3)
    sender = MemorySender()
    submitting = a_submitter(sender)
    for round_ in range(10):
        submitting.submit_match(replace(a_match(), round=round_))
    await settled(submitting)
    assert len(sender.calls) == 3


async def test_closing_ends_what_is_under_way() -> None:
    class Endless(MemorySender):
        async def send(self, call: ContractCall) -> TransactionReceipt:
            await asyncio.Event().wait()
            return await super().send(call)

    submitting = a_submitter(Endless())
    submitting.submit_match(a_match())
    await asyncio.sleep(0)
    await submitting.close()
    await settled(submitting)


def test_a_stranger_among_the_signers_is_left_out() -> None:
    stranger = "0x" + "ff" * 20
    hinted = votes_with_hints(a_state(), votes(), (SIGNERS[0], SIGNERS[1], stranger), version=2)
    assert hinted == HINTED[:2]


async def test_a_proof_is_counted_apart_and_may_come_second() -> None:
    sender = MemorySender(errors=[ChainReverted("ALREADY_PUNISHED")])
    submitting = a_submitter(sender)
    for name in ("one", "two"):
        submitting.submit_proof(name, ContractCall("0x" + "d1" * 20, b"proof"))
        await settled(submitting)
    assert len(sender.calls) == 2
    assert (submitting.proof_counts.already_done, submitting.proof_counts.accepted) == (1, 1)
    assert submitting.counts.accepted == 0


def an_outage(term: int = 1) -> DownCertificate:
    down = Down(ORDER, term, LEAF.provider, 1_000)
    signed = tuple(SignedDown(down, bytes([number]) * 65) for number in (1, 2, 3))
    return DownCertificate(down, signed, SIGNERS)


def a_leased_state(state: LeaseState = LeaseState.ACTIVE, *, term: int = 1) -> MarketState:
    found = a_state()
    record = CertificateRecord(b"\7" * 32, 1, (Award(LEAF.provider, 5), Award(NO_PROVIDER, 0), Award(NO_PROVIDER, 0)))
    certificate = AcceptedCertificate(0, record, 1, SIGNERS, 1)
    found.orders[ORDER_ID] = replace(found.orders[ORDER_ID], state=OrderState.MATCHED, certificate=certificate)
    found.leases[ORDER_ID] = LeaseRecord(
        lease_id=ORDER_ID,
        renter="0x" + "bb" * 20,
        state=state,
        provider=LEAF.provider,
        term=term,
        position=0,
        rate_uusd=1,
        locked_uusd=1,
        confirm_by=1,
        created_at=1,
    )
    return found


async def test_an_outage_is_handed_over_with_the_votes_that_weigh_now() -> None:
    sender = MemorySender()
    submitting = a_submitter(sender, a_leased_state())
    submitting.submit_outage(an_outage())
    submitting.submit_outage(an_outage())
    await settled(submitting)
    (call,) = sender.calls
    assert call.to == ADDRESSES["lease_moves"]
    state = a_leased_state()
    record = state.orders[ORDER_ID].certificate
    assert record is not None
    votes = [(bytes([number]) * 65, 2 + number - 1) for number in (1, 2)]
    assert call == CONTRACTS["lease_moves"].encode_call(
        "hand_over", ORDER, record.record.values(), 17, 1_000, votes, b""
    )


@pytest.mark.parametrize(
    "state", [a_leased_state(LeaseState.VACANT), a_leased_state(term=2), a_leased_state(LeaseState.PAUSED), a_state()]
)
async def test_a_lease_that_has_moved_is_left_alone(state: MarketState) -> None:
    sender = MemorySender()
    submitting = a_submitter(sender, state)
    submitting.submit_outage(an_outage())
    await settled(submitting)
    assert (sender.calls, submitting.counts.already_done) == ([], 1)
