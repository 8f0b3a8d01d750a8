"""Translates the chunks of a chat into Anthropic's events, chunk by chunk. A whole reply is one large chunk.

Blocks are in the order in which the model begins them: thinking, text, tool calls. Only one is open at a time, as
clients expect. Some servers write several tool calls at once; then those behind the first wait until it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.protocol.anthropic.request import Json
from sparewatt.protocol.openai.chat import UNREADABLE
from sparewatt.protocol.responses.chat_chunks import StreamChoice, StreamChunk, ToolCallDelta
from sparewatt.protocol.responses.input_items import NewId
from sparewatt.protocol.responses.response_object import usage_of as response_usage

BlockKind = Literal["thinking", "text", "tool_use"]
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What Anthropic's clients may send back; some servers write ids with other characters."""
_DELTAS: dict[BlockKind, tuple[str, str]] = {
    "thinking": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_objects = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True, eq=False)
class OutputBlock:
    """A block of the answer while it is written, and after."""

    kind: BlockKind
    id: str = ""
    name: str = ""
    number: int | None = None
    """The server's index of a call."""
    server_id: str | None = None
    pieces: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)
    """Pieces of a call that waits for another one."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def arguments(self) -> Json | None:
        """Of a call: none written is an empty object. None if they are not complete, or no object."""
        try:
            return _objects.decode(self.text) if self.text.strip() else {}
        except UNREADABLE:
            return None

    @property
    def is_whole(self) -> bool:
        """Whether it could end here. Text always can; arguments must have come, and be complete."""
        return self.kind != "tool_use" or bool(self.pieces and self.arguments() is not None)

    def empty(self) -> Json:
        """As it begins."""
        match self.kind:
            case "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case "text":
                return {"type": "text", "text": ""}
            case "tool_use":
                return {"type": "tool_use", "id": self.id, "name": self.name, "input": {}}

    def whole(self) -> Json:
        filled: Json = {"input": self.arguments()} if self.kind == "tool_use" else {self.kind: self.text}
        return self.empty() | filled


class MessageTranslator:
    """One answer while it is written; methods return the events to send."""

    def __init__(
        self, *, message_id: str, model: str, shows_thinking: bool, stops: tuple[str, ...] = (), new_id: NewId
    ) -> None:
        """`model`: as the client named it. `stops`: the request's own stop sequences."""
        self.failure: SparewattError | None = None
        self._id = message_id
        self._model = model
        self._shows_thinking = shows_thinking
        self._stops = stops
        self._new_id = new_id
        self._blocks: list[OutputBlock] = []
        """Those that were begun."""
        self._waiting: list[OutputBlock] = []
        """Calls that were not begun, since another one is open."""
        self._is_open = False
        """Whether the last of `_blocks` is."""
        self._finish_reason: str | None = None
        self._stop_text: str | None = None
        self._usage: Json | None = None

    def begin(self) -> list[Json]:
        """How many tokens the prompt has is known at the end."""
        return [{"type": "message_start", "message": self._message([])}, {"type": "ping"}]

    def feed(self, chunk: StreamChunk) -> Iterator[Json]:
        self.failure = self.failure or chunk.failure()
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or ())[:1]:
            yield from self._choice(choice)
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.stop_reason in self._stops:
                self._stop_text = str(choice.stop_reason)

    def finish(self) -> list[Json]:
        """After the last chunk."""
        events = list(self._close_all())
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": self._stop_text}
        return [*events, {"type": "message_delta", "delta": delta, "usage": self._counts()}, {"type": "message_stop"}]

    def whole(self) -> Json:
        """The message, once everything was fed and finished. A call that was cut off is left out.

        Raises JobFailed if the model wrote arguments that are no object: to call a tool without them may do harm.
        """
        blocks = [block for block in self._blocks if block.kind != "tool_use" or block.arguments() is not None]
        if len(blocks) < len(self._blocks) and self._stop_reason() != "max_tokens":
            raise JobFailed("The model called a tool with arguments that are no JSON object. Try again.")
        message = self._message([block.whole() for block in blocks])
        outcome = {"stop_reason": self._stop_reason(), "stop_sequence": self._stop_text, "usage": self._counts()}
        return message | outcome

    # blocks

    def _choice(self, choice: StreamChoice) -> Iterator[Json]:
        delta = choice.content_delta
        if delta.reasoning_text and self._shows_thinking:
            yield from self._add_text("thinking", delta.reasoning_text)
        if delta.text:
            yield from self._add_text("text", delta.text)
        for position, call in enumerate(delta.tool_calls or ()):
            yield from self._add_call(call, number=position if call.index is None else call.index)

    def _add_text(self, kind: BlockKind, text: str) -> Iterator[Json]:
        block = self._open_block()
        if block is None or block.kind != kind:
            yield from self._close_all()
            block = OutputBlock(kind)
            yield self._start(block)
        yield self._write(block, text)

    def _add_call(self, call: ToolCallDelta, *, number: int) -> Iterator[Json]:
        block = self._find_call(call, number)
        name, arguments = (call.function.name, call.function.arguments) if call.function is not None else (None, None)
        if block is None:
            block = OutputBlock("tool_use", self._call_id(call.id), number=number, server_id=call.id)
            self._waiting.append(block)
        block.name = block.name or name or ""
        if arguments and block in self._waiting:
            block.unsent.append(arguments)
        elif arguments:
            yield self._write(block, arguments)
        yield from self._start_waiting()

    def _find_call(self, call: ToolCallDelta, number: int) -> OutputBlock | None:
        """The call that the delta belongs to: same number, no other id. Some servers number all calls 0."""
        open_block = self._open_block()
        for block in reversed([*([open_block] if open_block is not None else []), *self._waiting]):
            if block.number == number:
                return block if not call.id or call.id == block.server_id else None
        return None

    def _call_id(self, given: str | None) -> str:
        return given if given and _CALL_ID.fullmatch(given) else self._new_id("toolu")

    def _start_waiting(self) -> Iterator[Json]:
        """Begin the calls that wait, as far as those before them are complete."""
        while self._waiting and self._waiting[0].name:
            block = self._open_block()
            if block is not None and not block.is_whole:
                return
            yield from self._stop()
            yield from self._begin_call(self._waiting.pop(0))

    def _begin_call(self, block: OutputBlock) -> Iterator[Json]:
        yield self._start(block)
        unsent, block.unsent = "".join(block.unsent), []
        if unsent:
            yield self._write(block, unsent)

    def _close_all(self) -> Iterator[Json]:
        """Also the calls that still wait: nothing more comes for those before them."""
        yield from self._stop()
        for block in self._waiting:
            if block.name:
                yield from self._begin_call(block)
                yield from self._stop()
        self._waiting.clear()

    def _open_block(self) -> OutputBlock | None:
        return self._blocks[-1] if self._is_open else None

    # events

    def _start(self, block: OutputBlock) -> Json:
        self._blocks.append(block)
        self._is_open = True
        return {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block.empty()}

    def _write(self, block: OutputBlock, text: str) -> Json:
        block.pieces.append(text)
        kind, name = _DELTAS[block.kind]
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": {"type": kind, name: text}}

    def _stop(self) -> Iterator[Json]:
        if self._is_open:
            self._is_open = False
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    # the message

    def _message(self, content: list[Json]) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(None),
        }

    def _stop_reason(self) -> str:
        """Servers say `stop` for a stop sequence too; vLLM tells which one it was."""
        reason = _STOP_REASONS.get(self._finish_reason or "")
        if reason is None and any(block.kind == "tool_use" for block in self._blocks):
            return "tool_use"
        return reason or ("stop_sequence" if self._stop_text is not None else "end_turn")

    def _counts(self) -> Json:
        return usage_of(self._usage)


def usage_of(usage: Json | None) -> Json:
    """The token counts of a chat under Anthropic's names, which count cached tokens apart, with their cost."""
    given = response_usage(usage or {}) or {}
    prompt, output = max(0, given["input_tokens"]), max(0, given["output_tokens"])
    cached = min(prompt, max(0, given["input_tokens_details"]["cached_tokens"]))
    counts: Json = {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }
    return counts | ({"cost": given["cost"]} if "cost" in given else {})
