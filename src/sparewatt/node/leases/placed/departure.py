"""The owner's notice: by a time all leases leave this machine, each after the notice it was promised, and none comes.

A lease that goes after its notice costs its provider nothing: its key resigns, and a stand-in takes the lease over. The
owner's wish is on disk before anything is signed, so that a restart goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.node.leases.placed.lease_worker import LeaseWorker
from sparewatt.protocol.link.lease_tasks import LeaseTask, TaskState

_log = Logger("sparewatt.node")
FILE = "departure.json"
LOOK_S = 5.0
LEAVE_S = 60.0
"""So long before the owner's time a lease goes: a stand-in starts it meanwhile."""
CLOCK_MARGIN_S = 30.0
"""A machine's clock that is ahead of the chain's by less does not end a notice early, which would cost the bond."""


class LeavingStep(StrEnum):
    WAIT = "wait"
    NOTICE = "notice"
    RESIGN = "resign"
    """The lease goes on elsewhere."""
    CLOSE = "close"
    """A paused lease cannot be handed over: it ends as PROVIDER_RECLAIM."""


def leaving_step(task: LeaseTask, *, by_unix_s: float, unix_s: float) -> LeavingStep:
    """For a lease on a machine that its owner wants back by then. Pure."""
    if task.state not in (TaskState.PENDING, TaskState.ACTIVE, TaskState.PAUSED):
        return LeavingStep.WAIT
    if not task.may_close_at:  # the contract takes no notice before the first start
        return LeavingStep.WAIT if task.state is TaskState.PENDING else LeavingStep.NOTICE
    if unix_s < leaves_at(task, by_unix_s=by_unix_s):
        return LeavingStep.WAIT
    return LeavingStep.CLOSE if task.state is TaskState.PAUSED else LeavingStep.RESIGN


def leaves_at(task: LeaseTask, *, by_unix_s: float) -> float:
    """When it goes: never before its notice is over. 0: its notice is not on the chain yet."""
    return max(task.may_close_at + CLOCK_MARGIN_S, by_unix_s - LEAVE_S) if task.may_close_at else 0.0


class StoredDeparture(msgspec.Struct, frozen=True):
    by_unix_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class Departure:
    data_dir: Path
    workers: Callable[[], Iterable[LeaseWorker]]
    clock: Clock
    by_unix_s: float | None = field(init=False, default=None)
    """None: the owner wants no lease to leave."""

    def __post_init__(self) -> None:
        """Raises StartupError if the saved wish cannot be read."""
        path = self.data_dir / FILE
        try:
            self.by_unix_s = msgspec.json.decode(path.read_bytes(), type=StoredDeparture).by_unix_s
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StartupError(
                f"{path} cannot be read ({error}). Remove it, and set 'node drain --by' again."
            ) from None

    @property
    def is_leaving(self) -> bool:
        return self.by_unix_s is not None

    def begin(self, by_unix_s: float) -> None:
        """Raises OSError; then nothing has changed."""
        make_private_dir(self.data_dir)
        write_private(self.data_dir / FILE, msgspec.json.encode(StoredDeparture(by_unix_s)))
        self.by_unix_s = by_unix_s

    def cancel(self) -> None:
        """A notice that is on the chain stays there; it obliges nobody. Raises OSError."""
        (self.data_dir / FILE).unlink(missing_ok=True)
        self.by_unix_s = None

    async def run(self) -> None:
        while True:
            self.look()
            await sleep_until(self.clock, self.clock.now_s() + LOOK_S)

    def look(self) -> None:
        """Sign what is due. Said again until the chain has it."""
        if self.by_unix_s is None:
            return
        for worker in list(self.workers()):
            if not worker.is_told or worker.is_done:
                continue
            match leaving_step(worker.task, by_unix_s=self.by_unix_s, unix_s=self.clock.unix_s()):
                case LeavingStep.NOTICE:
                    worker.give_notice()
                case LeavingStep.RESIGN:
                    worker.resign()
                case LeavingStep.CLOSE:
                    worker.close_after_notice()
                case LeavingStep.WAIT:
                    pass

    def status(self) -> dict[str, Any]:
        """Ready for JSON."""
        by = self.by_unix_s
        placed = [worker.task for worker in self.workers() if worker.is_placed and not worker.is_done]
        leases = [
            {
                "order": task.order_id,
                "state": task.state.value,
                "notice_ends_at": task.may_close_at or None,
                "leaves_at": (leaves_at(task, by_unix_s=by) or None) if by is not None else None,
            }
            for task in placed
        ]
        return {"by": by, "leases": leases}
