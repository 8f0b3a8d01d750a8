"""What verdicts mean for a node and its money."""

from __future__ import annotations

from sparewatt.trust.checks.comparison import Comparison
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.standing import (
    BARRED_S,
    TRUSTED_PASSES,
    CheckRecord,
    CheckState,
    Consequence,
    after_term,
    next_record,
    overturned,
    settled_result,
)
from sparewatt.trust.checks.tolerance import NO_PAIRS

SAME, EARLY = Comparison(40, differs=False), Comparison(0, differs=True)


Judged = tuple[CheckKind, CheckResult]


def judged(record: CheckRecord, *verdicts: Judged) -> tuple[CheckRecord, list[Consequence]]:
    found = []
    for kind, result in verdicts:
        comparison = SAME if result is CheckResult.PASSED else EARLY
        record, consequence = next_record(record, kind, result, comparison, unix_s=100.0)
        found.append(consequence)
    return record, found


PASS: Judged = ("probe", CheckResult.PASSED)
FAIL: Judged = ("probe", CheckResult.FAILED)
FAIL_RERUN: Judged = ("rerun", CheckResult.FAILED)


def test_a_pass_releases_what_was_earned() -> None:
    record, consequences = judged(CheckRecord(), PASS)
    assert record.state is CheckState.PASSING
    assert not record.is_suspended
    assert consequences == [Consequence.RELEASE]


def test_the_first_failure_stops_paid_traffic_and_costs_nothing() -> None:
    record, consequences = judged(CheckRecord(), PASS, FAIL)
    assert record.state is CheckState.SUSPECT
    assert record.is_suspended
    assert consequences[-1] is Consequence.NONE


def test_a_pass_after_the_first_failure_ends_the_suspicion() -> None:
    record, consequences = judged(CheckRecord(), FAIL, PASS)
    assert record.state is CheckState.PASSING
    assert record.failed_probes == 0
    assert consequences[-1] is Consequence.RELEASE


def test_two_failures_on_the_networks_prompts_forfeit() -> None:
    record, consequences = judged(CheckRecord(), FAIL, FAIL)
    assert record.state is CheckState.BARRED
    assert consequences == [Consequence.NONE, Consequence.FORFEIT]


def test_failures_on_customers_requests_alone_never_forfeit() -> None:
    record, consequences = judged(CheckRecord(), *[FAIL_RERUN] * 10)
    assert record.state is CheckState.SUSPECT
    assert set(consequences) == {Consequence.NONE}


def test_a_failed_rerun_counts_as_no_failed_probe() -> None:
    record, consequences = judged(CheckRecord(), FAIL_RERUN, FAIL)
    assert record.state is CheckState.SUSPECT
    assert Consequence.FORFEIT not in consequences
    assert judged(record, FAIL)[1] == [Consequence.FORFEIT]


def test_what_is_undecided_and_the_form_of_answers_change_nothing() -> None:
    record = CheckRecord(CheckState.SUSPECT, failed_probes=1)
    assert judged(record, ("probe", CheckResult.UNDECIDED)) == (record, [Consequence.NONE])
    assert judged(record, ("schema", CheckResult.FAILED)) == (record, [Consequence.NONE])


def test_a_barred_node_earns_no_way_back_but_time() -> None:
    barred, _ = judged(CheckRecord(), FAIL, FAIL)
    assert judged(barred, PASS)[0] == barred
    assert after_term(barred, unix_s=100.0 + BARRED_S - 1) == barred
    assert after_term(barred, unix_s=100.0 + BARRED_S) == CheckRecord()


def test_a_node_is_trusted_after_many_passes_and_not_after_a_failure_among_them() -> None:
    record, _ = judged(CheckRecord(), *[PASS] * TRUSTED_PASSES)
    assert record.is_trusted
    assert not judged(record, FAIL, PASS)[0].is_trusted


def test_a_retrial_that_finds_for_the_node_undoes_the_verdict() -> None:
    barred, _ = judged(CheckRecord(), FAIL, FAIL)
    assert overturned(barred).state is CheckState.PASSING
    assert overturned(barred).barred_until_unix_s is None


def test_a_node_that_always_differs_a_little_fails_in_the_end() -> None:
    record, slightly = CheckRecord(), Comparison(4, differs=True)
    results = []
    for _ in range(6):
        result = settled_result(record, CheckResult.PASSED, slightly, hazard=NO_PAIRS.hazard)
        record, _ = next_record(record, "probe", result, slightly, unix_s=0.0)
        results.append(result)
    assert CheckResult.FAILED in results


def test_an_honest_record_fades_and_never_fails_by_its_length() -> None:
    record = CheckRecord()
    for number in range(500):
        comparison = Comparison(50, differs=number % 8 == 0)
        assert settled_result(record, CheckResult.PASSED, comparison, hazard=NO_PAIRS.hazard) is CheckResult.PASSED
        record, _ = next_record(record, "probe", CheckResult.PASSED, comparison, unix_s=0.0)
