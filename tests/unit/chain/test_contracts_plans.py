"""The plans that ship: the same contracts in the same order, with the times that the guide promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.chain.contracts import (
    LOCAL_PLAN,
    PUBLIC_PLAN,
    DeploymentStep,
    read_plan,
    shipped_artifacts,
    shipped_plan,
)
from sparewatt.core.errors import StartupError

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "chain.md"
KEYS = {"$deployer", "$operator", "$guardian"}


def flat(args: tuple[object, ...]) -> Iterator[object]:
    for arg in args:
        yield from flat(tuple(arg)) if isinstance(arg, list) else (arg,)


def names(step: DeploymentStep) -> list[str]:
    return [arg for arg in flat(step.args) if isinstance(arg, str)]


def numbers(plan: str) -> dict[str, list[int]]:
    return {
        step.create or step.call: [arg for arg in flat(step.args) if isinstance(arg, int)]
        for step in shipped_plan(plan)
    }


@pytest.mark.parametrize("plan", [LOCAL_PLAN, PUBLIC_PLAN])
def test_a_plan_makes_every_contract_after_those_that_it_names(plan: str) -> None:
    made = set(KEYS) if plan == LOCAL_PLAN else {*KEYS, "$token"}
    for step in shipped_plan(plan):
        assert set(names(step)) <= made, step
        if step.create:
            made.add(f"${step.create}")
    assert made == KEYS | {f"${name}" for name in shipped_artifacts()}


def test_the_public_plan_is_the_local_one_without_the_token_that_anyone_can_mint() -> None:
    local, public = shipped_plan(LOCAL_PLAN), shipped_plan(PUBLIC_PLAN)
    assert local[0] == DeploymentStep(create="token")
    assert [(step.create, step.call, names(step)) for step in local[1:]] == [
        (step.create, step.call, names(step)) for step in public
    ]


@pytest.mark.parametrize(("plan", "column"), [(LOCAL_PLAN, 1), (PUBLIC_PLAN, 2)])
def test_the_guide_has_the_times_of_the_plans(plan: str, column: int) -> None:
    given = numbers(plan)
    min_stake, *times, activate_s = given["stake_registry"]
    spacing_s, (book_s, _), (root_delay_s, exit_s, bound_s) = (
        given["task_manager"][0],
        given["dispute_book"],
        given["settlement"],
    )
    rows = [line.split("|")[1:4] for line in GUIDE.read_text().splitlines() if re.match(r"\|.*\d \|$", line)]
    told = [int(row[column].replace(",", "")) for row in rows]
    assert told == [*times, activate_s, book_s, spacing_s, root_delay_s, exit_s, min_stake // 10**6]
    attempt_s, challenge_s, unbond_s = times
    assert unbond_s >= 2 * (attempt_s + challenge_s)
    assert exit_s >= 2 * root_delay_s + book_s
    assert bound_s == book_s
    assert plan == LOCAL_PLAN or activate_s >= challenge_s


def test_a_file_that_is_no_plan_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('[{"make": "token"}]')
    with pytest.raises(StartupError, match="no plan of a deployment"):
        read_plan(path)
