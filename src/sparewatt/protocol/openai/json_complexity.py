"""Bodies of very many small values, refused by a count before a decoder makes an object of each.

Such a body is decoded in one go, while nobody else is served: 20 MiB of fields took two seconds. Marks within texts do
not count, so that a long text full of commas is read like any other.
"""

from __future__ import annotations

from sparewatt.core.errors import BodyTooLarge
from sparewatt.core.limits import BODY_FIELDS_MAX, BODY_VALUES_MAX, COMPLEX_BODY_BYTES_MIN, READ_PER_TICK_BYTES


def refuse_complex(body: bytes) -> None:
    """Raises BodyTooLarge. Costs nothing where a body is too short to hold so much."""
    if len(body) < COMPLEX_BODY_BYTES_MIN:
        return
    if body.count(b":") > BODY_FIELDS_MAX or body.count(b",") >= BODY_VALUES_MAX:
        crowd = JsonComplexityCheck()
        for at in range(0, len(body), READ_PER_TICK_BYTES):
            crowd.feed(body[at : at + READ_PER_TICK_BYTES])


class JsonComplexityCheck:
    """A long body while it comes in: every byte is looked at once, by what C does in one call.

    A piece of READ_PER_TURN_BYTES takes a millisecond at the very worst, when it is all quotes.
    """

    __slots__ = ("_colons", "_commas", "_is_escaped", "_is_text")

    def __init__(self) -> None:
        self._colons = self._commas = 0
        self._is_text = False
        """Whether the next piece begins within a text."""
        self._is_escaped = False
        """Whether its first byte stands for itself, whatever it is."""

    def feed(self, piece: bytes) -> None:
        """The next of the body's pieces. Raises BodyTooLarge."""
        marks = self._outside_texts(piece)
        self._colons += marks.count(b":")
        self._commas += marks.count(b",")
        if self._colons > BODY_FIELDS_MAX:
            raise BodyTooLarge(f"The body has more than {BODY_FIELDS_MAX:,} fields.")
        if self._commas >= BODY_VALUES_MAX:
            raise BodyTooLarge(f"The body has more than {BODY_VALUES_MAX:,} values.")

    def _outside_texts(self, piece: bytes) -> bytes:
        parts = self._without_escapes(piece).split(b'"')
        outside = parts[self._is_text :: 2]
        self._is_text ^= len(parts) % 2 == 0
        return b"".join(outside)

    def _without_escapes(self, piece: bytes) -> bytes:
        """A backslash may be the last byte of a piece, and what it escapes the first of the next."""
        if self._is_escaped and piece:
            piece, self._is_escaped = piece[1:], False
        if b"\\" not in piece:
            return piece
        piece = piece.replace(b"\\\\", b"")
        self._is_escaped = piece.endswith(b"\\")
        return piece.replace(b'\\"', b"")
