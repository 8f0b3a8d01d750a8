"""An owner wants the machine back: notice first, then each lease goes, never early, and a restart forgets nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.leases.placed.departure import (
    CLOCK_MARGIN_S,
    FILE,
    LEAVE_S,
    Departure,
    LeavingStep,
    leaves_at,
    leaving_step,
)
from sparewatt.protocol.contracts.lease_acts import is_signed_by
from sparewatt.protocol.link.lease_tasks import ActKind, TaskState
from sparewatt.testing.clocks import ManualClock
from sparewatt.testing.memory_runtime import MemoryEngine
from tests.unit.node.leases.lease_world import NODE_KEY
from tests.unit.node.leases.placed.placed_world import CONTRACTS, IMAGE, Node, running, task, until

NOTICE_ENDS = 1_000
OVER = NOTICE_ENDS + CLOCK_MARGIN_S


@pytest.mark.parametrize(
    ("state", "noticed", "unix_s", "by", "step"),
    [
        (TaskState.ACTIVE, 0, 0, 500, LeavingStep.NOTICE),
        (TaskState.PAUSED, 0, 0, 500, LeavingStep.NOTICE),
        (TaskState.PENDING, 0, 0, 500, LeavingStep.WAIT),
        (TaskState.VACANT, 0, 0, 500, LeavingStep.WAIT),
        (TaskState.OVER, NOTICE_ENDS, 9_999, 500, LeavingStep.WAIT),
        (TaskState.ACTIVE, NOTICE_ENDS, OVER - 1, 500, LeavingStep.WAIT),
        (TaskState.ACTIVE, NOTICE_ENDS, OVER, 500, LeavingStep.RESIGN),
        (TaskState.PENDING, NOTICE_ENDS, OVER, 500, LeavingStep.RESIGN),
        (TaskState.PAUSED, NOTICE_ENDS, OVER, 500, LeavingStep.CLOSE),
        (TaskState.ACTIVE, NOTICE_ENDS, OVER, 5_000, LeavingStep.WAIT),
        (TaskState.ACTIVE, NOTICE_ENDS, 5_000 - LEAVE_S, 5_000, LeavingStep.RESIGN),
    ],
)
def test_what_is_signed_for_a_lease_that_has_to_leave(
    state: TaskState, noticed: int, unix_s: float, by: float, step: LeavingStep
) -> None:
    given = task(state=state, may_close_at=noticed)
    assert leaving_step(given, by_unix_s=by, unix_s=unix_s) is step


def test_no_hurry_of_the_owner_ends_a_notice_early() -> None:
    given = task(state=TaskState.ACTIVE, may_close_at=NOTICE_ENDS)
    assert leaves_at(given, by_unix_s=0) > NOTICE_ENDS
    assert leaves_at(task(state=TaskState.ACTIVE), by_unix_s=0) == 0, "not known before it is on the chain"


def a_departure(folder: Path, **changes: Any) -> Departure:
    return Departure(data_dir=folder, workers=changes.get("workers", tuple), clock=ManualClock())


def test_the_wish_is_on_disk_and_outlives_the_agent(tmp_path: Path) -> None:
    departure = a_departure(tmp_path)
    assert not departure.is_leaving
    departure.begin(5_000.0)
    again = a_departure(tmp_path)
    assert (again.is_leaving, again.by_unix_s, again.status()) == (True, 5_000.0, {"by": 5_000.0, "leases": []})
    again.cancel()
    again.cancel()
    assert not a_departure(tmp_path).is_leaving


def test_a_damaged_wish_is_told_and_not_guessed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(StartupError, match="drain --by"):
        a_departure(tmp_path)


async def test_notice_is_signed_with_the_nodes_key_and_then_it_resigns(tmp_path: Path) -> None:
    engine = MemoryEngine(images=[IMAGE])
    async with running(Node(tmp_path, engine)) as node:
        given = task(state=TaskState.ACTIVE, acts_nonce=4)
        node.runner.on_task(given)
        await until(lambda: bool(engine.containers), "it does not run")
        departure = a_departure(tmp_path, workers=node.runner.workers.values)
        departure.look()
        assert node.acts() == []
        departure.begin(0.0)
        departure.look()
        (notice,) = node.acts()
        assert (notice.kind, notice.nonce) == (ActKind.NOTICE, 4)
        assert is_signed_by(NODE_KEY.address, notice, contracts=CONTRACTS)
        assert departure.status()["leases"][0]["notice_ends_at"] is None
        noticed = msgspec.structs.replace(given, may_close_at=1, block_number=given.block_number + 1)
        node.runner.on_task(noticed)
        await until(lambda: node.worker(given).task.may_close_at == 1, "the task did not arrive")
        departure.look()
        assert (node.acts()[-1].kind, node.acts()[-1].term) == (ActKind.RESIGN, 1)
        assert is_signed_by(NODE_KEY.address, node.acts()[-1], contracts=CONTRACTS)
        assert engine.containers, "it runs until the chain has it elsewhere"
    await engine.close()


async def test_before_a_gateway_has_spoken_nothing_is_signed(tmp_path: Path) -> None:
    engine = MemoryEngine(images=[IMAGE])
    given = task(state=TaskState.ACTIVE)
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(engine.containers), "it does not run")
    second = Node(tmp_path, engine)
    await second.runner.restore()
    departure = a_departure(tmp_path, workers=second.runner.workers.values)
    departure.begin(0.0)
    departure.look()
    assert (second.acts(), len(departure.status()["leases"])) == ([], 1)
    await engine.close()
