"""What to do next for one lease: the chain's state of it against the container that is there. Pure.

A task that is missing is no reason to do anything: not hearing is not an end. Only `OVER` removes a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer
from sparewatt.protocol.link.lease_tasks import LeaseTask, TaskState

RENTER_MARGIN_S = 5
"""Before the start has to be confirmed: secrets that are not there by then, and an image that is still being fetched,
are the renter's delay, not this node's."""


class LeaseStep(StrEnum):
    WAIT = "wait"
    START = "start"
    """Pull the image, make the container, or start again one that has ended or is gone; or replace one whose program
    was changed by an update."""
    PAUSE = "pause"
    UNPAUSE = "unpause"
    CONFIRM = "confirm"
    CONFIRM_HELD = "confirm_held"
    """The resources are held; the renter's own image, program or secret keeps it from running."""
    CLAIM = "claim"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """Why the last try to start failed."""

    why: str
    is_renters: bool
    """Image, command or secret; otherwise it is this machine's."""
    retry_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSituation:
    task: LeaseTask | None
    container: LeaseContainer | None
    missing_secrets: tuple[str, ...] = ()
    is_fetching: bool = False
    """The renter's image is on its way."""
    failure: StartFailure | None = None
    content: str = ""
    """The hash of what is to run."""
    may_claim: bool = False
    """The owner offers leases, and there is room for this one."""
    unix_s: float = 0.0


def next_step(now: LeaseSituation) -> LeaseStep:
    if now.task is None:
        return LeaseStep.WAIT
    match now.task.state:
        case TaskState.OVER:
            return LeaseStep.REMOVE
        case TaskState.VACANT:
            if now.container is not None:
                return LeaseStep.REMOVE
            return LeaseStep.CLAIM if now.may_claim else LeaseStep.WAIT
        case TaskState.PAUSED:
            is_running = now.container is not None and now.container.state is ContainerState.RUNNING
            return LeaseStep.PAUSE if is_running else LeaseStep.WAIT
        case TaskState.PENDING | TaskState.ACTIVE:
            return _to_run(now, now.task)
        case _:
            assert_never(now.task.state)


def _to_run(now: LeaseSituation, task: LeaseTask) -> LeaseStep:
    done = LeaseStep.CONFIRM if task.state is TaskState.PENDING else LeaseStep.WAIT
    container = now.container
    if container is None or container.state in (ContainerState.GONE, ContainerState.CREATED):
        return _to_start(now, task)
    if is_outdated(container, now.content):
        return done if (step := _to_start(now, task)) is LeaseStep.WAIT else step  # what ran before runs meanwhile
    if container.state is ContainerState.PAUSED and not container.is_disk_full:
        return LeaseStep.UNPAUSE
    return done  # it runs, or its program has ended: then the runtime starts it again as its renter wants


def is_outdated(container: LeaseContainer, content: str) -> bool:
    """Whether an update was accepted since it was made."""
    return bool(container.content) and bool(content) and container.content != content


def _to_start(now: LeaseSituation, task: LeaseTask) -> LeaseStep:
    is_pending, failure = task.state is TaskState.PENDING, now.failure
    is_late = is_pending and now.unix_s >= task.confirm_by - RENTER_MARGIN_S
    if now.missing_secrets:
        return LeaseStep.CONFIRM_HELD if is_late else LeaseStep.WAIT
    if failure is None:
        return LeaseStep.CONFIRM_HELD if is_late and now.is_fetching else LeaseStep.START
    if failure.is_renters and is_pending:
        return LeaseStep.CONFIRM_HELD
    return LeaseStep.START if now.unix_s >= failure.retry_unix_s else LeaseStep.WAIT
