"""Requests in Ollama's shapes as a chat, a completion or a request for embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sparewatt.core.errors import InvalidField, UnsupportedContent
from sparewatt.protocol.ollama.request import (
    Json,
    OllamaChatRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaGeneration,
    OllamaMessage,
    OllamaOptions,
    OllamaToolCall,
    ParsedOllama,
    model_name,
)
from sparewatt.protocol.openai.media import is_data

RAW_TOKENS_UNASKED = 1_024
"""The limit of a raw prompt without one. Ollama has none, and a prompt without a template often has no natural end."""
_SAME_NAME = tuple(name for name in OllamaOptions.__struct_fields__ if name != "num_predict")
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "max": "high"}
_PICTURES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
"""How base64 of a picture begins, and its type."""
_SCHEMA_NAME = "answer"
"""A chat's schema has a name, one of Ollama's has none."""


def to_chat(request: OllamaChatRequest, parsed: ParsedOllama) -> Json:
    """Raises InvalidField or UnsupportedContent."""
    chat = {"model": model_name(request.model), "messages": _messages(request.messages or ())}
    return chat | _generating(request, parsed) | ({"tools": request.tools} if request.tools else {})


def prompt_to_chat(request: OllamaGenerateRequest, parsed: ParsedOllama) -> Json:
    """A prompt is a chat of one message: that is how Ollama's own templates treat it."""
    system = [OllamaMessage(role="system", content=request.system)] if request.system else []
    prompt = OllamaMessage(role="user", content=request.prompt, images=request.images)
    return {"model": model_name(request.model), "messages": _messages([*system, prompt])} | _generating(request, parsed)


def is_completion(request: OllamaGenerateRequest) -> bool:
    """Whether the prompt goes to the model without a template: as it is, or to be filled in the middle."""
    return bool(request.raw or request.suffix)


def prompt_to_completion(request: OllamaGenerateRequest, parsed: ParsedOllama) -> Json:
    if request.images:
        raise UnsupportedContent("A prompt without a template has no pictures. Leave 'raw' out.", param="images")
    fields = _generating(request, parsed)
    for name in ("chat_template_kwargs", "reasoning_effort"):
        fields.pop(name, None)
    fields.setdefault("max_tokens", RAW_TOKENS_UNASKED)
    suffix = {"suffix": request.suffix} if request.suffix else {}
    return {"model": model_name(request.model), "prompt": request.prompt or ""} | fields | suffix


def to_embeddings(request: OllamaEmbedRequest) -> Json:
    fields: Json = {"model": model_name(request.model), "input": request.input}
    dimensions = {"dimensions": request.dimensions} if request.dimensions is not None else {}
    return fields | dimensions | _provider(request.provider)


# options


def _generating(request: OllamaGeneration, parsed: ParsedOllama) -> Json:
    options = parsed.options
    fields: Json = {name: value for name in _SAME_NAME if (value := getattr(options, name)) is not None}
    if options.repeat_penalty is not None:
        fields["repetition_penalty"] = options.repeat_penalty  # what vLLM and SGLang call it
    if options.num_predict is not None and options.num_predict > 0:
        fields["max_tokens"] = options.num_predict
    if request.is_streamed:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields | _thinking(request) | _format(request.format) | _provider(request.provider)


def _thinking(request: OllamaGeneration) -> Json:
    think = request.think
    if think is None:
        return {}
    if isinstance(think, bool):
        return {"chat_template_kwargs": {"enable_thinking": think}}
    if think not in _EFFORTS:
        raise InvalidField(f"'think' is true, false or one of {', '.join(_EFFORTS)}.", param="think")
    return {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": _EFFORTS[think]}


def _format(wanted: str | Json | None) -> Json:
    if wanted is None or wanted == "":
        return {}
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(wanted, str):
        raise InvalidField("'format' is 'json' or a JSON schema.", param="format")
    schema = {"name": _SCHEMA_NAME, "schema": wanted, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _provider(provider: msgspec.Raw) -> Json:
    return {"provider": provider} if bytes(provider) else {}


# messages


class _OpenCall(NamedTuple):
    """A call that has no result yet."""

    id: str
    name: str


def _messages(given: Sequence[OllamaMessage]) -> list[Json]:
    """Ollama's calls have no ids. A result belongs to the oldest call of its tool that has none yet."""
    messages: list[Json] = []
    waiting: list[_OpenCall] = []
    for i, message in enumerate(given):
        made: Json = {"role": message.role, "content": _content(message, at=f"messages.{i}")}
        if message.tool_calls:
            calls = [_tool_call(call, f"call_{i}_{j}") for j, call in enumerate(message.tool_calls)]
            waiting += [_OpenCall(call["id"], call["function"]["name"]) for call in calls]
            made["tool_calls"] = calls
        if message.role == "tool":
            made["tool_call_id"] = _answered(message, waiting, fallback=f"call_{i}")
        if message.thinking and message.role == "assistant":
            made["reasoning_content"] = message.thinking
        messages.append(made)
    return messages


def _tool_call(call: OllamaToolCall, made_id: str) -> Json:
    arguments = msgspec.json.encode(call.function.arguments).decode()
    return {
        "id": call.id or made_id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _answered(message: OllamaMessage, waiting: list[_OpenCall], *, fallback: str) -> str:
    """The id of the call that it answers, which is taken off the list."""

    def is_answered(call: _OpenCall) -> bool:
        if message.tool_call_id is not None:
            return call.id == message.tool_call_id
        return message.tool_name in (None, call.name)

    found = next((call for call in waiting if is_answered(call)), None)
    if found is not None:
        waiting.remove(found)
        return found.id
    return message.tool_call_id or fallback


def _content(message: OllamaMessage, *, at: str) -> str | list[Json] | None:
    text = message.content or ""
    if not message.images:
        return text if text or not message.tool_calls else None
    pictures = [_picture(data, at=f"{at}.images.{j}") for j, data in enumerate(message.images)]
    return [*([{"type": "text", "text": text}] if text else []), *pictures]


def _picture(data: str, *, at: str) -> Json:
    if is_data(data):
        return {"type": "image_url", "image_url": {"url": data}}
    kind = next((kind for start, kind in _PICTURES.items() if data.startswith(start)), None)
    if kind is None:
        raise UnsupportedContent("A picture is base64 of a PNG, JPEG, GIF or WebP file.", param=at)
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}
