"""The seam: where one node's part of an answer ends and another node continues it.

`EmittedText` collects what the client has, as the raw JSON that it came in: nearly every answer ends well, and the text
is never read. `Seam` makes the second node's chunks fit the first's. `StraddlingStop` finds a stop text that begins in
one part and ends in the next, where neither node can see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from sparewatt.core.limits import EMITTED_TEXT_BYTES_MAX
from sparewatt.protocol.openai.chat import CompletionChunk, Usage

_NOTHING = (b"null", b'""', b"[]", b"{}")
_TEXT_FIELDS = ("role", "content")


class EmittedText:
    """One node's part of an answer."""

    __slots__ = ("_raw", "finished", "is_more_than_text", "opening")

    def __init__(self) -> None:
        self._raw = bytearray()
        """Its text as raw JSON: the insides of all strings, concatenated."""
        self.opening: bytes | None = None
        """The first chunk: its id and model are those of the whole answer."""
        self.finished: frozenset[int] = frozenset()
        """Choices that are complete."""
        self.is_more_than_text = False
        """Tool calls, reasoning, several choices or too much text: no node could continue that."""

    def add(self, chunk: CompletionChunk, data: bytes) -> None:
        if self.opening is None:
            self.opening = data
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finished |= {choice.index}
            self.is_more_than_text |= choice.index != 0
            self._note_field("content", bytes(choice.text))
            for name, part in (choice.delta or {}).items():
                self._note_field(name, bytes(part))

    def add_text(self, inside: bytes) -> None:
        """Add plain text, given as the inside of a JSON string."""
        if len(self._raw) > EMITTED_TEXT_BYTES_MAX:
            self._give_up()
        elif not self.is_more_than_text:
            self._raw += inside

    def buffer(self) -> bytearray | None:
        """The buffer of `add_text`, which the direct path appends to; None once no text is stored any more."""
        return None if self.is_more_than_text else self._raw

    def _note_field(self, name: str, part: bytes) -> None:
        if part in _NOTHING or name == "role":
            return
        if name not in _TEXT_FIELDS or part[:1] != b'"':
            self._give_up()
        else:
            self.add_text(part[1:-1])

    def _give_up(self) -> None:
        self.is_more_than_text = True
        self._raw.clear()

    def text(self) -> str:
        return msgspec.json.decode(b'"' + self._raw + b'"', type=str)


Verdict = Literal["clear", "wait", "hit"]


class StraddlingStop:
    """Feed the text that follows. Once `clear`, it stays so: a stop text that begins later is seen by the node."""

    def __init__(self, before: str, stops: Sequence[str]) -> None:
        longest = max((len(stop) for stop in stops), default=0)
        self._joined = before[-(longest - 1) :] if longest > 1 else ""
        self._open = [(at, stop) for at in range(len(self._joined)) for stop in stops]
        self.verdict: Verdict = self._look()

    def feed(self, text: str) -> Verdict:
        if self.verdict == "wait":
            self._joined += text
            self.verdict = self._look()
        return self.verdict

    def _look(self) -> Verdict:
        if any(self._joined.startswith(stop, at) for at, stop in self._open):
            return "hit"
        self._open = [(at, stop) for at, stop in self._open if stop.startswith(self._joined[at:])]
        return "wait" if self._open else "clear"


_SAME = ("id", "object", "created", "model")
"""What every chunk of one answer has in common."""


@dataclass(frozen=True, slots=True)
class Seam:
    text: str
    """All that the client has, from all nodes."""
    tokens: int
    """How many were counted in it."""
    fields: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Those of the answer's first chunk that all chunks share."""
    stops: tuple[str, ...] = ()

    def fit(self, data: bytes) -> bytes:
        """A chunk of the second node, with the fields of the first."""
        return msgspec.json.encode({**msgspec.json.decode(data, type=dict[str, msgspec.Raw]), **self.fields})

    def counts(self, own: Usage) -> Usage:
        """The usage of the whole answer: the text that the second node continued is no part of the prompt."""
        return Usage(
            prompt_tokens=max(0, own.prompt_tokens - self.tokens),
            completion_tokens=min(own.completion_tokens + self.tokens, 1 << 24),
        )


def fields_of(opening: bytes | None) -> dict[str, msgspec.Raw]:
    found = msgspec.json.decode(opening or b"{}", type=dict[str, msgspec.Raw])
    return {name: found[name] for name in _SAME if name in found}


def ending(seam: Seam, finish: str, *, usage: Usage | None = None, cost_usd: float | None = None) -> bytes:
    """The end of an answer in place of its node: the finish reason (unless it was sent), the usage, and [DONE]."""
    is_chat = bytes(seam.fields.get("object", b"")) != b'"text_completion"'
    nothing: dict[str, object] = {"delta": {}} if is_chat else {"text": ""}
    choice = {"index": 0, **nothing, "finish_reason": finish}
    events = [_event(seam, {"choices": [choice]})] if finish else []
    if usage is not None:
        counts: dict[str, object] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        cost = {} if cost_usd is None else {"cost": cost_usd}
        events.append(_event(seam, {"choices": [], "usage": counts | cost}))
    return b"".join([*events, b"data: [DONE]\n\n"])


def _event(seam: Seam, own: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode({"object": "chat.completion.chunk", **seam.fields, **own}) + b"\n\n"
