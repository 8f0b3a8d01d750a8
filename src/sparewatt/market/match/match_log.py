"""The log of one match that a replay shows, bounded: refusals are noted once per code and provider."""

from __future__ import annotations

from collections.abc import Container, Sequence

from sparewatt.market.match.model import MatchNote, MatchOutput

NOTES_MAX = 1_024


class MatchLog:
    """Names only providers and validators that the chain knows: strangers can invent any number of others."""

    def __init__(
        self, *, providers: Container[str], validators: Container[str], notes: Sequence[MatchNote] = ()
    ) -> None:
        """`notes` are those of before a restart."""
        self._providers = providers
        self._validators = validators
        self._started_ms = 0
        self.notes = list(notes[:NOTES_MAX])
        self._refused = {(note.what, note.code, note.subject) for note in self.notes if note.code}
        self.refusals = {note.subject: note.code for note in self.notes if note.code and note.subject in providers}
        """By provider: the code of its last refused message."""

    def start(self, now_ms: int) -> None:
        """After a restart times go on from the last note."""
        self._started_ms = now_ms - (self.notes[-1].at_ms if self.notes else 0)

    def add(self, out: MatchOutput, what: str, *, now_ms: int) -> None:
        self._append(out, MatchNote(now_ms - self._started_ms, what))

    def refuse(
        self, out: MatchOutput, what: str, *, now_ms: int, code: int, subject: str = "", late_by_ms: int = 0
    ) -> None:
        if subject in self._providers:
            self.refusals[subject] = code
        elif subject not in self._validators:
            subject = ""
        if (what, code, subject) not in self._refused and len(self.notes) < NOTES_MAX:
            self._refused.add((what, code, subject))
            self._append(out, MatchNote(now_ms - self._started_ms, what, code, subject, late_by_ms))

    def _append(self, out: MatchOutput, note: MatchNote) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes.append(note)
            out.notes.append(note)
