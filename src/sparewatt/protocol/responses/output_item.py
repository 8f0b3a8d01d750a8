"""An output item while it is being written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from sparewatt.protocol.responses.events import reasoning_part, text_part
from sparewatt.protocol.responses.request import Json

OutputItemKind = Literal["message", "reasoning", "function_call"]
OutputItemStatus = Literal["in_progress", "completed", "incomplete"]
PREFIXES: dict[OutputItemKind, str] = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


@dataclass(slots=True, eq=False)
class OutputItem:
    index: int
    """Its place in the response."""
    kind: OutputItemKind
    id: str
    call_id: str = ""
    name: str = ""
    number: int | None = None
    """What the server counts a call by."""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    status: OutputItemStatus = "in_progress"

    @property
    def is_open(self) -> bool:
        return self.status == "in_progress"

    def is_whole(self) -> bool:
        """Whether it could end here. Text always can; arguments are JSON."""
        if self.kind != "function_call":
            return True
        try:
            msgspec.json.decode("".join(self.pieces))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def announced_item(self) -> Json:
        """As it is announced, before anything is in it."""
        empty: Json = {"arguments": ""} if self.kind == "function_call" else {"content": []}
        return self.item() | empty

    def item(self) -> Json:
        """As it stands."""
        text = "".join(self.pieces)
        match self.kind:
            case "message":
                part = text_part(text, self.logprobs)
                return self._named() | {"status": self.status, "role": "assistant", "content": [part]}
            case "reasoning":
                return self._named() | {"summary": [], "content": [reasoning_part(text)]}
            case "function_call":
                called = {"call_id": self.call_id, "name": self.name, "arguments": text}
                return self._named() | {"status": self.status} | called

    def _named(self) -> Json:
        return {"id": self.id, "type": self.kind}
