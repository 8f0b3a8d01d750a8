"""Refuses bodies of very many small values, by counting, before a decoder makes an object of each.

A decoder runs in one go and blocks the event loop: 20 MiB of fields took two seconds. Colons and commas within texts
do not count, so that a long text full of commas is accepted like any other.
"""

from __future__ import annotations

from sparewatt.core.errors import BodyTooLarge
from sparewatt.core.limits import READ_PER_TICK_BYTES

BODY_FIELDS_MAX = 50_000
"""Fields of one body at any depth: a chat with the most messages. Each costs up to a microsecond."""
BODY_VALUES_MAX = 300_000
"""Values of one body: as many token ids as OpenAI accepts. Decoding them blocks the event loop for some 30 ms."""
COMPLEX_BODY_BYTES_MIN = 5 * BODY_FIELDS_MAX
"""The shortest body with that many fields (`"":0,`); a shorter one is not counted. As many values take more."""


def refuse_complex(body: bytes) -> None:
    """Raises BodyTooLarge. Costs nothing for a short body."""
    if len(body) < COMPLEX_BODY_BYTES_MIN:
        return
    if body.count(b":") > BODY_FIELDS_MAX or body.count(b",") >= BODY_VALUES_MAX:
        check = JsonComplexityCheck()
        for at in range(0, len(body), READ_PER_TICK_BYTES):
            check.feed(body[at : at + READ_PER_TICK_BYTES])


class JsonComplexityCheck:
    """Counts while a long body arrives. Each byte is looked at once, by C code.

    A piece of READ_PER_TICK_BYTES takes a millisecond in the worst case, when it is all quotes.
    """

    __slots__ = ("_colons", "_commas", "_is_escaped", "_is_text")

    def __init__(self) -> None:
        self._colons = self._commas = 0
        self._is_text = False
        """Whether the next piece begins within a text."""
        self._is_escaped = False
        """Whether its first byte is escaped by the last byte of the piece before."""

    def feed(self, piece: bytes) -> None:
        """Count the next piece of the body. Raises BodyTooLarge."""
        outside = self._outside_texts(piece)
        self._colons += outside.count(b":")
        self._commas += outside.count(b",")
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
        if self._is_escaped and piece:
            piece, self._is_escaped = piece[1:], False
        if b"\\" not in piece:
            return piece
        piece = piece.replace(b"\\\\", b"")
        self._is_escaped = piece.endswith(b"\\")
        return piece.replace(b'\\"', b"")
