"""Where one node's part of an answer ends and the next one's begins, and how the second is made to fit the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from sparewatt.protocol.openai.chat import Usage

_SAME = ("id", "object", "created", "model")
"""What every chunk of one answer has in common."""


@dataclass(frozen=True, slots=True)
class Seam:
    text: str
    """All that the client has, from whichever nodes."""
    tokens: int
    """As many as were counted in it."""
    fields: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Of the answer's first chunk."""
    stops: tuple[str, ...] = ()

    def fit(self, data: bytes) -> bytes:
        """A chunk of the second node as one of the same answer."""
        return msgspec.json.encode({**msgspec.json.decode(data, type=dict[str, msgspec.Raw]), **self.fields})

    def counts(self, own: Usage) -> Usage:
        """Of the whole answer. What the second node was given to read of it is no part of the prompt."""
        return Usage(
            prompt_tokens=max(0, own.prompt_tokens - self.tokens),
            completion_tokens=min(own.completion_tokens + self.tokens, 1 << 24),
        )


def fields_of(opening: bytes | None) -> dict[str, msgspec.Raw]:
    found = msgspec.json.decode(opening or b"{}", type=dict[str, msgspec.Raw])
    return {name: found[name] for name in _SAME if name in found}


def ending(seam: Seam, finish: str, *, usage: Usage | None = None, cost_usd: float | None = None) -> bytes:
    """The end of an answer whose node did not come to say it: why it ends (unless that was said), counts, [DONE]."""
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


def _event(seam: Seam, told: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode({"object": "chat.completion.chunk", **seam.fields, **told}) + b"\n\n"
