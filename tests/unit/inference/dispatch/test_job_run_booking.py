"""An answer is journalled whole before its client has the end of it; one that cannot be, is not given whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sparewatt.core.errors import DiskFull
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job
from tests.unit.inference.scripted import (
    BODY,
    COMPLETION,
    DONE,
    FINISH,
    ROLE,
    USAGE,
    RecordingSink,
    Stage,
    text_event,
)


@dataclass
class WitnessTab:
    """Notes what the client had of its answer when it was journalled and when it was closed."""

    sink: RecordingSink
    is_disk_broken: bool = False
    complete_after: list[bytes] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    closed: list[Outcome] = field(default_factory=list)

    def cost(self, _attempts: Sequence[AttemptRecord]) -> Nano:
        return Nano(0)

    def note_complete(self, attempts: Sequence[AttemptRecord]) -> None:
        if self.is_disk_broken:
            raise DiskFull("no room")
        delivered = attempts[-1].delivered
        self.complete_after.append(self.sink.body)
        self.counted.append(delivered.chunks if delivered is not None else -1)

    def close(self, outcome: Outcome, _attempts: Sequence[AttemptRecord]) -> None:
        self.closed.append(outcome)


def begin(stage: Stage, *, stream: bool = True, broken: bool = False) -> tuple[JobRun, WitnessTab]:
    tab = WitnessTab(stage.sink, broken)
    job = a_dispatched_job(BODY, match=a_job(model=MODEL), stream=stream, tab=tab)
    return stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED), tab


def test_a_stream_is_journalled_before_its_last_event_leaves() -> None:
    stage = Stage()
    run, tab = begin(stage)
    node = stage.turn(run)
    node.begin(ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE)
    assert tab.complete_after == []
    node.data(DONE)
    assert len(tab.complete_after) == 1
    assert not tab.complete_after[0].endswith(DONE)
    assert stage.sink.body.endswith(DONE)
    assert tab.closed == []
    node.end()
    assert (len(tab.complete_after), tab.closed) == (1, [Outcome.DONE])


def test_a_whole_reply_is_journalled_before_it_leaves() -> None:
    stage = Stage()
    run, tab = begin(stage, stream=False)
    stage.turn(run).answer(COMPLETION)
    assert tab.complete_after == [b""]
    assert tab.counted != [-1]
    assert b'"content":"Hello"' in stage.sink.body
    assert tab.closed == [Outcome.DONE]


def test_a_stream_that_the_gateway_ends_itself_is_journalled_before_that() -> None:
    """The node is lost after the finish reason: nothing is missing but the last event."""
    stage = Stage()
    run, tab = begin(stage)
    node = stage.turn(run)
    node.begin(ROLE, text_event("Hello"), FINISH)
    node.fail()
    assert len(tab.complete_after) == 1
    assert DONE not in tab.complete_after[0]
    assert stage.sink.body.endswith(DONE)
    assert tab.closed == [Outcome.DONE]


def test_a_stream_that_cannot_be_journalled_ends_in_an_error_and_not_whole() -> None:
    stage = Stage()
    run, tab = begin(stage, broken=True)
    stage.turn(run).answer(ROLE, text_event("Hello"), FINISH, USAGE, DONE)
    assert b'"disk_full"' in stage.sink.body
    assert DONE not in stage.sink.body
    assert (stage.sink.calls, tab.closed) == (["start", "finish"], [Outcome.FAILED])
    stage.assert_nothing_left()


def test_a_whole_reply_that_cannot_be_journalled_is_refused() -> None:
    stage = Stage()
    run, tab = begin(stage, stream=False, broken=True)
    stage.turn(run).answer(COMPLETION)
    assert (stage.sink.calls, stage.sink.body) == (["fail"], b"")
    assert isinstance(stage.sink.error, DiskFull)
    assert tab.closed == [Outcome.FAILED]
    stage.assert_nothing_left()


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_fails_is_not_said_to_be_complete(*, stream: bool) -> None:
    stage = Stage()
    run, tab = begin(stage, stream=stream)
    for _ in range(20):
        if stage.sink.over:
            break
        stage.turn(run).fail()
    assert (tab.complete_after, tab.closed) == ([], [Outcome.FAILED])
