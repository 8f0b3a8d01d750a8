"""What of a chat a server would ignore, or refuse in its own words: refused here, with the field's name.

Only shapes that no server knows are refused. What some servers know and others do not is a matter of capabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.openai.chat import UNREADABLE

ROLES: Final = ("developer", "system", "user", "assistant", "tool", "function")
FORMATS: Final = ("text", "json_object", "json_schema", "structural_tag", "grammar")
"""OpenAI's three, and two of vLLM's and SGLang's."""


class _Role(msgspec.Struct, frozen=True):
    role: msgspec.Raw = msgspec.Raw(b"")


class _JsonSchema(msgspec.Struct, frozen=True):
    schema: dict[str, msgspec.Raw] | None = None
    name: str | None = None


class _Format(msgspec.Struct, frozen=True):
    type: str
    json_schema: msgspec.Raw = msgspec.Raw(b"")


_role_decoder = msgspec.json.Decoder(_Role)
_format_decoder = msgspec.json.Decoder(_Format)
_schema_decoder = msgspec.json.Decoder(_JsonSchema)
_QUOTED_ROLES: Final = frozenset(f'"{role}"'.encode() for role in ROLES)


def check_role(message: bytes, position: int) -> None:
    """Raises InvalidField."""
    field = f"messages[{position}]"
    try:
        role = bytes(_role_decoder.decode(message).role)
    except UNREADABLE:
        raise InvalidField(f"'{field}' must be an object with a role and content.", param=field) from None
    if role not in _QUOTED_ROLES:
        known = ", ".join(ROLES)
        raise InvalidField(f"'{field}.role' must be one of {known}.", param=f"{field}.role")


def check_format(value: bytes) -> None:
    """Of `response_format`. Raises InvalidField."""
    if value == b"null":
        return
    try:
        given = _format_decoder.decode(value)
    except UNREADABLE:
        raise InvalidField(
            """'response_format' must be an object with a type, such as {"type": "json_object"}.""",
            param="response_format",
        ) from None
    if given.type not in FORMATS:
        known = ", ".join(FORMATS[:3])
        raise InvalidField(f"'response_format.type' must be one of {known}.", param="response_format.type")
    if given.type == "json_schema":
        _check_schema(bytes(given.json_schema))


def _check_schema(value: bytes) -> None:
    field = "response_format.json_schema"
    try:
        schema = _schema_decoder.decode(value).schema
    except UNREADABLE:
        schema = None
    if schema is None:
        raise InvalidField(f"'{field}' must be an object with a name and a schema, which is an object.", param=field)


def check_list(value: bytes, field: str) -> None:
    """Of `tools` and the like. Raises InvalidField."""
    if value != b"null" and value[:1] != b"[":
        raise InvalidField(f"'{field}' must be a list.", param=field)


def check_choice(value: bytes, field: str, words: Sequence[str]) -> None:
    """Of `tool_choice` and the like: one of the words, or an object. Raises InvalidField."""
    if value in (b"null", *(f'"{word}"'.encode() for word in words)) or value[:1] == b"{":
        return
    raise InvalidField(f"'{field}' must be one of {', '.join(words)}, or an object that names one.", param=field)
