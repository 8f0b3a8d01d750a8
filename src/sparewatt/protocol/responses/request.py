"""Requests to `/v1/responses`: their fields, which of them have no effect here, and which are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.openai.chat import TOKENS_MAX, ModelField, fields_of, parse_body
from sparewatt.protocol.openai.parameters import FORWARDED_FIELDS

RESPONSE_ITEMS_MAX = 10_000
"""Items of one request: an agent's day of messages, calls and their results."""
RESPONSE_TOOLS_MAX = 512
"""Functions of one request; models get confused by a tenth of that."""
METADATA_PAIRS_MAX, METADATA_KEY_CHARS_MAX, METADATA_VALUE_CHARS_MAX = 16, 64, 512
"""OpenAI's own bounds."""
_Name = Annotated[str, Meta(max_length=256)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
Json = dict[str, Any]

_LOGPROBS_INCLUDE = "message.output_text.logprobs"
_RENAMED = frozenset(
    {
        *("messages", "n", "max_tokens", "max_completion_tokens", "logprobs", "response_format", "reasoning_effort"),
        *("continue_final_message", "add_generation_prompt"),
    }
)
"""Fields of a chat request that a response has under another name, or not at all."""
_FORWARDED = FORWARDED_FIELDS["/v1/chat/completions"] - _RENAMED
"""Fields of chat requests that OpenAI's responses do not have, and that model servers know."""


class TextOptions(msgspec.Struct, frozen=True):
    format: Json | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(msgspec.Struct, frozen=True):
    effort: Annotated[str, Meta(max_length=20)] | None = None
    summary: Annotated[str, Meta(max_length=20)] | None = None


class ConversationReference(msgspec.Struct, frozen=True):
    id: _Name


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelField
    input: str | Annotated[list[Json], Meta(max_length=RESPONSE_ITEMS_MAX)] | None = None
    instructions: str | None = None
    previous_response_id: _Name | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: Annotated[list[Json], Meta(max_length=RESPONSE_TOOLS_MAX)] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Meta(ge=0)] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: Annotated[list[_Name], Meta(max_length=32)] | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: _Name | None = None
    user: str | None = None
    safety_identifier: _Name | None = None
    prompt_cache_key: _Name | None = None
    stream_options: Json | None = None
    conversation: _Name | ConversationReference | None = None
    prompt: Any = None
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Which nodes may serve it, in the vocabulary of `policy/`."""

    @property
    def conversation_id(self) -> str | None:
        given = self.conversation
        return given.id if isinstance(given, ConversationReference) else given

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or _LOGPROBS_INCLUDE in (self.include or ())


class ParsedResponsesRequest(msgspec.Struct, frozen=True):
    """A request, its fields that go to model servers unchanged, and the names of those without effect."""

    request: ResponsesRequest
    extras: dict[str, msgspec.Raw]
    ignored: tuple[str, ...]


_decoder = msgspec.json.Decoder(ResponsesRequest)


def parse_request(body: bytes) -> ParsedResponsesRequest:
    """Raises InvalidJson, InvalidField, BodyTooLarge or UnsupportedParameter."""
    request = parse_body(_decoder, body)
    given = fields_of(body)
    _refuse_unsupported(request)
    check_metadata(request.metadata or {})
    others = [name for name in given if name not in ResponsesRequest.__struct_fields__]
    extras = {name: given[name] for name in others if name in _FORWARDED}
    unknown = [name[:60] for name in others if name not in extras and bytes(given[name]) != b"null"]
    return ParsedResponsesRequest(request, extras, (*_ignored_parameters(request), *unknown))


def _refuse_unsupported(request: ResponsesRequest) -> None:
    """Fields that cannot be ignored, because the answer would be to another question."""
    if request.conversation is not None and request.previous_response_id is not None:
        raise InvalidField(
            "A response goes on from a conversation or from a previous response, not from both.",
            param="previous_response_id",
        )
    if request.prompt is not None:
        raise UnsupportedParameter(
            "There are no prompt templates here. Send the prompt as 'instructions' and 'input'.", param="prompt"
        )
    if request.background and request.store is False:
        raise InvalidField(
            "A response in the background is fetched later, so it must be kept: set 'store' to true, or leave it out.",
            param="background",
        )


def check_metadata(metadata: dict[str, str]) -> None:
    """Raises InvalidField."""
    if len(metadata) > METADATA_PAIRS_MAX:
        raise InvalidField(f"Metadata has at most {METADATA_PAIRS_MAX} pairs.", param="metadata")
    for key, value in metadata.items():
        if len(key) > METADATA_KEY_CHARS_MAX or len(value) > METADATA_VALUE_CHARS_MAX:
            raise InvalidField(
                f"Keys of metadata have at most {METADATA_KEY_CHARS_MAX} characters, "
                f"values {METADATA_VALUE_CHARS_MAX}.",
                param=f"metadata.{key[:METADATA_KEY_CHARS_MAX]}",
            )


def _ignored_parameters(request: ResponsesRequest) -> list[str]:
    """Known fields without effect; the reply names them."""
    given = {
        "truncation": request.truncation == "auto",
        "max_tool_calls": request.max_tool_calls is not None,
        "service_tier": request.service_tier not in (None, "auto", "default"),
        "text.verbosity": request.text is not None and request.text.verbosity is not None,
        "reasoning.summary": request.reasoning is not None and request.reasoning.summary is not None,
        "safety_identifier": request.safety_identifier is not None,
        "prompt_cache_key": request.prompt_cache_key is not None,
        "user": request.user is not None,
    }
    includes = [f"include.{name}" for name in request.include or () if name != _LOGPROBS_INCLUDE]
    return includes + [name for name, is_given in given.items() if is_given]
