"""The answer of a chat, from its chunks to blocks: reasoning, text and tool calls, in the order in which they begin.

Only one block is open at a time, as protocols of blocks expect. Some servers write several tool calls at once; then
those behind the first wait until it is complete. A whole reply is one large chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.protocol.openai.chat import UNREADABLE
from sparewatt.protocol.responses.chat_chunks import StreamChoice, StreamChunk, ToolCallDelta

Json = dict[str, Any]
BlockKind = Literal["reasoning", "text", "call"]
_objects = msgspec.json.Decoder(Json)


@dataclass(slots=True, eq=False)
class AnswerBlock:
    """A block while it is written, and after."""

    kind: BlockKind
    call_id: str = ""
    name: str = ""
    number: int | None = None
    """The server's index of a call."""
    server_id: str | None = None
    """The server's id of a call."""
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
        return self.kind != "call" or bool(self.pieces and self.arguments() is not None)


class BlockEvent(NamedTuple):
    kind: Literal["start", "write", "stop"]
    position: int
    """Of the block in the answer."""
    block: AnswerBlock
    text: str = ""
    """What was written."""


class AnswerAssembler:
    """One answer while its chunks come. Methods return what has happened to its blocks."""

    def __init__(self, *, with_reasoning: bool, call_id: Callable[[str | None], str]) -> None:
        """`call_id`: the id that the client gets for a call, by the server's."""
        self.blocks: list[AnswerBlock] = []
        """Those that were begun."""
        self.failure: SparewattError | None = None
        self.finish_reason: str | None = None
        self.stopped_by: Any = None
        """The stop text that ended it, where the server tells."""
        self.usage: Json | None = None
        self._with_reasoning = with_reasoning
        self._call_id = call_id
        self._waiting: list[AnswerBlock] = []
        """Calls that were not begun, since another one is open."""
        self._is_open = False
        """Whether the last of `blocks` is."""

    def feed(self, chunk: StreamChunk) -> Iterator[BlockEvent]:
        self.failure = self.failure or chunk.failure()
        self.usage = chunk.usage or self.usage
        for choice in (chunk.choices or ())[:1]:
            yield from self._choice(choice)
            self.finish_reason = choice.finish_reason or self.finish_reason
            self.stopped_by = self.stopped_by if choice.stop_reason is None else choice.stop_reason

    def close(self) -> Iterator[BlockEvent]:
        """End all blocks, also calls that still wait: nothing more comes for those before them."""
        yield from self._stop()
        for block in self._waiting:
            if block.name:
                yield from self._begin_call(block)
                yield from self._stop()
        self._waiting.clear()

    def complete_blocks(self) -> list[AnswerBlock]:
        """After `close`: without a call that was cut off at the limit of tokens.

        Raises JobFailed if the model wrote arguments that are no object: to call a tool without them may do harm.
        """
        found = [block for block in self.blocks if block.kind != "call" or block.arguments() is not None]
        if len(found) < len(self.blocks) and self.finish_reason != "length":
            raise JobFailed("The model called a tool with arguments that are no JSON object. Try again.")
        return found

    # blocks

    def _choice(self, choice: StreamChoice) -> Iterator[BlockEvent]:
        delta = choice.content_delta
        if delta.reasoning_text and self._with_reasoning:
            yield from self._add_text("reasoning", delta.reasoning_text)
        if delta.text:
            yield from self._add_text("text", delta.text)
        for position, call in enumerate(delta.tool_calls or ()):
            yield from self._add_call(call, number=position if call.index is None else call.index)

    def _add_text(self, kind: BlockKind, text: str) -> Iterator[BlockEvent]:
        block = self._open_block()
        if block is None or block.kind != kind:
            yield from self.close()
            block = AnswerBlock(kind)
            yield self._start(block)
        yield self._write(block, text)

    def _add_call(self, call: ToolCallDelta, *, number: int) -> Iterator[BlockEvent]:
        block = self._find_call(call, number)
        name, arguments = (call.function.name, call.function.arguments) if call.function is not None else (None, None)
        if block is None:
            block = AnswerBlock("call", self._call_id(call.id), number=number, server_id=call.id)
            self._waiting.append(block)
        block.name = block.name or name or ""
        if arguments and block in self._waiting:
            block.unsent.append(arguments)
        elif arguments:
            yield self._write(block, arguments)
        yield from self._start_waiting()

    def _find_call(self, call: ToolCallDelta, number: int) -> AnswerBlock | None:
        """The call that the delta belongs to: same number, no other id. Some servers number all calls 0."""
        open_block = self._open_block()
        for block in reversed([*([open_block] if open_block is not None else []), *self._waiting]):
            if block.number == number:
                return block if not call.id or call.id == block.server_id else None
        return None

    def _start_waiting(self) -> Iterator[BlockEvent]:
        """Begin the calls that wait, as far as those before them are complete."""
        while self._waiting and self._waiting[0].name:
            block = self._open_block()
            if block is not None and not block.is_whole:
                return
            yield from self._stop()
            yield from self._begin_call(self._waiting.pop(0))

    def _begin_call(self, block: AnswerBlock) -> Iterator[BlockEvent]:
        yield self._start(block)
        unsent, block.unsent = "".join(block.unsent), []
        if unsent:
            yield self._write(block, unsent)

    def _open_block(self) -> AnswerBlock | None:
        return self.blocks[-1] if self._is_open else None

    def _start(self, block: AnswerBlock) -> BlockEvent:
        self.blocks.append(block)
        self._is_open = True
        return BlockEvent("start", len(self.blocks) - 1, block)

    def _write(self, block: AnswerBlock, text: str) -> BlockEvent:
        block.pieces.append(text)
        return BlockEvent("write", len(self.blocks) - 1, block, text)

    def _stop(self) -> Iterator[BlockEvent]:
        if self._is_open:
            self._is_open = False
            yield BlockEvent("stop", len(self.blocks) - 1, self.blocks[-1])
