"""The log of a match: bounded, and with names that the chain knows only."""

from __future__ import annotations

from sparewatt.market.match.match_log import NOTES_MAX, MatchLog
from sparewatt.market.match.model import MatchNote, MatchOutput

PROVIDER, VALIDATOR, STRANGER = "0x" + "a" * 40, "0x" + "b" * 40, "0x" + "c" * 40


def a_log() -> MatchLog:
    log = MatchLog(providers={PROVIDER}, validators={VALIDATOR})
    log.start(100)
    return log


def test_times_count_from_the_lookup() -> None:
    log, out = a_log(), MatchOutput()
    log.add(out, "reveal", now_ms=150)
    assert out.notes == log.notes == [MatchNote(50, "reveal")]


def test_a_refusal_is_noted_once_per_code_and_subject() -> None:
    log, out = a_log(), MatchOutput()
    for code in (32, 32, 33, 32):
        log.refuse(out, "commit", now_ms=200, code=code, subject=PROVIDER, late_by_ms=7)
    assert [(note.code, note.late_by_ms) for note in out.notes] == [(32, 7), (33, 7)]
    assert log.refusals == {PROVIDER: 32}


def test_validators_are_named_and_have_no_refusals() -> None:
    log, out = a_log(), MatchOutput()
    log.refuse(out, "proposal", now_ms=200, code=130, subject=VALIDATOR)
    assert out.notes[0].subject == VALIDATOR
    assert log.refusals == {}


def test_strangers_share_one_line() -> None:
    log, out = a_log(), MatchOutput()
    for number in range(50):
        log.refuse(out, "commit", now_ms=200, code=37, subject=f"0x{number:040x}")
    log.refuse(out, "commit", now_ms=200, code=37, subject=STRANGER)
    assert [note.subject for note in log.notes] == [""]


def test_what_was_noted_before_a_restart_stays_and_is_not_noted_again() -> None:
    before = (MatchNote(5, "reveal"), MatchNote(7, "commit", 32, PROVIDER, 3), MatchNote(9, "vote", 34, VALIDATOR))
    log, out = MatchLog(providers={PROVIDER}, validators={VALIDATOR}, notes=before), MatchOutput()
    log.start(150)
    assert log.refusals == {PROVIDER: 32}
    log.refuse(out, "commit", now_ms=200, code=32, subject=PROVIDER, late_by_ms=7)
    log.refuse(out, "commit", now_ms=200, code=33, subject=PROVIDER)
    assert [(note.code, note.at_ms) for note in out.notes] == [(33, 59)], "times do not go back"
    assert tuple(log.notes[:3]) == before


def test_the_log_has_an_end() -> None:
    log, out = a_log(), MatchOutput()
    for number in range(NOTES_MAX + 10):
        log.add(out, f"round {number}", now_ms=200)
    log.refuse(out, "commit", now_ms=200, code=32, subject=PROVIDER)
    assert len(log.notes) == NOTES_MAX
    assert log.refusals == {PROVIDER: 32}
