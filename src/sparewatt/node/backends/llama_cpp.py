"""The adapter for llama.cpp's own server, which reports its slots and what its chat template can do.

It notices that a client left when it writes to it, or looks after a second in which no answer had a token. So streams
are requested with their progress (`return_progress`, one event for each batch of a prompt), which the node drops: a
prompt whose client left is given up after the batch that is being read. Older versions ignore the field.

A model whose chat template knows no tools gets them by a schema (`generic_tools`): the server would ignore them. So it
does with patterns that its grammar cannot express (`llama_patterns`).

Each slot has a context. In a unified KV cache they share the room of one; the server does not say whether it has one,
but that is what it does if its owner sets no number of slots, and then it has four.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BackendReply, BackendTotals
from sparewatt.node.backends.generic_reply import generic_events, generic_whole
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.llama_requests import PatternNotHeld, rewritten_request
from sparewatt.node.backends.openai import OpenAIBackend, is_owned_by
from sparewatt.node.backends.reply_stream import without_events
from sparewatt.protocol.link.node_report import Capability

_ALWAYS: tuple[Capability, ...] = ("chat", "completions", "json_schema", "logprobs")


UNIFIED_SLOTS = 4
"""`n_parallel` if its owner sets none (b10586), together with `kv_unified`."""


_PROGRESS = b'"prompt_progress":'
"""In JSON, no text can hold this: the quotes would be escaped."""
_EVENT_STREAM = "text/event-stream"


class _Streaming(msgspec.Struct, frozen=True):
    stream: bool | None = None


class _TemplateCaps(msgspec.Struct, frozen=True):
    supports_tools: bool | None = None
    supports_tool_calls: bool | None = None

    @property
    def has_tools(self) -> bool | None:
        """None from older versions, which do not say."""
        return self.supports_tools if self.supports_tools is not None else self.supports_tool_calls


class _Modalities(msgspec.Struct, frozen=True):
    vision: bool = False


class _Props(msgspec.Struct, frozen=True):
    default_generation_settings: dict[str, Any]
    chat_template_caps: _TemplateCaps = _TemplateCaps()
    modalities: _Modalities = _Modalities()
    endpoint_metrics: bool = False
    model_path: str | None = None


class LlamaCppBackend(OpenAIBackend):
    kind: ClassVar[str] = "llama.cpp"
    capabilities_to_probe = ("embeddings",)  # it must be started for them, and does not report whether it was
    _has_tool_template = True
    """Whether the model's chat template knows tools; as long as that is not known, requests go as they are."""

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        # While it loads it has no properties, but already lists its model.
        return await server.serves("/props", _Props) or await is_owned_by(server, "llamacpp")

    async def models(self) -> list[BackendModel]:
        models = await super().models()
        try:
            props = await self.read("/props", _Props)
        except BackendError:  # it is still loading
            return models
        self._has_tool_template = props.chat_template_caps.has_tools is not False
        return [
            replace(
                model,
                capabilities=model.capabilities if model.capabilities_complete else _capabilities(props),
                weights_name=props.model_path or model.weights_name,
            )
            for model in models
        ]

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        try:
            request = rewritten_request(path, body, has_tool_template=self._has_tool_template)
        except PatternNotHeld as error:
            yield _refusal(error)
            return
        async with super().post(path, _with_progress(request.body)) as reply:
            is_stream = reply.content_type == _EVENT_STREAM
            chunks = without_events(reply.chunks, _PROGRESS) if is_stream else reply.chunks
            if request.is_generic and reply.status == 200:
                chunks = generic_events(chunks) if is_stream else generic_whole(chunks)
            yield replace(reply, chunks=chunks)

    async def load(self) -> BackendLoad | None:
        """`/slots` has the running requests; those that wait, and the KV cache, are in `/metrics`, behind a flag."""
        load = await super().load()
        if load is not None and load.slots == UNIFIED_SLOTS and load.context_tokens is not None:
            load = replace(load, context_tokens=load.context_tokens // UNIFIED_SLOTS)
        page = await self._metrics() if load is not None else None
        if load is None or page is None:
            return load
        return replace(
            load,
            queued=page.count("llamacpp:requests_deferred") or 0,
            kv_used=page.share("llamacpp:kv_cache_usage_ratio"),
            totals=BackendTotals(
                prompt_tokens=page.total("llamacpp:prompt_tokens_total"),
                generation_tokens=page.total("llamacpp:tokens_predicted_total"),
            ),
        )


def _with_progress(body: bytes) -> bytes:
    """A request for a stream, with the field that makes the server report its progress; any other as it is."""
    try:
        is_streamed = msgspec.json.decode(body, type=_Streaming).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body  # the server says what is wrong with it
    if not is_streamed:
        return body
    end = body.rindex(b"}")
    return body[:end] + b',"return_progress":true' + body[end:]


def _capabilities(props: _Props) -> tuple[Capability, ...]:
    has_tools = props.chat_template_caps.has_tools
    may: dict[Capability, bool] = {
        "tools": has_tools is not None,
        "tools_generic": has_tools is False,
        "vision": props.modalities.vision,
    }
    return (*_ALWAYS, *(each for each, has_it in may.items() if has_it))


def _refusal(error: PatternNotHeld) -> BackendReply:
    body = {"error": {"code": "invalid_json_schema", "message": str(error), "type": "invalid_request_error"}}

    async def chunks() -> AsyncIterator[bytes]:
        yield msgspec.json.encode(body)

    return BackendReply(400, "application/json", chunks())
