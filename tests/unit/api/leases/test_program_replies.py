"""A renter who pays for a program that does not run is told so, by the chain's time and in the provider's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.api.leases.program_replies import write_program
from sparewatt.core.ids import NodeId
from sparewatt.leasing.running.act_intake import ReportedProgram
from sparewatt.leasing.running.programs import LeasePrograms, ProviderWord
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.protocol.canonical_json import canonical_json
from sparewatt.protocol.link.lease_tasks import LeaseDetailsDocument, LeaseReport, ProgramPhase

ORDER = "0x" + "ab" * 32
LEASE = LeaseRecord(
    lease_id=ORDER,
    renter="0x" + "1" * 40,
    state=LeaseState.ACTIVE,
    provider="0x" + "2" * 40,
    term=1,
    position=0,
    rate_uusd=3_600,
    locked_uusd=0,
    confirm_by=0,
    created_at=900,
    running_since=1_000,
    details_hash="0x" + "cd" * 32,
)
HELD = LeaseDetailsDocument(started=False, why="its image is still being fetched")
RUNS = LeaseDetailsDocument(started=True)


def report(phase: ProgramPhase, **changes: Any) -> LeaseReport:
    return LeaseReport(**{"order_id": ORDER, "term": 1, "phase": phase, "since": 1_500, **changes})


def warning(lease: LeaseRecord, said: LeaseReport | None, details: LeaseDetailsDocument | None) -> str | None:
    shown = write_program(lease, ProviderWord(said, details), lease_id="ab12")
    return shown.warning if shown is not None else None


def test_an_image_that_is_fetched_for_ever_is_paid_for_and_said() -> None:
    said = warning(LEASE, report(ProgramPhase.PULLING, trouble="12 of 900 MB"), HELD)
    assert said is not None
    assert "since 1970-01-01 00:16:40 UTC" in said, "by the chain: the node may say any time"
    assert "pulling, 12 of 900 MB" in said
    assert "lease close ab12" in said


def test_a_node_that_says_nothing_after_it_signed_that_nothing_runs_is_told_by_what_it_signed() -> None:
    said = warning(LEASE, None, HELD)
    assert said is not None
    assert "held, its image is still being fetched" in said


@pytest.mark.parametrize("phase", [ProgramPhase.FAILED, ProgramPhase.WAITING, ProgramPhase.STARTING])
def test_a_program_that_ran_when_pay_began_and_does_not_now_is_said(phase: ProgramPhase) -> None:
    assert warning(LEASE, report(phase), RUNS) is not None


@pytest.mark.parametrize("phase", [ProgramPhase.RUNNING, ProgramPhase.RESTARTING, ProgramPhase.EXITED])
def test_a_program_that_runs_or_ended_by_itself_is_no_warning(phase: ProgramPhase) -> None:
    assert warning(LEASE, report(phase), HELD) is None


@pytest.mark.parametrize("state", [LeaseState.PENDING, LeaseState.PAUSED])
def test_while_the_meter_stands_nothing_is_warned_of(state: LeaseState) -> None:
    assert warning(replace(LEASE, state=state), report(ProgramPhase.PULLING), HELD) is None


def test_before_anything_was_said_there_is_nothing_to_show() -> None:
    assert write_program(LEASE, ProviderWord(None, None), lease_id="ab12") is None


class Details:
    def __init__(self, document: LeaseDetailsDocument | None) -> None:
        self.document = document

    async def find_details(self, order_id: str, details_hash: str) -> str | None:
        assert (order_id, details_hash) == (ORDER, LEASE.details_hash)
        return None if self.document is None else canonical_json({"started": self.document.started, "why": "x"})


async def test_the_word_of_an_earlier_term_is_not_the_word_of_this_one() -> None:
    reports = {ORDER: ReportedProgram(NodeId("0x1"), report(ProgramPhase.RUNNING, term=0))}
    word = await LeasePrograms(reports, Details(HELD)).word_of(LEASE)
    assert word.report is None
    assert word.details is not None
    assert not word.details.started


async def test_a_lease_without_a_confirmed_start_asks_no_database() -> None:
    reports = {ORDER: ReportedProgram(NodeId("0x1"), report(ProgramPhase.PULLING))}
    word = await LeasePrograms(reports, Details(None)).word_of(replace(LEASE, details_hash=None))
    assert word == ProviderWord(reports[ORDER].report, None)
