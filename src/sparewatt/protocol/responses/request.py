"""A request to `/v1/responses` as it comes in: its fields, which of them have no effect here, and what is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.core.limits import MODEL_ID_CHARS_MAX, RESPONSE_ITEMS_MAX, RESPONSE_TOOLS_MAX
from sparewatt.protocol.openai.chat import fields_of, parse_body
from sparewatt.protocol.openai.parameters import FORWARDED_FIELDS

_TOKENS_MAX = 1 << 24
_Name = Annotated[str, Meta(max_length=256)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
Json = dict[str, Any]

LOGPROBS_WANTED = "message.output_text.logprobs"
METADATA_PAIRS_MAX, METADATA_KEY_CHARS_MAX, METADATA_VALUE_CHARS_MAX = 16, 64, 512

_SAID_OTHERWISE = frozenset(
    {
        *("messages", "n", "max_tokens", "max_completion_tokens", "logprobs", "response_format", "reasoning_effort"),
        *("continue_final_message", "add_generation_prompt"),
    }
)
FORWARDED_CHAT_FIELDS = FORWARDED_FIELDS["/v1/chat/completions"] - _SAID_OTHERWISE
"""Fields of chat requests that OpenAI's responses do not have, and model servers take."""


class TextOptions(msgspec.Struct, frozen=True):
    format: Json | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(msgspec.Struct, frozen=True):
    effort: Annotated[str, Meta(max_length=20)] | None = None
    summary: Annotated[str, Meta(max_length=20)] | None = None


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX)]
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
    max_output_tokens: Annotated[int, Meta(ge=1, le=_TOKENS_MAX)] | None = None
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
    conversation: Any = None
    prompt: Any = None
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Who may serve it, in the words of `policy/`."""

    @property
    def stores(self) -> bool:
        """Here nothing is kept unless it is asked for."""
        return bool(self.store)

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS_WANTED in (self.include or ())


class ParsedResponsesRequest(msgspec.Struct, frozen=True):
    """A request, what of it goes on to model servers as it is, and what has no effect."""

    request: ResponsesRequest
    extras: dict[str, msgspec.Raw]
    ignored: tuple[str, ...]


_decoder = msgspec.json.Decoder(ResponsesRequest)


def parse_request(body: bytes) -> ParsedResponsesRequest:
    """Raises InvalidJson, InvalidField, BodyTooLarge or UnsupportedParameter."""
    request = parse_body(_decoder, body)
    given = fields_of(body)
    refuse_unsupported(request)
    check_metadata(request.metadata)
    known = ResponsesRequest.__struct_fields__
    unknown = [name for name in given if name not in known]
    extras = {name: given[name] for name in unknown if name in FORWARDED_CHAT_FIELDS}
    unknown = [name for name in unknown if name not in extras and bytes(given[name]) != b"null"]
    return ParsedResponsesRequest(request, extras, (*ignored_parameters(request), *(name[:60] for name in unknown)))


def refuse_unsupported(request: ResponsesRequest) -> None:
    """What cannot be left out without changing the question."""
    if request.conversation is not None:
        raise UnsupportedParameter(
            "There are no conversations here. Go on from a stored response with 'previous_response_id', "
            "or send the conversation's items as 'input'.",
            param="conversation",
        )
    if request.prompt is not None:
        raise UnsupportedParameter(
            "There are no prompt templates here. Send the prompt as 'instructions' and 'input'.", param="prompt"
        )
    if request.background and not request.stores:
        raise InvalidField(
            "A response in the background is fetched later, so it must be stored: set 'store' to true.",
            param="background",
        )


def check_metadata(metadata: dict[str, str] | None) -> None:
    if metadata is None:
        return
    if len(metadata) > METADATA_PAIRS_MAX:
        raise InvalidField(f"Metadata has at most {METADATA_PAIRS_MAX} pairs.", param="metadata")
    for key, value in metadata.items():
        if len(key) > METADATA_KEY_CHARS_MAX or len(value) > METADATA_VALUE_CHARS_MAX:
            raise InvalidField(
                f"Keys of metadata have at most {METADATA_KEY_CHARS_MAX} characters, "
                f"values {METADATA_VALUE_CHARS_MAX}.",
                param=f"metadata.{key[:METADATA_KEY_CHARS_MAX]}",
            )


def ignored_parameters(request: ResponsesRequest) -> list[str]:
    """Fields that are understood and have no effect; a client may want to know."""
    found = [f"include.{name}" for name in request.include or () if name != LOGPROBS_WANTED]
    if request.truncation == "auto":
        found.append("truncation")
    if request.max_tool_calls is not None:
        found.append("max_tool_calls")
    if request.service_tier not in (None, "auto", "default"):
        found.append("service_tier")
    if request.text is not None and request.text.verbosity is not None:
        found.append("text.verbosity")
    if request.reasoning is not None and request.reasoning.summary is not None:
        found.append("reasoning.summary")
    found += [name for name in ("safety_identifier", "prompt_cache_key", "user") if getattr(request, name) is not None]
    return found
