"""A demanded book is published by a signer that has it, in its turn, and by nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparewatt.market.match.record import AuctionRecord, write_record
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import NO_PROVIDER, BidLeaf, CertificateRecord, Task, Vote
from sparewatt.protocol.contracts.match_messages import Proposal, SignedVote
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator import book_service
from sparewatt.validator.book_service import AcceptedTask, BookService, accepted_task, rank_among
from tests.unit.market.match.match_scene import ORDER_ID, PROVIDERS, VOTE_KEYS, context_for

ID = "0x" + ORDER_ID.hex()
SIGNERS = [key.address for key in VOTE_KEYS[:3]]
STRANGER = VOTE_KEYS[3].address
LEAF = BidLeaf(PROVIDERS[0], 5, b"\2" * 32, b"\3" * 32, 1, 1, 0, 0, 7)
TASK = Task(ORDER_ID, 0, b"\1" * 32, 1, b"\2" * 32, 1, b"\3" * 32, 1, 0, 0xFFFF, 0xFFFF)
BOOK_S = 80


def an_event(name: str, **args: Any) -> ChainEvent:
    usual = {"order_id": ID, "attempt": 0, **args}
    return ChainEvent(1, 0, b"", b"", 0, contract="any", event=name, args=usual, unix_s=1)


def accepted(task: Task = TASK, **args: Any) -> ChainEvent:
    values = ["0x" + value.hex() if isinstance(value, bytes) else value for value in task.values()]
    chosen = [[LEAF.provider, 5], [NO_PROVIDER, 0], [NO_PROVIDER, 0]]
    return an_event("MatchAccepted", **{"task": values, "round": 2, "chosen": chosen, "signers": SIGNERS, **args})


def a_record(*tasks: tuple[Task, tuple[BidLeaf, ...]]) -> bytes:
    vote = SignedVote(Vote(ORDER_ID, 0, 0, b"\1" * 32), b"\1" * 65)
    proposals = tuple(Proposal(vote, task, leaves, (), (), ()) for task, leaves in tasks)
    record = AuctionRecord(context=context_for(), validator=SIGNERS[0], proposals=proposals)
    return msgspec.json.encode(write_record(record))


OTHER = Task(ORDER_ID, 0, b"\1" * 32, 1, b"\2" * 32, 1, b"\x09" * 32, 2, 0, 0xFFFF, 0xFFFF)


@dataclass
class Desk:
    vote_key: str
    retired: tuple[str, ...] = ()
    record: bytes | None = field(default_factory=lambda: a_record((OTHER, (LEAF, LEAF)), (TASK, (LEAF,))))
    clock: ManualClock = field(default_factory=ManualClock)
    published: list[tuple[Task, CertificateRecord, Sequence[BidLeaf]]] = field(default_factory=list)

    def service(self) -> BookService:
        return BookService(
            frozenset({self.vote_key, *self.retired}),
            lambda *_: self.record,
            lambda task, record, leaves: self.published.append((task, record, leaves)),
            BOOK_S,
            self.clock,
        )


def by_rank() -> list[str]:
    return sorted(SIGNERS, key=lambda signer: rank_among(signer, accepted_task(accepted().args)))


def test_the_first_signer_publishes_at_once_with_the_leaves_of_the_accepted_task() -> None:
    desk = Desk(by_rank()[0])
    service = desk.service()
    service.on_events([accepted(), an_event("BookDemanded")])
    desk.clock.advance(0.0)
    ((task, record, leaves),) = desk.published
    assert (task, tuple(leaves)) == (TASK, (LEAF,))
    assert (record.task_hash, record.round) == (struct_hash(TASK), 2)
    assert record.chosen[0].provider == LEAF.provider


def test_the_next_signers_publish_in_their_turn_unless_somebody_has() -> None:
    desk = Desk(by_rank()[2])
    service = desk.service()
    service.on_events([accepted(), an_event("BookDemanded")])
    desk.clock.advance(BOOK_S / 8)
    assert desk.published == []
    desk.clock.advance(BOOK_S / 8)
    assert len(desk.published) == 1
    late = Desk(by_rank()[1])
    service = late.service()
    service.on_events([accepted(), an_event("BookDemanded"), an_event("BookPublished")])
    late.clock.advance(BOOK_S)
    assert late.published == []
    assert late.clock.pending == 0


def test_a_key_that_was_retired_still_publishes_what_it_signed() -> None:
    """It stays slashable, and the records are still here."""
    desk = Desk("0x" + "99" * 20, retired=(by_rank()[0], "0x" + "98" * 20))
    desk.service().on_events([accepted(), an_event("BookDemanded")])
    desk.clock.advance(0.0)
    assert len(desk.published) == 1


def test_every_signer_has_its_turn_in_time() -> None:
    """Half of the stake is at risk, so the last of 32 does not wait for all the others."""
    signers = [f"0x{number:040x}" for number in range(1, 33)]
    last = accepted(signers=signers)
    ranks = [rank_among(signer, accepted_task(last.args)) for signer in signers]
    assert sorted(ranks) == list(range(32))
    desk = Desk(signers[ranks.index(31)])
    desk.service().on_events([last, an_event("BookDemanded")])
    desk.clock.advance(BOOK_S / 2)
    assert len(desk.published) == 1


def test_who_did_not_sign_does_not_publish() -> None:
    desk = Desk(STRANGER)
    desk.service().on_events([accepted(), an_event("BookDemanded")])
    desk.clock.advance(BOOK_S)
    assert desk.published == []


def test_a_demand_for_an_unknown_certificate_is_nothing_to_answer() -> None:
    desk = Desk(SIGNERS[0])
    desk.service().on_events([an_event("BookDemanded", attempt=7)])
    desk.clock.advance(BOOK_S)
    assert desk.published == []


@pytest.mark.parametrize("record", [None, b"", b"{}", b"junk", a_record((OTHER, (LEAF, LEAF)))])
def test_leaves_that_are_not_there_are_not_made_up(record: bytes | None) -> None:
    desk = Desk(by_rank()[0], record=record)
    desk.service().on_events([accepted(), an_event("BookDemanded")])
    desk.clock.advance(BOOK_S)
    assert desk.published == []


def test_the_book_of_an_order_without_bids_is_empty() -> None:
    task = Task(ORDER_ID, 0, b"\1" * 32, 1, b"\2" * 32, 1, bytes(32), 0, 0xFFFF, 0xFFFF, 0xFFFF)
    values = ["0x" + value.hex() if isinstance(value, bytes) else value for value in task.values()]
    event = an_event("NoMatch", task=values, round=0, signers=[SIGNERS[0].upper().replace("0X", "0x")])
    found: AcceptedTask = accepted_task(event.args)
    assert [award.provider for award in found.record.chosen] == [NO_PROVIDER] * 3
    desk = Desk(SIGNERS[0], record=None)
    desk.service().on_events([event, an_event("BookDemanded")])
    desk.clock.advance(0.0)
    assert [tuple(leaves) for _, _, leaves in desk.published] == [()]


def test_a_demand_that_is_told_twice_is_answered_once() -> None:
    desk = Desk(by_rank()[1])
    service = desk.service()
    service.on_events([accepted(), an_event("BookDemanded"), an_event("BookDemanded")])
    desk.clock.advance(BOOK_S)
    assert len(desk.published) == 1


def test_demands_and_certificates_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_service, "DEMANDS_MAX", 2)
    monkeypatch.setattr(book_service, "CERTIFICATES_KEPT", 3)
    desk = Desk(by_rank()[1])
    service = desk.service()
    service.on_events([accepted(attempt=attempt) for attempt in range(5)])
    assert sorted(attempt for _, attempt in service._accepted) == [2, 3, 4]
    service.on_events([an_event("BookDemanded", attempt=attempt) for attempt in range(5)])
    assert desk.clock.pending == 2
    service.close()
    assert desk.clock.pending == 0
