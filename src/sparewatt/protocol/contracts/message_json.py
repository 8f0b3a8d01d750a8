"""Messages of the match as JSON objects: exactly the struct's members, numbers as decimal integers, bytes as 0x-hex.

Only the hash of the struct counts, so a message has one reading: a member that is missing, unknown or of another type
is refused. Ranges are checked by `message_ranges.py`, which `read_message` calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.typed_message import MessageMember, TypedMessage, members_of, row_type

ROWS_MAX = 1 << 20
"""Entries of a list: the largest snapshot."""

_BYTES32 = re.compile(r"0x[0-9a-f]{64}")
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")

Message = TypeVar("Message", bound=TypedMessage)


def write_message(message: TypedMessage) -> dict[str, Any]:
    """Addresses are written in lower case."""
    return {member.name: _written(getattr(message, member.field)) for member in members_of(type(message))}


def read_message(kind: type[Message], document: object) -> Message:
    """The message of a decoded JSON object, with all ranges checked. Raises InvalidField."""
    message = _read_fields(kind, document)
    require_in_range(message)
    return message


def _written(value: Any) -> Any:
    match value:
        case bytes():
            return "0x" + value.hex()
        case str():
            return value.lower()
        case tuple():
            return [_written(each) for each in value]
        case TypedMessage():
            return write_message(value)
        case _:
            return int(value)


def _read_fields(kind: type[Message], document: object) -> Message:
    members = members_of(kind)
    if not isinstance(document, Mapping):
        raise InvalidField(f"A {kind.__name__} is a JSON object.", param=kind.__name__)
    if different := sorted(set(map(str, document)) ^ {member.name for member in members}):
        raise InvalidField(
            f"A {kind.__name__} has exactly the members {', '.join(member.name for member in members)}.",
            param=different[0][:40],
        )
    return kind(**{member.field: _read(kind, member, document[member.name]) for member in members})


def _read(kind: type[TypedMessage], member: MessageMember, value: object) -> Any:
    if member.type.endswith("[]"):
        if not isinstance(value, list) or len(value) > ROWS_MAX:
            raise InvalidField(f"{member.name} is a list of at most {ROWS_MAX} entries.", param=member.name)
        if member.type[0].isupper():
            row = row_type(kind, member.field)
            return tuple(_read_fields(row, each) for each in value)
        single = member._replace(type=member.type.removesuffix("[]"))
        return tuple(_read(kind, single, each) for each in value)
    match member.type, value:
        case "bytes32", str(text) if _BYTES32.fullmatch(text):
            return bytes.fromhex(text[2:])
        case "address", str(text) if _ADDRESS.fullmatch(text):
            return text
        case kind_name, int(number) if kind_name.startswith("uint") and not isinstance(value, bool):
            return number
    raise InvalidField(f"{member.name} is {_WORDS.get(member.type, 'a decimal integer')}.", param=member.name)


_WORDS = {"bytes32": "0x and 64 lower-case hex digits", "address": "0x and 40 lower-case hex digits"}
