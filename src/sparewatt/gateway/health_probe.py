"""Finds out what keeps a gateway process from being ready: its disk, its journal, its database, its sibling processes.

What the findings mean is decided by a pure function; `HealthState` smooths it, and each change is logged once. No
request waits for a probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from sparewatt.core.clock import Clock
from sparewatt.core.errors import DiskFull, StoreUnavailable
from sparewatt.core.health import HealthCause, HealthChange, HealthCode, HealthState
from sparewatt.core.log import Logger
from sparewatt.machine.disk import free_bytes, is_disk_full
from sparewatt.postgres.server import DISK_BYTES_MIN

_log = Logger("sparewatt.gateway")
PROBE_S = 0.25
DATABASE_PROBE_S = 0.5
DATABASE_ANSWERS_S = 3.0
DATABASE_FULL_S = 10.0
"""How long the database counts as out of space after it said so: what it was told to write is tried again meanwhile."""


class ProbedJournal(Protocol):
    """Implemented by `Journal`."""

    @property
    def path(self) -> Path: ...

    def check(self) -> OSError | None: ...


class ProbedDatabase(Protocol):
    """Implemented by `Database`."""

    async def ping(self) -> None: ...

    def take_disk_full(self) -> bool: ...


class SiblingProcesses(Protocol):
    """Implemented by `Peers`."""

    def hung(self) -> tuple[int, ...]: ...


class HealthFindings(NamedTuple):
    """What one round of probes has found."""

    data: Path
    """The data directory of this gateway."""
    journal: Path | None = None
    journal_error: OSError | None = None
    is_database_away: bool = False
    is_database_full: bool = False
    """It said so itself, or its files are on this disk and there is no room for them."""
    hung: tuple[int, ...] = ()
    """Numbers of processes of this gateway."""


def causes_of(found: HealthFindings) -> Iterator[HealthCause]:
    """What is wrong, by its root cause: a database that has no room for its files is a full disk, and not away."""
    error, where = found.journal_error, str(found.journal or found.data)
    is_journal_full = error is not None and is_disk_full(error)
    if is_journal_full:
        words = "The disk of this gateway is full: it takes no new requests until there is room. Running answers end."
        yield HealthCause(HealthCode.DISK_FULL, words, where)
    elif found.is_database_full:
        words = "The disk of this network's database is full: nothing new can be stored until there is room."
        yield HealthCause(HealthCode.DISK_FULL, words, f"the database; free space under {found.data} if it is there")
    if error is not None and not is_journal_full:
        words = f"This gateway cannot write its journal ({error.strerror}): it takes no new requests."
        yield HealthCause(HealthCode.JOURNAL_UNWRITABLE, words, where)
    if found.is_database_away and not (is_journal_full or found.is_database_full):
        words = "This network's database is away. Answers still work for accounts that used this gateway just before."
        yield HealthCause(HealthCode.DATABASE_UNAVAILABLE, words)
    if found.hung:
        numbers = ", ".join(str(number + 1) for number in found.hung)
        words = "A process of this gateway does not answer. It is being replaced; try again in a moment."
        yield HealthCause(HealthCode.PROCESS_HUNG, words, f"process {numbers}")


def log_health_change(change: HealthChange) -> None:
    code, where, message = change.cause.code.value, change.cause.where, change.cause.message
    if change.is_raised:
        _log.warning("gateway_not_ready", cause=code, where=where, says=message)
    else:
        _log.info("gateway_recovered", cause=code, where=where, lasted_s=round(change.lasted_s, 1))


@dataclass(slots=True, kw_only=True)
class HealthProbe:
    state: HealthState
    data: Path
    journal: ProbedJournal | None
    """None on a network without books: nothing is written here then."""
    database: ProbedDatabase
    siblings: SiblingProcesses
    clock: Clock
    _is_database_away: bool = False
    _database_full_until_s: float = 0.0

    async def check(self) -> None:
        """Everything but the database, which may take its time to answer."""
        now_s = self.clock.now_s()
        journal = self.journal
        found = HealthFindings(
            data=self.data,
            journal=journal.path if journal is not None else None,
            journal_error=journal.check() if journal is not None else None,
            is_database_away=self._is_database_away,
            is_database_full=now_s < self._database_full_until_s or (self._is_database_away and is_low(self.data)),
            hung=self.siblings.hung(),
        )
        self.state.update(causes_of(found), now_s=now_s)

    async def check_database(self) -> None:
        is_full = False
        try:
            async with asyncio.timeout(DATABASE_ANSWERS_S):
                await self.database.ping()
            self._is_database_away = False
        except DiskFull:
            self._is_database_away = is_full = True
        except (StoreUnavailable, TimeoutError):
            self._is_database_away = True
        if self.database.take_disk_full() or is_full:
            self._database_full_until_s = self.clock.now_s() + DATABASE_FULL_S


def is_low(data: Path) -> bool:
    """Whether an embedded Postgres on the disk of this folder has no room to go on."""
    with suppress(OSError):
        return free_bytes(data) < DISK_BYTES_MIN
    return False
