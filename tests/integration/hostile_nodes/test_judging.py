"""The bounds themselves: each is broken by what it is about, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.integration.hostile_nodes.behaviour import Behaviour, Bounds
from tests.integration.hostile_nodes.clients import Asked, Question
from tests.integration.hostile_nodes.judging import FIRST, Earned, Findings

LIAR = "0xliar"
HONEST = "0xhonest"
COUNT = FIRST + 20


def served(number: int, node: str = HONEST, **more: Any) -> Asked:
    asked = Question(model="m", text=f"[answer 24] {number}")
    made = Asked(
        question=asked, wait_s=0.2, status=200, is_whole=True, text=asked.expected, job=f"j{number}", node=node
    )
    return replace(made, **more)


def findings(*, bounds: Bounds | None = None, **more: Any) -> Findings:
    made = Findings(
        behaviour=Behaviour(name="n", lie="l", bounds=bounds or Bounds()),
        calm_wait_s=0.5,
        liars={LIAR},
        bystanders=[served(number) for number in range(COUNT)],
    )
    return replace(made, **more)


def with_last(asked: Asked) -> Findings:
    return findings(bystanders=[*(served(number) for number in range(COUNT - 1)), asked])


def test_nothing_is_wrong_where_all_are_served() -> None:
    assert findings().broken_bounds() == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"status": 503, "error": "no node"}, "succeeded (no node)"),
        ({"is_whole": False}, "succeeded"),
        ({"error": "cut"}, "succeeded (cut)"),
        ({"text": "something else"}, "succeeded (a wrong text)"),
    ],
)
def test_a_request_that_fails_breaks_the_bound(what: dict[str, Any], said: str) -> None:
    assert any(said in wrong for wrong in with_last(served(COUNT, **what)).broken_bounds())


def test_the_first_ten_may_fail() -> None:
    failed = [served(number, status=503, error="no node") for number in range(FIRST)]
    assert findings(bystanders=[*failed, *(served(number) for number in range(20))]).broken_bounds() == []


def test_a_wrong_text_of_the_liar_alone_is_its_own() -> None:
    found = with_last(served(COUNT, LIAR, text="nonsense"))
    assert found.broken_bounds() == []
    assert found.share == pytest.approx(1 / 20)


def test_its_share_is_bounded_where_the_behaviour_says_so() -> None:
    found = findings(bounds=Bounds(share_max=0.2), bystanders=[served(number, LIAR) for number in range(COUNT)])
    assert found.broken_bounds() == ["the liar answered 100% of others' requests"]


def test_a_long_wait_breaks_the_bound_even_among_the_first() -> None:
    slow = [served(0, wait_s=3.6), *(served(number) for number in range(1, COUNT))]
    assert findings(bystanders=slow).broken_bounds() == ["a request waited 3.1 s longer"]


def earned(asked: Asked, times: float) -> Earned:
    return Earned(
        job=asked.job or "",
        prompt_tokens=asked.question.prompt_tokens,
        completion_tokens=int(times * asked.readable_tokens),
    )


@pytest.mark.parametrize(("times", "is_broken"), [(1.0, False), (1.4, True), (20.0, True)])
def test_pay_is_compared_with_what_could_be_read(times: float, is_broken: bool) -> None:  # noqa: FBT001 (a row)
    pinned = [served(number, LIAR) for number in range(100, 110)]
    found = findings(pinned=pinned, earned=[earned(each, times) for each in pinned])
    assert any("was paid" in wrong for wrong in found.broken_bounds()) is is_broken


def test_characters_without_a_width_are_not_paid() -> None:
    pinned = [served(100, LIAR, text="Yes." + "\u200b" * 500)]
    assert pinned[0].readable_tokens == 2
    found = findings(pinned=pinned, earned=[Earned(job="j100", prompt_tokens=0, completion_tokens=501)])
    assert any("was paid" in wrong for wrong in found.broken_bounds())


def test_pay_for_what_nobody_could_read_is_too_much() -> None:
    found = findings(earned=[Earned(job="unknown", prompt_tokens=0, completion_tokens=100)])
    assert any("was paid" in wrong for wrong in found.broken_bounds())


def test_memory_rejoining_and_leaks_have_bounds() -> None:
    assert findings(memory_bytes=21_000_000).broken_bounds() == ["the gateway grew by 21 MB"]
    late = Bounds(rejoin_s_max=10.0)
    assert findings(bounds=late, rejoin_s=9.0).broken_bounds() == []
    assert findings(bounds=late, rejoin_s=None).broken_bounds() != []
    assert with_last(served(COUNT, leaked=True)).broken_bounds() == ["the liar's error text reached 1 replies"]
    assert findings(marker_logged=True).broken_bounds() == ["the liar's error text is in the gateway's log"]
