"""What a node does next for a lease: a table of what the chain says against what the runtime shows."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.leases.placed.steps import RENTER_MARGIN_S, LeaseSituation, LeaseStep, StartFailure, next_step
from sparewatt.node.leases.placed.task_check import label_of
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer
from sparewatt.protocol.link.lease_tasks import TaskState
from tests.unit.node.leases.placed.placed_world import task

NODE = "0x" + "7" * 40
STATES = [*TaskState]
CONTAINERS: list[ContainerState | None] = [None, *ContainerState]
RENTERS = StartFailure(why="no image", is_renters=True, retry_unix_s=100.0)
MACHINES = StartFailure(why="no room", is_renters=False, retry_unix_s=100.0)


def container(state: ContainerState, **changes: Any) -> LeaseContainer:
    return LeaseContainer(container_id="1", label=label_of(task(), node=NODE), state=state, **changes)


def step(state: TaskState, shown: ContainerState | None, **changes: Any) -> LeaseStep:
    found = None if shown is None else container(shown)
    return next_step(LeaseSituation(task=task(state=state), container=found, **changes))


@pytest.mark.parametrize("shown", CONTAINERS)
def test_what_nobody_spoke_of_is_left_as_it_is(shown: ContainerState | None) -> None:
    found = None if shown is None else container(shown)
    assert next_step(LeaseSituation(task=None, container=found)) is LeaseStep.WAIT


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shown", CONTAINERS)
def test_only_a_lease_that_is_over_or_vacant_loses_its_container(
    state: TaskState, shown: ContainerState | None
) -> None:
    is_removed = step(state, shown) is LeaseStep.REMOVE
    assert is_removed == (state is TaskState.OVER or (state is TaskState.VACANT and shown is not None))


@pytest.mark.parametrize(
    ("state", "shown", "expected"),
    [
        (TaskState.PENDING, None, LeaseStep.START),
        (TaskState.PENDING, ContainerState.GONE, LeaseStep.START),
        (TaskState.PENDING, ContainerState.CREATED, LeaseStep.START),
        (TaskState.PENDING, ContainerState.RUNNING, LeaseStep.CONFIRM),
        (TaskState.PENDING, ContainerState.EXITED, LeaseStep.CONFIRM),
        (TaskState.PENDING, ContainerState.PAUSED, LeaseStep.UNPAUSE),
        (TaskState.ACTIVE, None, LeaseStep.START),
        (TaskState.ACTIVE, ContainerState.RUNNING, LeaseStep.WAIT),
        (TaskState.ACTIVE, ContainerState.EXITED, LeaseStep.WAIT),
        (TaskState.ACTIVE, ContainerState.PAUSED, LeaseStep.UNPAUSE),
        (TaskState.PAUSED, ContainerState.RUNNING, LeaseStep.PAUSE),
        (TaskState.PAUSED, ContainerState.PAUSED, LeaseStep.WAIT),
        (TaskState.PAUSED, None, LeaseStep.WAIT),
        (TaskState.VACANT, None, LeaseStep.WAIT),
    ],
)
def test_the_container_follows_the_chain(state: TaskState, shown: ContainerState | None, expected: LeaseStep) -> None:
    assert step(state, shown) is expected


def test_a_stand_in_claims_if_its_owner_offers_and_there_is_room() -> None:
    assert step(TaskState.VACANT, None, may_claim=True) is LeaseStep.CLAIM


def test_a_container_that_fills_its_disk_stays_paused() -> None:
    full = container(ContainerState.PAUSED, is_disk_full=True)
    active, pending = (
        next_step(LeaseSituation(task=task(state=state), container=full))
        for state in (TaskState.ACTIVE, TaskState.PENDING)
    )
    assert (active, pending) == (LeaseStep.WAIT, LeaseStep.CONFIRM)


def test_secrets_are_waited_for_until_the_start_has_to_be_confirmed() -> None:
    waiting = task(confirm_by=1_000)
    early, late = (
        next_step(LeaseSituation(task=waiting, container=None, missing_secrets=("TOKEN",), unix_s=unix_s))
        for unix_s in (999 - RENTER_MARGIN_S, 1_000 - RENTER_MARGIN_S)
    )
    assert (early, late) == (LeaseStep.WAIT, LeaseStep.CONFIRM_HELD)
    assert step(TaskState.ACTIVE, None, missing_secrets=("TOKEN",), unix_s=9e9) is LeaseStep.WAIT


def test_an_image_on_its_way_is_confirmed_as_held_before_the_start_is_late() -> None:
    waiting = task(confirm_by=1_000)
    early, late, other = (
        next_step(LeaseSituation(task=waiting, container=None, is_fetching=is_fetching, unix_s=unix_s))
        for is_fetching, unix_s in ((True, 999 - RENTER_MARGIN_S), (True, 1_000 - RENTER_MARGIN_S), (False, 999))
    )
    assert (early, late, other) == (LeaseStep.START, LeaseStep.CONFIRM_HELD, LeaseStep.START)
    assert step(TaskState.ACTIVE, None, is_fetching=True, unix_s=9e9) is LeaseStep.START


def test_what_the_renter_got_wrong_is_confirmed_as_held_and_tried_again_later() -> None:
    assert step(TaskState.PENDING, None, failure=RENTERS, unix_s=1.0) is LeaseStep.CONFIRM_HELD
    assert step(TaskState.ACTIVE, None, failure=RENTERS, unix_s=1.0) is LeaseStep.WAIT
    assert step(TaskState.ACTIVE, None, failure=RENTERS, unix_s=100.0) is LeaseStep.START


def test_what_this_machine_cannot_do_is_tried_again_and_never_confirmed() -> None:
    assert step(TaskState.PENDING, None, failure=MACHINES, unix_s=1.0) is LeaseStep.WAIT
    assert step(TaskState.PENDING, None, failure=MACHINES, unix_s=100.0) is LeaseStep.START


def test_a_program_that_was_changed_is_replaced_and_runs_on_while_that_fails() -> None:
    def of(state: TaskState, *, ran: str, **changes: Any) -> LeaseStep:
        found = container(ContainerState.RUNNING, content=ran)
        return next_step(LeaseSituation(task=task(state=state), container=found, content="0xb", **changes))

    assert of(TaskState.ACTIVE, ran="0xa") is LeaseStep.START
    assert of(TaskState.ACTIVE, ran="0xb") is LeaseStep.WAIT
    assert of(TaskState.ACTIVE, ran="") is LeaseStep.WAIT, "nothing is known of what an earlier release started"
    assert of(TaskState.ACTIVE, ran="0xa", failure=RENTERS, unix_s=99.0) is LeaseStep.WAIT
    assert of(TaskState.ACTIVE, ran="0xa", failure=RENTERS, unix_s=100.0) is LeaseStep.START
    assert of(TaskState.PAUSED, ran="0xa") is LeaseStep.PAUSE
    assert of(TaskState.OVER, ran="0xa") is LeaseStep.REMOVE
