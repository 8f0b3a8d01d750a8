"""Translates the chunks of a chat into Anthropic's events, chunk by chunk, and a whole reply into a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.anthropic.request import Json
from sparewatt.protocol.openai.answer_blocks import AnswerAssembler, AnswerBlock, BlockEvent, BlockKind
from sparewatt.protocol.responses.chat_chunks import StreamChunk
from sparewatt.protocol.responses.input_items import NewId
from sparewatt.protocol.responses.response_object import usage_of as response_usage

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What Anthropic's clients may send back; some servers write ids with other characters."""
_DELTAS: dict[BlockKind, tuple[str, str]] = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "call": ("input_json_delta", "partial_json"),
}


class MessageTranslator:
    """One answer while it is written; methods return the events to send."""

    def __init__(
        self, *, message_id: str, model: str, shows_thinking: bool, stops: tuple[str, ...] = (), new_id: NewId
    ) -> None:
        """`model`: as the client named it. `stops`: the request's own stop sequences."""
        self._answer = AnswerAssembler(
            with_reasoning=shows_thinking,
            call_id=lambda given: given if given and _CALL_ID.fullmatch(given) else new_id("toolu"),
        )
        self._id = message_id
        self._model = model
        self._stops = stops

    @property
    def failure(self) -> SparewattError | None:
        return self._answer.failure

    def begin(self) -> list[Json]:
        """How many tokens the prompt has is known at the end."""
        return [{"type": "message_start", "message": self._message([])}, {"type": "ping"}]

    def feed(self, chunk: StreamChunk) -> Iterator[Json]:
        return _block_events(self._answer.feed(chunk))

    def finish(self) -> list[Json]:
        """After the last chunk."""
        events = list(_block_events(self._answer.close()))
        delta = {"type": "message_delta", "delta": self._outcome(), "usage": usage_of(self._answer.usage)}
        return [*events, delta, {"type": "message_stop"}]

    def whole(self) -> Json:
        """The message, once everything was fed and finished. Raises JobFailed for a call that nobody should run."""
        content = [_content_block(block) for block in self._answer.complete_blocks()]
        return self._message(content) | self._outcome() | {"usage": usage_of(self._answer.usage)}

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

    def _outcome(self) -> Json:
        """Servers say `stop` for a stop sequence too; vLLM tells which one it was."""
        answer = self._answer
        reason = _STOP_REASONS.get(answer.finish_reason or "")
        stop = answer.stopped_by if answer.stopped_by in self._stops else None
        if reason is None and any(block.kind == "call" for block in answer.blocks):
            reason = "tool_use"
        reason = reason or ("stop_sequence" if stop is not None else "end_turn")
        return {"stop_reason": reason, "stop_sequence": stop if reason == "stop_sequence" else None}


def _block_events(events: Iterable[BlockEvent]) -> Iterator[Json]:
    for kind, index, block, text in events:
        match kind:
            case "start":
                yield {"type": "content_block_start", "index": index, "content_block": _empty_block(block)}
            case "write":
                name, place = _DELTAS[block.kind]
                yield {"type": "content_block_delta", "index": index, "delta": {"type": name, place: text}}
            case "stop":
                yield {"type": "content_block_stop", "index": index}


def _empty_block(block: AnswerBlock) -> Json:
    """As it begins. Nobody signs thinking here, and nobody checks a signature."""
    match block.kind:
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "text":
            return {"type": "text", "text": ""}
        case "call":
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _content_block(block: AnswerBlock) -> Json:
    match block.kind:
        case "reasoning":
            return _empty_block(block) | {"thinking": block.text}
        case "text":
            return _empty_block(block) | {"text": block.text}
        case "call":
            return _empty_block(block) | {"input": block.arguments()}


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
