"""What the probes of a gateway mean, and what is said of it on the public port, the metrics port and in the log."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from sparewatt.core.errors import DiskFull, StoreUnavailable
from sparewatt.core.health import CLEAR_AFTER_S, HealthCause, HealthChange, HealthCode, HealthState
from sparewatt.gateway import health_probe
from sparewatt.gateway.health_probe import (
    DATABASE_FULL_S,
    HealthFindings,
    HealthProbe,
    causes_of,
    is_low,
    log_health_change,
)
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import make_services, running

DATA, JOURNAL = Path("/var/lib/sparewatt"), Path("/var/lib/sparewatt/journals/gw_1/jobs.journal")
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


def codes(**found: Any) -> list[str]:
    findings = HealthFindings(DATA)._replace(**found)
    return [cause.code.value for cause in causes_of(findings)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, []),
        ({"journal_error": NO_SPACE}, ["disk_full"]),
        ({"journal_error": BROKEN}, ["journal_unwritable"]),
        ({"is_database_away": True}, ["database_unavailable"]),
        ({"is_database_full": True}, ["disk_full"]),
        ({"is_database_away": True, "is_database_full": True}, ["disk_full"]),
        ({"is_database_away": True, "journal_error": NO_SPACE}, ["disk_full"]),
        ({"is_database_away": True, "journal_error": BROKEN}, ["journal_unwritable", "database_unavailable"]),
        ({"is_database_full": True, "journal_error": BROKEN}, ["disk_full", "journal_unwritable"]),
        ({"hung": (1,)}, ["process_hung"]),
        ({"hung": (0, 2), "journal_error": NO_SPACE}, ["disk_full", "process_hung"]),
    ],
)
def test_the_root_cause_is_named(found: dict[str, object], expected: list[str]) -> None:
    assert codes(**found) == expected


def test_words_are_for_anybody_and_paths_for_the_operator() -> None:
    findings = HealthFindings(DATA, JOURNAL, NO_SPACE, hung=(0, 2))
    full, hung = causes_of(findings)
    assert (full.where, hung.where) == (str(JOURNAL), "process 1, 3")
    assert "disk" in full.message
    assert not any(str(DATA) in cause.message for cause in (full, hung))


def test_with_a_full_disk_nobody_is_told_that_answers_still_work() -> None:
    for findings in (
        HealthFindings(DATA, JOURNAL, NO_SPACE, is_database_away=True),
        HealthFindings(DATA, is_database_away=True, is_database_full=True),
    ):
        assert not any("still work" in cause.message for cause in causes_of(findings))


@dataclass
class FakeJournal:
    path: Path = JOURNAL
    error: OSError | None = None

    def check(self) -> OSError | None:
        return self.error


@dataclass
class FakeDatabase:
    error: Exception | None = None
    says_full: bool = False
    is_silent: bool = False

    async def ping(self) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    def take_disk_full(self) -> bool:
        said, self.says_full = self.says_full, False
        return said


@dataclass
class FakeSiblings:
    numbers: tuple[int, ...] = ()

    def hung(self) -> tuple[int, ...]:
        return self.numbers


@dataclass
class Probed:
    """A probe with all that it looks at in reach."""

    data: Path
    journal: FakeJournal = field(default_factory=FakeJournal)
    database: FakeDatabase = field(default_factory=FakeDatabase)
    siblings: FakeSiblings = field(default_factory=FakeSiblings)
    clock: ManualClock = field(default_factory=ManualClock)
    changes: list[HealthChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = HealthState(on_change=self.changes.append)
        self.probe = HealthProbe(
            state=self.state,
            data=self.data,
            journal=self.journal,
            database=self.database,
            siblings=self.siblings,
            clock=self.clock,
        )

    async def codes_after(self, seconds: float) -> list[str]:
        self.clock.advance(seconds)
        await self.probe.check_database()
        await self.probe.check()
        return [cause.code.value for cause in self.state.causes]


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


async def test_a_full_disk_is_found_at_once_and_ends_by_itself(probed: Probed) -> None:
    probed.journal.error = NO_SPACE
    assert await probed.codes_after(0) == ["disk_full"]
    probed.journal.error = None
    assert await probed.codes_after(CLEAR_AFTER_S) == []
    assert [change.is_raised for change in probed.changes] == [True, False]


async def test_a_database_that_is_away_is_found(probed: Probed) -> None:
    probed.database.error = StoreUnavailable("away")
    assert [await probed.codes_after(seconds) for seconds in (0, 1, 1)] == [[], [], ["database_unavailable"]]
    probed.database.error = None
    assert await probed.codes_after(CLEAR_AFTER_S) == []


async def test_a_database_that_never_answers_is_away(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_probe, "DATABASE_ANSWERS_S", 0.001)
    probed.database.is_silent = True
    await probed.codes_after(0)
    assert await probed.codes_after(2) == ["database_unavailable"]


async def test_a_database_without_room_is_a_full_disk(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    probed.database.error = StoreUnavailable("refused")
    monkeypatch.setattr(health_probe, "free_bytes", lambda _path: 1)
    assert await probed.codes_after(0) == ["disk_full"]


async def test_a_database_that_says_so_is_a_full_disk_until_it_was_silent_about_it(probed: Probed) -> None:
    probed.database.says_full = True
    assert await probed.codes_after(0) == ["disk_full"]
    assert await probed.codes_after(DATABASE_FULL_S - 1) == ["disk_full"]
    assert await probed.codes_after(2) == []
    probed.database.error = DiskFull("no room")
    assert await probed.codes_after(0) == ["disk_full"]


async def test_a_hung_sibling_is_found(probed: Probed) -> None:
    probed.siblings.numbers = (1,)
    assert await probed.codes_after(0) == ["process_hung"]


def test_a_folder_that_is_not_there_is_no_full_disk(tmp_path: Path) -> None:
    assert not is_low(tmp_path)
    assert not is_low(tmp_path / "missing")


def test_a_change_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    cause = HealthCause(HealthCode.DISK_FULL, "The disk is full.", "/var/lib/x")
    with caplog.at_level("INFO"):
        log_health_change(HealthChange(cause, is_raised=True))
        log_health_change(HealthChange(cause, is_raised=False, lasted_s=2.04))
    raised, cleared = caplog.records
    assert (raised.message, raised.levelname) == ("gateway_not_ready", "WARNING")
    assert raised.__dict__["fields"] == {"cause": "disk_full", "where": "/var/lib/x", "says": "The disk is full."}
    assert cleared.message == "gateway_recovered"
    assert cleared.__dict__["fields"]["lasted_s"] == 2.0


async def test_both_ports_say_why_and_only_the_private_one_says_where() -> None:
    services = make_services()
    cause = HealthCause(HealthCode.DISK_FULL, "The disk is full.", "/var/lib/x")
    services.readiness.update([cause], now_s=0)
    async with running(services) as client:
        public = await client.get("/readyz")
        assert public.status == 503
        assert await public.json() == {
            "status": "not_ready",
            "nodes_serving": 0,
            "causes": [{"code": "disk_full", "message": "The disk is full."}],
        }
        assert (await client.get("/healthz")).status == 200
    async with TestClient(TestServer(services.metrics.app())) as client:
        private = await client.get("/readyz")
        assert private.status == 503
        assert (await private.json())["causes"][0]["where"] == "/var/lib/x"
    services.readiness.update([], now_s=CLEAR_AFTER_S)
    async with running(services) as client:
        assert (await client.get("/readyz")).status == 200
