"""Chain requests become calls once, step by step, and end with their last call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.chain.requests.processor import STEPS_MAX, ChainRequestProcessor, StepOutcome, outcome_of
from sparewatt.chain.senders import SenderLoad, SenderPool
from sparewatt.core.errors import ChainUnavailable, InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.evm.model import ContractCall
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.chain_requests import (
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    OutboxCall,
    SentCall,
)
from sparewatt.store.request_params import ChainRequestKind, LeaseParams

A, B = "0x" + "a" * 40, "0x" + "b" * 40
ASKED = ChainRequestRow("pause:1", ChainRequestKind.PAUSE, AccountId("acc_a"), A, 0, LeaseParams("0x" + "11" * 32))
DECIDED = replace(ASKED, state=ChainRequestState.DECIDED)
CALL = ContractCall(B, b"\1\2\3\4", gas_limit=77)


def sent(state: OutboxState, *, reason: str | None = None, tx: bytes | None = b"\7" * 32) -> SentCall:
    return SentCall(state, reason, tx)


OUTCOMES = [
    ("none was stored", [], StepOutcome.GONE),
    ("final", [sent(OutboxState.FINAL)], StepOutcome.DONE),
    ("mined", [sent(OutboxState.FINAL), sent(OutboxState.MINED)], StepOutcome.OPEN),
    ("the last reverted", [sent(OutboxState.FINAL), sent(OutboxState.REVERTED)], StepOutcome.FAILED),
    ("the last refused", [sent(OutboxState.FINAL), sent(OutboxState.REFUSED)], StepOutcome.FAILED),
    ("a permit that somebody else sent first", [sent(OutboxState.REVERTED), sent(OutboxState.FINAL)], StepOutcome.DONE),
    *((state.value, [sent(state)], StepOutcome.OPEN) for state in (OutboxState.DECIDED, OutboxState.SIGNED)),
]


@pytest.mark.parametrize(("calls", "outcome"), [each[1:] for each in OUTCOMES], ids=[each[0] for each in OUTCOMES])
def test_the_outcome_of_a_step(calls: list[SentCall], outcome: StepOutcome) -> None:
    assert outcome_of(calls) is outcome


@dataclass
class MemoryRequests(ChainRequestStore):
    row: ChainRequestRow
    calls: Sequence[SentCall] = ()
    queued: list[OutboxCall] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    notes: list[object] = field(default_factory=list)

    async def list_decided(self, *, limit: int) -> list[ChainRequestRow]:
        return [self.row] if self.row.state is ChainRequestState.DECIDED else []

    async def list_asked(self, *, limit: int) -> list[ChainRequestRow]:
        return [self.row] if self.row.state is ChainRequestState.ASKED else []

    async def list_sent(self, request_id: str) -> list[SentCall]:
        return list(self.calls)

    async def enqueue_calls(
        self, row: ChainRequestRow, *, sender: str, calls: Sequence[OutboxCall], more_steps: bool
    ) -> bool:
        self.row = replace(row, state=ChainRequestState.DECIDED, more_steps=more_steps)
        self.queued += calls
        self.senders.append(sender)
        return True

    async def begin_next_step(self, row: ChainRequestRow) -> None:
        self.row = replace(row, state=ChainRequestState.ASKED, step=row.step + 1, more_steps=False)

    async def postpone(self, request_id: str, *, seconds: float) -> None:
        self.notes.append(("postponed", seconds))

    async def note_result(self, request_id: str, result: Mapping[str, Any]) -> None:
        self.row = replace(self.row, result=result)
        self.notes.append(dict(result))

    async def finish(
        self, request_id: str, state: ChainRequestState, *, reason: str | None = None, tx: str | None = None
    ) -> None:
        self.row = replace(self.row, state=state, reason=reason, tx=tx)


class NoPool(SenderPool):
    async def relieve(self) -> None:
        pass

    async def loads(self) -> list[SenderLoad]:
        return [SenderLoad(A, 5, 0.0), SenderLoad(B, 0, 0.0)]


class EventStore(ChainStore):
    def __init__(self, numbers: Sequence[int] = ()) -> None:
        self.numbers = numbers

    async def events_of(self, tx_hashes: Sequence[bytes], *, names: Sequence[str]) -> list[ChainEvent]:
        assert names == ["c.Made"]
        return [ChainEvent(1, n, b"", b"", 0, "c", "Made", {"id": n}) for n in self.numbers if tx_hashes]


@dataclass
class Scripted(RequestHandler):
    """One batch per step."""

    batches: Sequence[CallBatch | InvalidField]
    result_events: ClassVar[Sequence[str]] = ["c.Made"]

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        batch = self.batches[row.step]
        if isinstance(batch, InvalidField):
            raise batch
        return batch

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        return {"ids": [event.args["id"] for event in events]} if events else {}


def processor_of(
    requests: MemoryRequests, *batches: CallBatch | InvalidField, events: Sequence[int] = ()
) -> ChainRequestProcessor:
    store, handlers = EventStore(events), {ChainRequestKind.PAUSE: Scripted(batches)} if batches else {}
    return ChainRequestProcessor(store, requests, handlers, NoPool(None, store, (A, B)))  # type: ignore[arg-type]


async def test_a_request_becomes_its_calls_by_the_idlest_key() -> None:
    requests = MemoryRequests(ASKED)
    assert await processor_of(requests, CallBatch((("one", CALL), ("two", CALL)))).step()
    assert requests.queued == [OutboxCall(f"pause:1:{name}", B, CALL.data, 77) for name in ("one", "two")]
    assert (requests.row.state, requests.senders) == (ChainRequestState.DECIDED, [B])


async def test_a_later_step_has_call_names_of_its_own() -> None:
    """Or its calls would be taken for those of the first step, and never be sent."""
    requests = MemoryRequests(replace(ASKED, step=1))
    batch = CallBatch((("one", CALL),))
    await processor_of(requests, batch, batch).step()
    assert [call.business_id for call in requests.queued] == ["pause:1:1:one"]


async def test_a_step_begins_when_the_one_before_is_final() -> None:
    requests = MemoryRequests(ASKED)
    processor = processor_of(requests, CallBatch((("one", CALL),), more_steps=True), CallBatch())
    await processor.step()
    requests.calls = [sent(OutboxState.MINED)]
    assert not await processor.step()
    assert (requests.row.state, requests.row.step) == (ChainRequestState.DECIDED, 0)
    requests.calls = [sent(OutboxState.FINAL)]
    assert await processor.step()
    assert (requests.row.state, requests.row.step) == (ChainRequestState.DONE, 1)
    assert requests.row.tx == "0x" + "07" * 32


async def test_a_step_that_has_to_wait_is_asked_again_later() -> None:
    requests = MemoryRequests(ASKED)
    await processor_of(requests, CallBatch(wait_s=30.0)).step()
    assert (requests.notes, requests.row.state, requests.queued) == ([("postponed", 30.0)], ChainRequestState.ASKED, [])


async def test_what_is_known_while_a_request_waits_is_noted_once() -> None:
    requests = MemoryRequests(ASKED)
    for _ in range(2):
        await processor_of(requests, CallBatch(wait_s=30.0, result={"ready_at": 7})).step()
    assert requests.notes == [{"ready_at": 7}, ("postponed", 30.0), ("postponed", 30.0)]


async def test_an_empty_step_leads_to_the_next_at_once() -> None:
    requests = MemoryRequests(ASKED)
    await processor_of(requests, CallBatch(more_steps=True), CallBatch()).step()
    assert (requests.row.state, requests.row.step) == (ChainRequestState.ASKED, 1)


async def test_the_result_is_there_at_first_sight_and_is_read_again_when_final() -> None:
    requests = MemoryRequests(DECIDED, calls=[sent(OutboxState.MINED)])
    await processor_of(requests, CallBatch(), events=[4]).step()
    assert (requests.row.result, requests.row.state) == ({"ids": [4]}, ChainRequestState.DECIDED)
    await processor_of(requests, CallBatch(), events=[4]).step()
    assert requests.notes == [{"ids": [4]}]  # the same is not written twice
    requests.calls = [sent(OutboxState.FINAL)]
    await processor_of(requests, CallBatch(), events=[5]).step()  # a reorganisation made it another
    assert (requests.row.result, requests.row.state) == ({"ids": [5]}, ChainRequestState.DONE)


FAILURES = [
    ("refused by its handler", ASKED, [InvalidField("No such lease.")], (), "No such lease."),
    ("no handler", ASKED, [], (), "cannot do 'pause'"),
    ("too many steps", replace(ASKED, step=STEPS_MAX), [CallBatch()], (), "cannot do 'pause'"),
    ("of another release", replace(ASKED, params=None), [CallBatch()], (), "another release"),
    ("reverted", DECIDED, [], [sent(OutboxState.REVERTED, reason="NOT_RENTER")], "the contract says NOT_RENTER."),
    ("reverted without a reason", DECIDED, [], [sent(OutboxState.REVERTED)], "the contract says no."),
    ("its chain is gone", DECIDED, [], [], "another chain"),
]


@pytest.mark.parametrize(
    ("row", "batches", "calls", "reason"), [each[1:] for each in FAILURES], ids=[each[0] for each in FAILURES]
)
async def test_a_request_that_cannot_be_done_fails_with_its_reason(
    row: ChainRequestRow, batches: list[Any], calls: list[SentCall], reason: str
) -> None:
    requests = MemoryRequests(row, calls=calls)
    await processor_of(requests, *batches).step()
    assert requests.row.state is ChainRequestState.FAILED
    assert reason in (requests.row.reason or "")


class ManyRequests(MemoryRequests):
    """Of several addresses, all asked."""

    async def list_asked(self, *, limit: int) -> list[ChainRequestRow]:
        return [replace(ASKED, id=f"pause:{number}", address=f"0x{number}") for number in range(3)]


@dataclass
class Meeting(RequestHandler):
    """Builds the calls of each request only once all three are being built; the chain's node answers two of them."""

    waiting: int = 0
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        self.waiting += 1
        if self.waiting == 3:
            self.all_here.set()
        await asyncio.wait_for(self.all_here.wait(), 5.0)
        if row.id == "pause:1":
            raise ChainUnavailable("away")
        return CallBatch((("one", CALL), ("two", CALL)))


async def test_requests_are_built_at_once_and_one_that_cannot_be_holds_up_no_other() -> None:
    requests, store = ManyRequests(ASKED), EventStore()
    handlers: dict[ChainRequestKind, RequestHandler] = {ChainRequestKind.PAUSE: Meeting()}
    processor = ChainRequestProcessor(store, requests, handlers, NoPool(None, store, (A, B)))  # type: ignore[arg-type]
    with pytest.raises(ChainUnavailable):
        await processor.step()
    assert [call.business_id for call in requests.queued] == [
        f"pause:{number}:{name}" for number in (0, 2) for name in ("one", "two")
    ]
    assert requests.senders == [B, B], "two calls are still fewer than five"
