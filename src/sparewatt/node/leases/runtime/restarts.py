"""When a renter's program that ended is started again: as its specification says, with exponential back-off.

The engine restarts nothing, so that every restart is counted here and a container which the chain has taken away is not
started behind the agent's back. Counts are kept in a file, for an agent that starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Backoff
from sparewatt.machine.data_dir import write_private
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer, RestartRule

_log = Logger("sparewatt.node")
FILE = "container-restarts.json"


@dataclass(slots=True)
class _KeptProgram:
    rule: RestartRule
    backoff: Backoff
    due_at_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Of the containers that this agent was told to keep running, by name."""

    rng: Rng
    folder: Path | None = None
    """None: counts end with the process."""
    _kept: dict[str, _KeptProgram] = field(init=False, default_factory=dict)
    _counts: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.folder is not None:
            try:
                self._counts = msgspec.json.decode((self.folder / FILE).read_bytes(), type=dict[str, int])
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                self._counts = {}

    def keep(self, name: str, rule: RestartRule) -> None:
        if name not in self._kept:
            self._kept[name] = _KeptProgram(rule, Backoff(self.rng))

    def let_go(self, name: str) -> None:
        self._kept.pop(name, None)

    def forget(self, name: str) -> None:
        self.let_go(name)
        if self._counts.pop(name, None) is not None:
            self._write()

    def names(self) -> tuple[str, ...]:
        return tuple(self._kept)

    def count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def may_restart(self, name: str, seen: LeaseContainer) -> bool:
        """Whether it will be started again by itself."""
        kept = self._kept.get(name)
        return kept is not None and _wants(kept.rule, seen.exit_code)

    def is_due(self, name: str, seen: LeaseContainer, *, now_s: float) -> bool:
        """Whether it is to be started now. The first call after an end sets the time."""
        kept = self._kept.get(name)
        if kept is None or seen.state is not ContainerState.EXITED or not _wants(kept.rule, seen.exit_code):
            return False
        if kept.due_at_s is None:
            uptime_s = (seen.ended_unix_s or 0.0) - (seen.started_unix_s or 0.0)
            kept.due_at_s = now_s + kept.backoff.next_delay_s(uptime_s=uptime_s)
            return False
        return now_s >= kept.due_at_s

    def restarted(self, name: str) -> None:
        if (kept := self._kept.get(name)) is not None:
            kept.due_at_s = None
        self._counts[name] = self.count(name) + 1
        self._write()

    def _write(self) -> None:
        if self.folder is None:
            return
        try:
            write_private(self.folder / FILE, msgspec.json.encode(self._counts))
        except OSError as error:
            _log.warning("restarts_not_written", why=str(error))


def _wants(rule: RestartRule, exit_code: int | None) -> bool:
    return rule is RestartRule.ALWAYS or (rule is RestartRule.ON_FAILURE and exit_code != 0)
