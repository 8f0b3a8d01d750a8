"""Failover on the node: rewrites a job that continues another node's answer into a request of this model server.

The request takes one of the ways that `continuation_probe` found; the reply is converted to chunks of a chat, which
hold only the new text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from sparewatt.node.backends.backend import Backend, BadBackendReply
from sparewatt.node.backends.continuation_probe import (
    CHAT,
    COMPLETIONS,
    FLAGS,
    AssistantPrefill,
    ContinuationSupport,
    raw_prompt,
)
from sparewatt.node.backends.reply_stream import EventDataSplitter
from sparewatt.protocol.openai.continuation import needs_chat

_CHAT_ONLY = (
    "messages",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "logprobs",
    "top_logprobs",
    "chat_template_kwargs",
    "n",
)
"""Fields of a chat request that mean nothing, or something else, in a request for a completion."""


class CannotContinue(Exception):
    """None of the server's ways can continue this text."""


class BackendRequest(NamedTuple):
    """What to post to the model server."""

    path: str
    body: bytes
    has_requested_shape: bool
    """Whether the reply needs no conversion."""


async def continuation_request(
    backend: Backend, support: ContinuationSupport, model: str, request: bytes, text: str
) -> BackendRequest:
    """Raises CannotContinue, BackendError or msgspec.DecodeError."""
    fields: dict[str, Any] = msgspec.json.decode(request, type=dict[str, Any])
    if isinstance(fields.get("prompt"), str):
        body = msgspec.json.encode(fields | {"prompt": fields["prompt"] + text})
        return BackendRequest(COMPLETIONS, body, has_requested_shape=True)
    if support.raw is not None and not needs_chat(fields):
        prompt = await raw_prompt(backend, model, fields, text, support.raw)
        if prompt is None:
            raise BadBackendReply("the model server did not return its prompt")
        return BackendRequest(COMPLETIONS, _raw_body(fields, prompt), has_requested_shape=False)
    if support.prefill is None:
        raise CannotContinue("the model server cannot continue such an answer")
    return BackendRequest(CHAT, _prefilled_body(fields, text, support.prefill), has_requested_shape=True)


def _raw_body(fields: dict[str, Any], prompt: str | list[int]) -> bytes:
    rest = {name: value for name, value in fields.items() if name not in _CHAT_ONLY}
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    bound = {} if limit is None else {"max_tokens": limit}
    return msgspec.json.encode(rest | bound | {"prompt": prompt})


def _prefilled_body(fields: dict[str, Any], text: str, prefill: AssistantPrefill) -> bytes:
    if prefill.trims and text != text.rstrip():
        raise CannotContinue("the model server loses the white space at the end of the text")
    messages = list(fields["messages"])
    if messages[-1].get("role") == "assistant":  # the client's own prefill
        messages[-1] = messages[-1] | {"content": messages[-1]["content"] + text}
    else:
        messages.append({"role": "assistant", "content": text})
    return msgspec.json.encode(fields | {"messages": messages} | (FLAGS if prefill.needs_flags else {}))


async def as_chat_stream(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Convert the stream of a completion to that of a chat. Raises BadBackendReply."""
    splitter = EventDataSplitter()
    async for chunk in chunks:
        if events := b"".join(_event(data) for data in splitter.feed(chunk)):
            yield events


def _event(data: bytes) -> bytes:
    if data == b"[DONE]":
        return b"data: [DONE]\n\n"
    try:
        chunk: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        if chunk.get("error") is not None:
            return b"data: " + data + b"\n\n"
        usage = chunk.pop("usage", None)
        choices = [_choice(choice) for choice in chunk.pop("choices", None) or ()]
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError, RecursionError):
        raise BadBackendReply("the model server streams something that is no chunk") from None
    chunk["object"] = "chat.completion.chunk"
    text = [chunk | {"choices": choices}] if choices else []
    count = [chunk | {"choices": [], "usage": usage}] if usage is not None else []
    return b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in text + count)


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    text = choice.get("text")
    delta = {"content": text} if text else {}
    return {"index": choice.get("index", 0), "delta": delta, "finish_reason": choice.get("finish_reason")}
