"""Requests to `/v1/messages`: their fields, which of them have no effect here, and which are refused.

`MessagesRequest` has the fields that are translated. All others have no effect and are named in the reply, except those
of `REFUSED_FIELDS`: without them the answer would be to another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.openai.chat import MESSAGES_MAX, TOKENS_MAX, ModelField, fields_of, parse_body

Json = dict[str, Any]

ANTHROPIC_TOOLS_MAX = 512
"""Tools of one request; a coding agent brings some thirty."""
STOP_SEQUENCES_MAX = 16
"""More than any model server takes well; OpenAI's own bound is four."""
_StopSequence = Annotated[str, Meta(min_length=1, max_length=1_000)]

REFUSED_FIELDS: Mapping[str, str] = {
    "container": "There are no containers for code here. Leave 'container' out.",
    "mcp_servers": "The network connects to no MCP servers. Connect to them yourself, and send their tools as 'tools'.",
}
"""Fields that cannot be ignored, and what to do instead. Empty ones are fine."""

_DEFAULTS: Mapping[str, frozenset[bytes]] = {
    "service_tier": frozenset({b'"auto"', b'"standard_only"'}),
    "speed": frozenset({b'"standard"'}),
    "cache_control": frozenset({b'{"type":"ephemeral"}'}),
}
"""Values that ask for what happens without the field: nodes cache prefixes by themselves."""
_EMPTY = (b"null", b"[]", b"{}")


class MessageTurn(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Json]

    def blocks(self) -> list[Json]:
        return [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content


class ThinkingOptions(msgspec.Struct, frozen=True):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None
    display: str | None = None

    @property
    def is_shown(self) -> bool:
        return self.type != "disabled" and self.display != "omitted"


class OutputOptions(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: Json | None = None


class MessagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelField
    messages: Annotated[list[MessageTurn], Meta(min_length=1, max_length=MESSAGES_MAX)]
    max_tokens: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    system: str | list[Json] | None = None
    stream: bool | None = None
    stop_sequences: Annotated[list[_StopSequence], Meta(max_length=STOP_SEQUENCES_MAX)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    tools: Annotated[list[Json], Meta(max_length=ANTHROPIC_TOOLS_MAX)] | None = None
    tool_choice: Json | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions | None = None
    output_format: Json | None = None
    """The older place of `output_config.format`."""
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Which nodes may serve it, in the vocabulary of `policy/`."""

    @property
    def shows_thinking(self) -> bool:
        """As at Anthropic, thinking is written out only on request."""
        return self.thinking is not None and self.thinking.is_shown


class ParsedMessagesRequest(msgspec.Struct, frozen=True):
    """A request, and the names of its fields without effect."""

    request: MessagesRequest
    ignored: tuple[str, ...]


_decoder = msgspec.json.Decoder(MessagesRequest)


def parse_messages(body: bytes) -> ParsedMessagesRequest:
    """Raises InvalidJson, InvalidField, BodyTooLarge or UnsupportedParameter."""
    request = parse_body(_decoder, body)
    given = fields_of(body)
    for name, advice in REFUSED_FIELDS.items():
        if bytes(given.get(name, b"null")) not in _EMPTY:
            raise UnsupportedParameter(advice, param=name)
    others = [name for name in given if name not in MessagesRequest.__struct_fields__]
    unknown = [name[:60] for name in others if not _is_default(name, bytes(given[name]))]
    return ParsedMessagesRequest(request, (*unknown, *_ignored_options(request)))


def require_max_tokens(request: MessagesRequest) -> int:
    """Needed to answer, not to count. Raises InvalidField."""
    if request.max_tokens is None:
        raise InvalidField("The field 'max_tokens' is required.", param="max_tokens")
    return request.max_tokens


def _is_default(name: str, value: bytes) -> bool:
    return value in _EMPTY or value.replace(b" ", b"") in _DEFAULTS.get(name, ())


def _ignored_options(request: MessagesRequest) -> list[str]:
    """Parts of known fields without effect."""
    has_budget = request.thinking is not None and request.thinking.budget_tokens is not None
    return ["thinking.budget_tokens"] if has_budget else []
