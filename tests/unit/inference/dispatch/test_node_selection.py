"""Jobs with conditions: nobody gets one who does not meet them at that very moment, however often they are tried."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.eligibility import Eligibility, PolicyGate
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.policy.model import ANY, MaxPrice
from sparewatt.policy.parser import read_line
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job, a_model, node_id, some_specs
from tests.unit.inference.scripted import ANSWER, BODY, COMPLETION, Stage

ANN = AccountId("acc_ann")
USUAL = MaxPrice(80_000_000, 240_000_000)
DEAR = some_specs(a_model(completion_price_nano=240_000_001))


# nodes that refused a promise


def a_slow_second(*, ttft_s: float) -> Stage:
    """Two nodes, of which the second is so much later with every first token."""
    stage = Stage(2)
    slow = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=ttft_s)
    stage.table.set_specs(node_id(2), some_specs(a_model(measured=slow)))
    return stage


@pytest.mark.parametrize(("stated_s", "asked_next"), [(2.0, 1), (60.0, 2), (0.0, 2)])
def test_a_node_that_would_be_a_little_late_is_better_than_one_that_is_much_slower(
    stated_s: float, asked_next: int
) -> None:
    stage = a_slow_second(ttft_s=20.0)
    run = stage.dispatch()
    assert stage.turn(run).id == node_id(1)
    stage.turn(run).fail("refused", ttft_s=stated_s)
    assert stage.turn(run).id == node_id(asked_next)
    assert (stage.turn(run).opened[-1].promised_ttft_s == 0.0) == (asked_next == 1), "nothing is promised twice"
    stage.turn(run).answer(ANSWER)
    assert stage.sink.body == ANSWER
    stage.assert_nothing_left()


@pytest.mark.parametrize("stated_s", [1e-9, 0.001])
def test_stating_less_than_was_promised_gains_nothing(stated_s: float) -> None:
    """The cheapest lie: refuse, and say that one would be early. The job then costs what was predicted, no less."""
    stage = a_slow_second(ttft_s=20.0)
    run = stage.dispatch()
    best = run.record.decision.best
    assert best is not None
    run._selector.note_late(best, stated_ttft_s=stated_s)
    assert run._selector.late_nodes == {best.node_id: best.cost}


class GatedStage(Stage):
    """Nodes, and the rules of who may serve."""

    def __init__(self, count: int = 5) -> None:
        super().__init__(count)
        self.eligibility = Eligibility(self.table, clock=self.clock)

    def gate(
        self, line: str = "", *, payer: AccountId | None = None, default_cap: MaxPrice | None = None
    ) -> PolicyGate | None:
        return self.eligibility.gate(read_line(line) if line else ANY, MODEL, payer=payer, default_cap=default_cap)

    def send(self, gate: PolicyGate | None, *, attempts_max: int = 3) -> JobRun:
        job = a_dispatched_job(BODY, gate=gate, attempts_max=attempts_max)
        return self.dispatcher.dispatch(job, self.sink, ranking=BALANCED)

    def tried(self, run: JobRun) -> list[int]:
        return [int(attempt.node_id, 16) for attempt in run.record.attempts]


def move(stage: Stage, *numbers: int, region: str = "us") -> None:
    for number in numbers:
        stage.table.set_specs(node_id(number), some_specs(region=region))


def test_a_node_that_left_the_region_a_moment_ago_is_passed_over() -> None:
    stage = GatedStage(2)
    gate = stage.gate("region=EU")
    assert gate is not None
    gate.stages()
    first = stage.dispatcher.dry_run(a_job(), ranking=BALANCED, gate=gate).best
    assert first is not None
    move(stage, int(first.node_id, 16))
    run = stage.send(gate)
    assert stage.tried(run) == [3 - int(first.node_id, 16)]
    stage.turn(run).answer(COMPLETION)
    assert stage.sink.body == COMPLETION
    stage.assert_nothing_left()


def test_however_many_changed_the_next_choice_is_right() -> None:
    stage = GatedStage(300)
    gate = stage.gate("region=EU")
    assert gate is not None
    gate.stages()
    move(stage, *(number for number in range(1, 301) if number != 77))
    run = stage.send(gate)
    assert stage.tried(run) == [77]
    assert [candidate.node_id for candidate in run.record.decision.ranked] == [node_id(77)]


def test_when_all_have_changed_the_client_hears_what_rules_them_out() -> None:
    stage = GatedStage(300)
    gate = stage.gate("region=EU")
    assert gate is not None
    gate.stages()
    move(stage, *range(1, 301))
    run = stage.send(gate)
    assert stage.sink.error is not None
    assert stage.sink.error.code == "no_eligible_node"
    assert "region (300)" in stage.sink.error.message
    assert (run.record.outcome, run.record.decision.ranked) == (Outcome.FAILED, ())
    stage.assert_nothing_left()


def test_all_prices_going_up_at_once_is_told_as_such() -> None:
    stage = GatedStage(3)
    gate = stage.gate(default_cap=USUAL)
    assert gate is not None
    gate.stages()
    for number in (1, 2, 3):
        stage.table.set_specs(node_id(number), DEAR)
    stage.send(gate)
    assert stage.sink.error is not None
    assert "usual_price (3)" in stage.sink.error.message
    stage.assert_nothing_left()


def test_a_second_attempt_keeps_the_policy_too() -> None:
    stage = GatedStage(5)
    move(stage, 2, 3, 4)
    run = stage.send(stage.gate("region=EU"))
    (first,) = stage.tried(run)
    stage.turn(run).fail()
    assert sorted(stage.tried(run)) == [1, 5]
    move(stage, *{1, 5} - {first})  # too late to matter for the attempt that runs
    stage.turn(run).fail()
    assert len(run.record.attempts) == 2
    assert stage.sink.error is not None
    assert stage.sink.error.code == "node_failed"
    stage.assert_nothing_left()


def test_a_later_attempt_whose_node_has_changed_ends_in_the_story_of_those_before() -> None:
    stage = GatedStage(2)
    run = stage.send(stage.gate("region=EU"))
    (first,) = stage.tried(run)
    move(stage, 3 - first)
    stage.turn(run).fail("backend_broke", message="the first one broke")
    assert stage.tried(run) == [first]
    assert stage.sink.error is not None
    assert "backend_broke" in stage.sink.error.message
    assert "the first one broke" not in stage.sink.error.message
    stage.assert_nothing_left()


@pytest.mark.parametrize(("attempts_max", "attempts"), [(1, 1), (3, 3)])
def test_without_fallbacks_nobody_takes_over(attempts_max: int, attempts: int) -> None:
    stage = GatedStage(5)
    run = stage.send(None, attempts_max=attempts_max)
    while not stage.sink.over:
        stage.turn(run).fail()
    assert len(run.record.attempts) == attempts
    stage.assert_nothing_left()


def test_without_fallbacks_a_refusal_still_costs_nothing() -> None:
    stage = GatedStage(5)
    run = stage.send(None, attempts_max=1)
    stage.turn(run).fail("refused")
    assert len(run.record.attempts) == 2
    stage.turn(run).answer(COMPLETION)
    assert stage.sink.body == COMPLETION


def test_a_job_that_free_credits_pay_never_runs_at_home() -> None:
    stage = GatedStage(3)
    for number in (1, 3):
        stage.table.set_owner(node_id(number), ANN)
    run = stage.send(stage.gate(payer=ANN))
    assert stage.tried(run) == [2]
    stage.turn(run).fail()
    assert stage.tried(run) == [2]
    assert stage.sink.error is not None
    stage.assert_nothing_left()


def test_a_dear_node_is_not_even_the_last_resort() -> None:
    stage = GatedStage(2)
    stage.table.set_specs(node_id(1), DEAR)
    run = stage.send(stage.gate(default_cap=USUAL))
    assert stage.tried(run) == [2]
    stage.turn(run).fail()
    assert stage.tried(run) == [2]
    stage.assert_nothing_left()
