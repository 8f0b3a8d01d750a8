"""Translates the chunks of a chat into the events of a response, chunk by chunk. A whole reply is one large chunk.

Items are in the order in which the model begins them: reasoning, text, tool calls. An item is done when the next one
begins; a tool call only if its arguments are complete by then, since some servers write several calls at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.responses.chat_chunks import StreamChoice, StreamChunk, ToolCallDelta
from sparewatt.protocol.responses.events import ResponseEventWriter, reasoning_part, text_part
from sparewatt.protocol.responses.input_items import NewId
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.response_object import failed, usage_of

OutputItemKind = Literal["message", "reasoning", "function_call"]
OutputItemStatus = Literal["in_progress", "completed", "incomplete"]
_PREFIXES: dict[OutputItemKind, str] = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(slots=True, eq=False)
class OutputItem:
    """An item of the response while it is written, and after."""

    index: int
    kind: OutputItemKind
    id: str
    call_id: str = ""
    name: str = ""
    number: int | None = None
    """The server's index of a call."""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    status: OutputItemStatus = "in_progress"

    @property
    def is_open(self) -> bool:
        return self.status == "in_progress"

    def is_whole(self) -> bool:
        """Whether it could end here. Text always can; arguments must be valid JSON."""
        if self.kind != "function_call":
            return True
        try:
            msgspec.json.decode("".join(self.pieces))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def item(self) -> Json:
        """With the content so far."""
        named, text = {"id": self.id, "type": self.kind}, "".join(self.pieces)
        match self.kind:
            case "message":
                part = text_part(text, self.logprobs)
                return named | {"status": self.status, "role": "assistant", "content": [part]}
            case "reasoning":
                return named | {"summary": [], "content": [reasoning_part(text)]}
            case "function_call":
                call = {"call_id": self.call_id, "name": self.name, "arguments": text}
                return named | {"status": self.status} | call


class ResponseTranslator:
    """One response while it is written. `response` is its current state; methods return the events to send."""

    def __init__(self, response: Json, *, new_id: NewId) -> None:
        self.response = response
        self.failure: SparewattError | None = None
        self._new_id = new_id
        self._events = ResponseEventWriter()
        self._items: list[OutputItem] = []
        self._finish_reason: str | None = None
        self._usage: Json | None = None

    def begin(self) -> list[Json]:
        return [self._events.snapshot(state, self.response) for state in ("created", "in_progress")]

    def feed(self, chunk: StreamChunk) -> Iterator[Json]:
        self.failure = self.failure or chunk.failure()
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or ())[:1]:
            yield from self._choice(choice)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def finish(self, *, now: int) -> list[Json]:
        """After the last chunk: end open items. `response` is final afterwards."""
        if self.failure is not None:
            return self.fail(self.failure)
        reason = _INCOMPLETE.get(self._finish_reason or "")
        events = [] if self._items or reason else self._open("message")
        events += self._close_all("incomplete" if reason else "completed")
        if reason is None:
            outcome: Json = {"status": "completed", "completed_at": now}
        else:
            outcome = {"status": "incomplete", "incomplete_details": {"reason": reason}}
        self.response = self.response | outcome | self._output()
        return events

    def fail(self, error: SparewattError) -> list[Json]:
        """The answer broke off with this error."""
        self.failure = error
        events = self._close_all("incomplete")
        self.response = failed(self.response | self._output(), error)
        return events

    def cancel(self) -> list[Json]:
        """The client has cancelled the response."""
        events = self._close_all("incomplete")
        self.response = self.response | self._output() | {"status": "cancelled"}
        return events

    def final_events(self) -> list[Json]:
        """The last events, once the response is final."""
        events = [self._events.last_snapshot(self.response)]
        return events if self.failure is None else [*events, self._events.error(self.failure)]

    def _output(self) -> Json:
        return {"output": [item.item() for item in self._items], "usage": usage_of(self._usage)}

    # items

    def _choice(self, choice: StreamChoice) -> Iterator[Json]:
        delta = choice.content_delta
        if delta.reasoning_text:
            yield from self._add("reasoning", delta.reasoning_text)
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        if delta.text or logprobs:
            yield from self._add("message", delta.text, logprobs)
        for position, call in enumerate(delta.tool_calls or ()):
            yield from self._add_call(call, number=position if call.index is None else call.index)

    def _add(self, kind: OutputItemKind, text: str, logprobs: list[Json] | None = None) -> Iterator[Json]:
        if not self._items or self._items[-1].kind != kind:
            yield from self._open(kind)
        item = self._items[-1]
        item.logprobs += logprobs or ()
        yield self._write(item, text, logprobs)

    def _add_call(self, call: ToolCallDelta, *, number: int) -> Iterator[Json]:
        item = self._find_call(call, number)
        name, arguments = (call.function.name, call.function.arguments) if call.function is not None else (None, None)
        if item is None:
            yield from self._open("function_call", name=name or "", number=number, call_id=call.id)
            item = self._items[-1]
        if arguments:
            yield self._write(item, arguments)

    def _find_call(self, call: ToolCallDelta, number: int) -> OutputItem | None:
        """The open call that the delta belongs to: same number, no other id. Some servers number all calls 0."""
        for item in reversed(self._items):
            if item.number == number and item.is_open:
                return item if not call.id or call.id == item.call_id else None
        return None

    def _open(
        self, kind: OutputItemKind, *, name: str = "", number: int | None = None, call_id: str | None = None
    ) -> list[Json]:
        events = [event for item in self._items if item.is_whole() for event in self._close(item, "completed")]
        item = OutputItem(len(self._items), kind, self._new_id(_PREFIXES[kind]), name=name, number=number)
        if kind == "function_call":
            item.call_id = call_id or self._new_id("call")
        self._items.append(item)
        return events + self._events.item_added(item.index, item.item())

    def _write(self, item: OutputItem, text: str, logprobs: list[Json] | None = None) -> Json:
        item.pieces.append(text)
        return self._events.item_delta(item.kind, text, index=item.index, item_id=item.id, logprobs=logprobs)

    def _close_all(self, status: OutputItemStatus) -> list[Json]:
        return [event for item in self._items for event in self._close(item, status)]

    def _close(self, item: OutputItem, status: OutputItemStatus) -> list[Json]:
        if not item.is_open:
            return []
        item.status = status
        return self._events.item_done(item.index, item.item())
