"""One number: what a tab settles for each node is what the client is told, however the answer ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.text_units import CompletionUnits, units_of
from sparewatt.protocol.openai.chat import Usage
from tests.unit.inference.dispatch.test_failover import a_request, able, begin, chunks
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, USAGE, Stage, text_event


class HalvingTab:
    """Implements Tab: pays half of the words of each attempt, and 4 tokens of any prompt."""

    def __init__(self) -> None:
        self.settled: list[CompletionUnits] = []
        self.journalled: list[Usage] = []
        self.closed: list[tuple[Outcome, BilledAnswer]] = []

    def settle(self, attempts: Sequence[AttemptRecord], units: CompletionUnits) -> None:
        seen = attempts[-1].delivered
        assert seen is not None
        if seen.paid_completion_tokens is None:
            self.settled.append(units)
            seen.paid_prompt_tokens, seen.paid_completion_tokens = 4, units.text.english_words // 2

    def billed(self, attempts: Sequence[AttemptRecord]) -> BilledAnswer:
        paid = [each.delivered.paid_completion_tokens or 0 for each in attempts if each.delivered is not None]
        return BilledAnswer(Usage(4, sum(paid)), Nano(10**9 * sum(paid)))

    def note_complete(self, attempts: Sequence[AttemptRecord]) -> None:
        self.journalled.append(self.billed(attempts).usage)

    def close(self, outcome: Outcome, attempts: Sequence[AttemptRecord]) -> None:
        self.closed.append((outcome, self.billed(attempts)))


def started(stage: Stage, tab: HalvingTab, *words: str) -> JobRun:
    return begin(stage, *words, wants_usage=True, job={"tab": tab})


def told(stage: Stage) -> dict[str, float]:
    usage: dict[str, float] = chunks(stage)[-1]["usage"]
    return usage


FOUR = ("one ", "two ", "three ", "four ")


@pytest.mark.parametrize("usage", [USAGE, b""], ids=["with usage", "without"])
def test_a_stream_is_told_what_its_tab_bills(usage: bytes) -> None:
    stage, tab = Stage(1), HalvingTab()
    run = started(stage, tab, *FOUR)
    stage.turn(run).data(FINISH + usage + DONE)
    stage.turn(run).end()
    assert told(stage) == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6, "cost": 2.0}
    assert tab.settled == [CompletionUnits(units_of("one two three four "), choices=1)]
    assert tab.closed == [(Outcome.DONE, BilledAnswer(Usage(4, 2), Nano(2 * 10**9)))]
    assert run.record.attempts[0].tokens == 2


def test_a_stream_whose_client_wants_no_usage_is_settled_too() -> None:
    stage, tab = Stage(1), HalvingTab()
    run = stage.dispatcher.dispatch(a_request({}, tab=tab), stage.sink, ranking=BALANCED)
    stage.turn(run).answer(*map(text_event, FOUR), FINISH, USAGE, DONE)
    assert (len(tab.settled), run.record.attempts[0].tokens) == (1, 2)
    assert tab.journalled == [Usage(4, 2)]
    assert b"usage" not in stage.sink.body


def test_a_whole_answer_is_told_what_its_tab_bills() -> None:
    stage, tab = Stage(1), HalvingTab()
    job = a_dispatched_job(b'{"messages":[]}', match=a_job(model=MODEL), tab=tab)
    run = stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED)
    stage.turn(run).answer(COMPLETION.replace(b"Hello", b"one two three four"))
    assert msgspec.json.decode(stage.sink.body)["usage"]["completion_tokens"] == 2
    assert tab.closed[0][1].usage == Usage(4, 2)
    assert len(tab.settled) == 1


def test_an_answer_of_two_nodes_is_settled_for_each_and_told_as_one() -> None:
    stage, tab = able(), HalvingTab()
    run = started(stage, tab, *FOUR)
    stage.turn(run).lost()
    stage.turn(run).answer(text_event("five "), text_event("six"), FINISH, USAGE, DONE)
    assert told(stage) == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7, "cost": 3.0}
    assert [units.text.english_words for units in tab.settled] == [4, 2]
    assert tab.closed[0][1].usage == Usage(4, 3)


def test_an_answer_that_a_node_left_at_its_limit_is_told_as_it_is_billed() -> None:
    stage, tab = able(), HalvingTab()
    run = begin(stage, *FOUR, wants_usage=True, job={"tab": tab}, max_tokens=2)
    stage.turn(run).lost()
    assert told(stage)["completion_tokens"] == tab.closed[0][1].usage.completion_tokens == 2


@pytest.mark.parametrize("end", ["cancel", "break"])
def test_a_broken_answer_is_settled_for_what_was_passed_on(end: str) -> None:
    stage, tab = Stage(1), HalvingTab()
    run = started(stage, tab, *FOUR)
    if end == "cancel":
        run.cancel()
    else:
        stage.turn(run).lost()
    assert tab.settled == [CompletionUnits(units_of("one two three four "), choices=1)]
    assert [billed.usage for _, billed in tab.closed] == [Usage(4, 2)]


def test_an_attempt_that_passed_nothing_on_is_not_settled() -> None:
    stage, tab = Stage(1), HalvingTab()
    run = stage.dispatcher.dispatch(a_request({}, tab=tab), stage.sink, ranking=BALANCED)
    stage.turn(run).lost()
    assert tab.settled == []
    assert tab.closed[0][1].usage == Usage(4, 0)
