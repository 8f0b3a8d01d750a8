"""Chunks of one answer differ in their text alone. Once two are seen to be alike, the next need not be read as JSON."""

from __future__ import annotations

import re

from sparewatt.protocol.openai.chat import CompletionChunk

_CONTENT = b'"content"'
_is_plain = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+').fullmatch
"""Whether this stands in JSON as the inside of a string. Characters by number (`\\u0041`) are for whoever reads it."""
needs_reading = re.compile(rb'["\\\x00-\x1f]').search
"""Whether it may not: what holds none of these is plain, which is sooner said."""


class ChunkShape:
    """What comes before and after the text in every chunk of an answer, as bytes."""

    __slots__ = ("_n_after", "_n_before", "after", "before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before, self.after = before, after
        self._n_before, self._n_after = len(before), len(after)

    def text_of(self, event: bytes) -> bytes | None:
        """The text of an event that has this shape, as it stands in JSON; None if it must be read."""
        if event.startswith(self.before) and event.endswith(self.after):
            text = event[self._n_before : -self._n_after]
            if text and _is_plain(text):
                return text
        return None

    def texts_of(self, events: bytes) -> list[bytes] | None:
        """The texts of several events that all have this shape; None if they must be read."""
        n_before, before = self._n_before, self.before
        parts = events.split(self.after)  # which no event has but at its end: there is a line's end in it
        texts = [part[n_before:] for part in parts if part.startswith(before)]
        if parts.pop() or len(texts) < len(parts) or not all(texts):
            return None
        # With a space between them: the end of one and the beginning of the next could look like one plain piece.
        return texts if _is_plain(b" ".join(texts)) else None


def shape_of(event: bytes, chunk: CompletionChunk) -> ChunkShape | None:
    """The shape of an event that was read, if it carries a plain piece of text and nothing else."""
    choices = chunk.choices or ()
    if len(choices) != 1 or chunk.usage is not None or not event.startswith(b"data: ") or not event.endswith(b"\n\n"):
        return None
    choice, is_one_line = choices[0], event.find(b"\n") == len(event) - 2 and b"\r" not in event
    if not is_one_line or choice.index != 0 or choice.finish_reason or bytes(choice.logprobs) != b"null":
        return None
    if choice.delta is None or choice.delta.keys() != {"content"} or bytes(choice.text) != b"null":
        return None
    text = bytes(choice.delta["content"])
    start = event.find(b'"', event.rfind(_CONTENT) + len(_CONTENT))
    if event[start : start + len(text)] != text or not text[1:-1] or not _is_plain(text[1:-1]):
        return None
    return ChunkShape(event[: start + 1], event[start + len(text) - 1 :])
