"""What a client has of an answer, kept so that another node can go on with it.

It is kept as the raw JSON that it came in: nearly every answer ends well, and nobody looks at it again.
"""

from __future__ import annotations

import msgspec

from sparewatt.core.limits import EMITTED_TEXT_BYTES_MAX
from sparewatt.protocol.openai.chat import CompletionChunk

_NOTHING = (b"null", b'""', b"[]", b"{}")
_TEXT_FIELDS = ("role", "content")


class EmittedText:
    """One node's part of an answer."""

    __slots__ = ("_raw", "finished", "is_more_than_text", "opening")

    def __init__(self) -> None:
        self._raw = bytearray()
        """Its text as it stands in JSON: the insides of all strings, one after the other."""
        self.opening: bytes | None = None
        """The first chunk: its id and name are those of the whole answer."""
        self.finished: frozenset[int] = frozenset()
        """Choices that are complete."""
        self.is_more_than_text = False
        """Tool calls, reasoning, several choices, or too much to keep: nothing that a prompt can be continued by."""

    def note(self, chunk: CompletionChunk, data: bytes) -> None:
        if self.opening is None:
            self.opening = data
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finished |= {choice.index}
            self.is_more_than_text |= choice.index != 0
            self._note_field("content", bytes(choice.text))
            for name, part in (choice.delta or {}).items():
                self._note_field(name, bytes(part))

    def note_text(self, inside: bytes) -> None:
        """Some more plain text, the inside of a string, of an answer that has begun."""
        if len(self._raw) > EMITTED_TEXT_BYTES_MAX:
            self._give_up()
        elif not self.is_more_than_text:
            self._raw += inside

    def kept(self) -> bytearray | None:
        """Where `note_text` puts text, for whoever adds a little without asking; None if nothing is kept any more."""
        return None if self.is_more_than_text else self._raw

    def _note_field(self, name: str, part: bytes) -> None:
        if part in _NOTHING or name == "role":
            return
        if name not in _TEXT_FIELDS or part[:1] != b'"':
            self._give_up()
        else:
            self.note_text(part[1:-1])

    def _give_up(self) -> None:
        self.is_more_than_text = True
        self._raw.clear()

    def text(self) -> str:
        return msgspec.json.decode(b'"' + self._raw + b'"', type=str)
