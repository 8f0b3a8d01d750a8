"""What a client has of an answer, kept so that another node can go on with it.

Pieces are kept as the raw JSON they came in: nearly every answer ends well, and nobody looks at them again.
"""

from __future__ import annotations

import msgspec

from sparewatt.core.limits import SAID_BYTES_MAX
from sparewatt.protocol.openai import Chunk

_NOTHING = (b"null", b'""', b"[]", b"{}")
_TEXT_FIELDS = ("role", "content")


class Said:
    """One node's part of an answer."""

    __slots__ = ("_bytes", "_pieces", "finished", "is_more_than_text", "opening")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self.opening: bytes | None = None
        """The first chunk: its id and name are those of the whole answer."""
        self.finished: set[int] = set()
        """Choices that are complete."""
        self.is_more_than_text = False
        """Tool calls, reasoning, several choices, or too much to keep: nothing that a prompt can be continued by."""

    def note(self, chunk: Chunk, data: bytes) -> None:
        if self.opening is None:
            self.opening = data
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finished.add(choice.index)
            self.is_more_than_text |= choice.index != 0
            self._note_field("content", bytes(choice.text))
            for name, part in (choice.delta or {}).items():
                self._note_field(name, bytes(part))

    def note_text(self, piece: bytes) -> None:
        """One more piece of plain text, in its quotes, of an answer that has begun."""
        if self._bytes > SAID_BYTES_MAX:
            self.is_more_than_text = True
            self._pieces.clear()
        elif not self.is_more_than_text:
            self._pieces.append(piece)
            self._bytes += len(piece)

    def _note_field(self, name: str, part: bytes) -> None:
        if part in _NOTHING or name == "role":
            return
        if name not in _TEXT_FIELDS or part[:1] != b'"' or self._bytes > SAID_BYTES_MAX:
            self.is_more_than_text = True
            self._pieces.clear()
        elif not self.is_more_than_text:
            self._pieces.append(part)
            self._bytes += len(part)

    def text(self) -> str:
        return "".join(msgspec.json.decode(piece, type=str) for piece in self._pieces)
