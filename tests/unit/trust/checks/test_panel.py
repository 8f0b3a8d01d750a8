"""One prompt on several nodes: who passes, who fails, and when nobody can say."""

from __future__ import annotations

import pytest

from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.panel import PanelAnswer, confirm, judge
from sparewatt.trust.checks.tolerance import NO_PAIRS

HAZARD = NO_PAIRS.hazard
RIGHT, WRONG = tuple(f" w{number}" for number in range(30)), tuple(f" x{number}" for number in range(30))
PASSED, FAILED, UNDECIDED = CheckResult.PASSED, CheckResult.FAILED, CheckResult.UNDECIDED


def answer(
    node: str, pieces: tuple[str, ...] = RIGHT, *, owner: str | None = None, trusted: bool = False
) -> PanelAnswer:
    return PanelAnswer(node, owner or f"owner of {node}", trusted, pieces)


def results(*answers: PanelAnswer, kind: CheckKind = "probe") -> list[CheckResult]:
    return [verdict.result for verdict in judge(answers, kind=kind, hazard=HAZARD)]


def test_three_strangers_that_agree_pass_and_fail_the_one_that_does_not() -> None:
    assert results(answer("a"), answer("b"), answer("c"), answer("liar", WRONG)) == [PASSED, PASSED, PASSED, FAILED]


def test_two_trusted_nodes_are_enough() -> None:
    known = answer("a", trusted=True), answer("b", trusted=True)
    assert results(*known, answer("liar", WRONG)) == [PASSED, PASSED, FAILED]


def test_two_strangers_prove_nothing_on_a_prompt_of_the_networks_own() -> None:
    assert results(answer("a"), answer("b"), answer("c", WRONG)) == [UNDECIDED] * 3


def test_three_nodes_of_one_owner_are_one_witness() -> None:
    same = [answer(name, WRONG, owner="mallory") for name in ("x", "y", "z")]
    assert results(answer("honest"), *same) == [UNDECIDED] * 4


def test_three_liars_of_one_owner_do_not_outvote_two_trusted_nodes() -> None:
    same = [answer(name, WRONG, owner="mallory") for name in ("x", "y", "z")]
    assert results(answer("a", trusted=True), answer("b", trusted=True), *same) == [PASSED, PASSED, *[FAILED] * 3]


def test_strangers_that_agree_do_not_outvote_trusted_nodes() -> None:
    liars = [answer(name, WRONG) for name in ("x", "y", "z")]
    assert results(answer("a", trusted=True), answer("b", trusted=True), *liars)[:2] == [PASSED, PASSED]


def test_agreeing_with_one_trusted_node_passes_and_failing_it_alone_does_not_fail() -> None:
    assert results(answer("a", trusted=True), answer("new")) == [UNDECIDED, PASSED]
    assert results(answer("a", trusted=True), answer("new", WRONG))[1] is UNDECIDED


def test_a_rerun_on_a_second_node_passes_if_they_agree() -> None:
    assert results(answer("a"), answer("b"), kind="rerun") == [PASSED, PASSED]


@pytest.mark.parametrize(("third", "expected"), [(RIGHT, [PASSED, FAILED, PASSED]), (WRONG, [FAILED, PASSED, PASSED])])
def test_of_three_reruns_the_odd_one_fails(third: tuple[str, ...], expected: list[CheckResult]) -> None:
    assert results(answer("a"), answer("b", WRONG), answer("c", third), kind="rerun") == expected


def test_two_reruns_that_differ_say_nothing_unless_one_is_trusted() -> None:
    assert results(answer("a"), answer("b", WRONG), kind="rerun") == [UNDECIDED, UNDECIDED]
    assert results(answer("a", WRONG), answer("b", trusted=True), kind="rerun")[0] is FAILED


def test_a_difference_late_in_the_answer_is_agreement() -> None:
    late = (*RIGHT[:20], " y")
    assert results(answer("a"), answer("b"), answer("c", late)) == [PASSED, PASSED, PASSED]


def test_a_verdict_names_the_witness_and_the_first_difference() -> None:
    verdict = judge([answer("a"), answer("b"), answer("c"), answer("liar", WRONG)], kind="probe", hazard=HAZARD)[3]
    assert verdict.witness == "a"
    assert verdict.comparison is not None
    assert verdict.comparison.position == 0


def test_who_fails_one_of_two_prompts_has_not_failed() -> None:
    panel = [answer("a"), answer("b"), answer("c")]
    failed = judge([*panel, answer("d", WRONG)], kind="probe", hazard=HAZARD)
    passed = judge([*panel, answer("d")], kind="probe", hazard=HAZARD)
    assert [each.result for each in confirm(failed, failed)][3] is FAILED
    assert [each.result for each in confirm(passed, failed)][3] is UNDECIDED
    assert [each.result for each in confirm(failed, passed)][3] is PASSED
