"""Requests to Ollama's endpoints that a model answers: their fields, which have no effect here, and which are refused.

The structs have the fields that are translated. All others have no effect and are named in the reply, except those of
`REFUSED_FIELDS`: without them the answer would be to another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.openai.chat import MESSAGES_MAX, TOKENS_MAX, ModelField, fields_of, parse_body

Json = dict[str, Any]

OLLAMA_TOOLS_MAX = 512
PICTURES_MAX = 64
"""Of one message; a model's context holds a few."""
STOPS_MAX = 16
EMBED_TEXTS_MAX = 2_048
"""OpenAI's own bound."""
DEFAULT_TAG = ":latest"
"""Ollama's clients add it to a name without a tag."""

REFUSED_FIELDS: Mapping[str, str] = {
    "template": "A node's model has its own template. Leave 'template' out, or send the whole prompt with 'raw'.",
    "context": "Nothing is kept between requests. Send the conversation to /api/chat.",
}
"""Fields that cannot be ignored, and what to do instead. Empty ones are fine."""
_EMPTY = (b"null", b'""', b"[]", b"{}", b"false")


class OllamaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that go to model servers. All others steer a server beyond one answer, and have no effect."""

    num_predict: Annotated[int, Meta(ge=-2, le=TOKENS_MAX)] | None = None
    """Negative or 0: no limit."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Meta(max_length=STOPS_MAX)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None


class OllamaFunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: Json = {}


class OllamaToolCall(msgspec.Struct, frozen=True):
    function: OllamaFunctionCall
    id: str | None = None


class OllamaMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: Annotated[list[str], Meta(max_length=PICTURES_MAX)] | None = None
    """Base64."""
    tool_calls: Annotated[list[OllamaToolCall], Meta(max_length=OLLAMA_TOOLS_MAX)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of chats and prompts."""

    model: ModelField
    stream: bool | None = None
    format: str | Json | None = None
    options: msgspec.Raw = msgspec.Raw(b"null")
    think: bool | str | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Which nodes may serve it, in the vocabulary of `policy/`."""

    @property
    def is_streamed(self) -> bool:
        """Unlike at OpenAI, unless it says no."""
        return self.stream is not False


class OllamaChatRequest(OllamaGeneration, frozen=True, kw_only=True):
    messages: Annotated[list[OllamaMessage], Meta(max_length=MESSAGES_MAX)] | None = None
    tools: Annotated[list[Json], Meta(max_length=OLLAMA_TOOLS_MAX)] | None = None


class OllamaGenerateRequest(OllamaGeneration, frozen=True, kw_only=True):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: Annotated[list[str], Meta(max_length=PICTURES_MAX)] | None = None


class OllamaEmbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelField
    input: str | Annotated[list[str], Meta(min_length=1, max_length=EMBED_TEXTS_MAX)]
    dimensions: Annotated[int, Meta(ge=1, le=1 << 16)] | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")


class OllamaPromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Of the older endpoint for embeddings."""

    model: ModelField
    prompt: str
    provider: msgspec.Raw = msgspec.Raw(b"")


_T = TypeVar("_T", bound=msgspec.Struct)


class ParsedOllama(msgspec.Struct, frozen=True):
    """The options of a request, and the names of what has no effect."""

    options: OllamaOptions
    ignored: tuple[str, ...]


def parse_ollama(body: bytes, shape: type[_T]) -> tuple[_T, ParsedOllama]:
    """Raises InvalidJson, InvalidField, BodyTooLarge or UnsupportedParameter."""
    request = parse_body(msgspec.json.Decoder(shape), body)
    given = fields_of(body)
    for name, advice in REFUSED_FIELDS.items():
        if name not in shape.__struct_fields__ and bytes(given.get(name, b"null")) not in _EMPTY:
            raise UnsupportedParameter(advice, param=name)
    others = [name for name in given if name not in (*shape.__struct_fields__, "options")]
    unknown = [name[:60] for name in others if bytes(given[name]) not in _EMPTY]
    options, without_effect = _options(given.get("options"))
    return request, ParsedOllama(options, (*unknown, *without_effect))


def _options(raw: msgspec.Raw | None) -> tuple[OllamaOptions, list[str]]:
    if raw is None or bytes(raw) in _EMPTY:
        return OllamaOptions(), []
    try:
        options = msgspec.json.decode(raw, type=OllamaOptions)
        names = fields_of(bytes(raw))
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise InvalidField(f"{text}.", param=f"options{path.rstrip('`')}") from None
    return options, [f"options.{name[:60]}" for name in names if name not in OllamaOptions.__struct_fields__]


def model_name(asked: str) -> str:
    return asked.removesuffix(DEFAULT_TAG) or asked
