"""A node that breaks off an answer for a lease: excused if the chain has that lease, blamed if not."""

from __future__ import annotations

import pytest

from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.telemetry.job_counter import result_of
from sparewatt.trust.reputation import AttemptResult
from tests.unit.inference.nodes import a_model, some_specs
from tests.unit.inference.scripted import DONE, FINISH, ROLE, Stage, outcomes, text_event

ORDER = "0x" + "1" * 64


def begun() -> tuple[Stage, JobRun]:
    stage = Stage(3, specs=some_specs(a_model(capabilities=("chat", "continue_raw"))))
    run = stage.dispatch()
    stage.turn(run).begin(ROLE, text_event("Hel"))
    return stage, run


def finish(stage: Stage, run: JobRun) -> None:
    stage.turn(run).answer(ROLE, text_event("lo"), FINISH, DONE)
    assert stage.sink.calls == ["start", "finish"]
    assert b'"error"' not in stage.sink.body


def test_a_lease_of_the_chains_costs_the_node_nothing() -> None:
    stage, run = begun()
    node = stage.turn(run)
    stage.leases.add((node.id, ORDER))
    node.fail("leased", lease=ORDER)
    assert stage.turn(run) is not node
    finish(stage, run)
    assert outcomes(run) == [Outcome.REFUSED, Outcome.DONE]
    broken = run.record.attempts[0]
    assert (broken.reason or "").startswith("leased: ")
    assert broken.tokens == 1, "what it wrote is its own"
    assert result_of(broken, run.record) is None


@pytest.mark.parametrize("code", ["leased", "refused"])
def test_who_drops_an_answer_without_a_lease_has_failed(code: str) -> None:
    stage, run = begun()
    node = stage.turn(run)
    stage.leases.add((node.id, "0x" + "2" * 64))
    node.fail("leased" if code == "leased" else "refused", lease=ORDER)
    finish(stage, run)
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    assert result_of(run.record.attempts[0], run.record) is AttemptResult.PROTOCOL


def test_a_lease_excuses_a_job_without_output_too() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    node = stage.turn(run)
    stage.leases.add((node.id, ORDER))
    node.fail("leased", lease=ORDER)
    assert outcomes(run)[0] is Outcome.REFUSED
    assert stage.turn(run) is not node
