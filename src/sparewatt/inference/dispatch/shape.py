"""Chunks of one answer differ in their text alone. Once two are seen to be alike, the next need not be read as JSON."""

from __future__ import annotations

import re

from sparewatt.protocol.openai import Chunk

_CONTENT = b'"content"'
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]+')
"""Text that stands in JSON as it is."""


class Shape:
    """What comes before and after the text in every chunk of an answer, as bytes."""

    __slots__ = ("_after", "_before", "_n_after", "_n_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._n_before, self._n_after = len(before), len(after)

    def text_of(self, event: bytes) -> bytes | None:
        """The text of an event that has this shape, in its quotes; None if it must be read."""
        end = len(event) - self._n_after
        if not event.startswith(self._before) or not event.endswith(self._after):
            return None
        if _PLAIN.fullmatch(event, self._n_before, end) is None:
            return None
        return event[self._n_before - 1 : end + 1]


def shape_of(event: bytes, chunk: Chunk) -> Shape | None:
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
    if event[start : start + len(text)] != text or _PLAIN.fullmatch(text[1:-1]) is None:
        return None
    return Shape(event[: start + 1], event[start + len(text) - 1 :])
