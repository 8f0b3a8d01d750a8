"""Checked answers in the simulated world, with error rates measured with real servers."""

from __future__ import annotations

import random
from dataclasses import replace

from sparewatt.sim.scenario import FaultRates, read_check_errors
from sparewatt.sim.study import StudyConfig, make_case, run_scheduler
from sparewatt.trust.checks.frequency import CheckHistory, check_share
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.panel import PanelAnswer, confirm, judge
from sparewatt.trust.checks.standing import CheckRecord, CheckState, next_record, settled_result
from sparewatt.trust.checks.tolerance import NO_PAIRS

JOBS = 1_000_000
TRUE = tuple(f" w{number}" for number in range(50))
ERRORS = read_check_errors()


def answers(rng: random.Random, early: float) -> list[PanelAnswer]:
    """A node among three strangers that agree: the least that can fail it."""
    pieces = (" else", *TRUE[1:]) if rng.random() < early else TRUE
    others = [PanelAnswer(name, name, is_trusted=False, pieces=TRUE) for name in ("a", "b", "c")]
    return [PanelAnswer("node", "node", is_trusted=False, pieces=pieces), *others]


def checked(record: CheckRecord, rng: random.Random, kind: CheckKind, *, early: float) -> CheckRecord:
    """One more check of a node whose answers differ so often."""
    hazard = NO_PAIRS.hazard
    verdicts = judge(answers(rng, early), kind=kind, hazard=hazard)
    if kind == "probe" and verdicts[0].result is CheckResult.FAILED:
        verdicts = confirm(verdicts, judge(answers(rng, early), kind=kind, hazard=hazard))
    result = settled_result(record, verdicts[0].result, verdicts[0].comparison, hazard=hazard)
    return next_record(record, kind, result, verdicts[0].comparison, unix_s=0.0)[0]


def test_no_honest_node_loses_money_in_a_million_jobs_with_the_measured_error_rates() -> None:
    rng, record, checks, suspicions = random.Random(1), CheckRecord(), 0, 0  # noqa: S311 (repeatable)
    for _ in range(JOBS):
        if rng.random() >= check_share(CheckHistory(record.passed, record.is_suspended)):
            continue
        checks += 1
        record = checked(record, rng, "probe" if record.is_suspended else "rerun", early=ERRORS.honest_early)
        suspicions += record.is_suspended
        assert record.state is not CheckState.BARRED
    assert 4_000 < checks < 8_000, "half a percent of the jobs, and the first ones after each suspicion"
    assert suspicions < 0.05 * checks


def test_a_node_with_a_weaker_model_is_barred_within_a_few_checks() -> None:
    needed = []
    for seed in range(200):
        rng, record, checks = random.Random(seed), CheckRecord(), 0  # noqa: S311 (repeatable)
        while record.state is not CheckState.BARRED:
            checks += 1
            record = checked(record, rng, "probe", early=ERRORS.other_early)
        needed.append(checks)
    assert sum(needed) / len(needed) < 4
    assert max(needed) < 20


def test_checks_keep_worthless_answers_from_clients_of_a_small_fleet() -> None:
    config = StudyConfig(
        nodes=60, rate=12.0, duration_s=60.0, seeds=1, schedulers=("balanced",), faults=FaultRates(garbage=0.1)
    )
    with_checks = run_scheduler(make_case(config, None, seed=1), "balanced").summary
    without = run_scheduler(make_case(replace(config, checks=False), None, seed=1), "balanced").summary
    assert without.garbage_answers > 0.02
    # Of some models there are two nodes: who is right there, nobody can say.
    assert with_checks.garbage_answers < 0.3 * without.garbage_answers
    assert without.checked == 0.0 < with_checks.checked
