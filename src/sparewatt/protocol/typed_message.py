"""Signed messages as dataclasses: a class is an EIP-712 struct type, its fields in order are the members.

`struct_hash` is the one place that turns a message into the bytes that contracts see. A member has its field's name in
camel case, as in the contracts. A field may hold a tuple of other messages, whose hashes it then stands for.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, dataclass_transform, get_args, get_type_hints

from sparewatt.protocol.signing import Domain, StructMember, hash_struct, typed_digest

Address = Annotated[str, "address"]
Bytes32 = Annotated[bytes, "bytes32"]
Uint8 = Annotated[int, "uint8"]
Uint16 = Annotated[int, "uint16"]
Uint32 = Annotated[int, "uint32"]
Uint64 = Annotated[int, "uint64"]
Uint256 = Annotated[int, "uint256"]
Addresses = Annotated[tuple[str, ...], "address[]"]
Bytes32s = Annotated[tuple[bytes, ...], "bytes32[]"]

DOMAIN_NAME = "Sparewatt"
DOMAIN_VERSION = "1"


def contract_domain(*, chain_id: int, contract: str) -> Domain:
    """Read both from the chain, never from a constant."""
    return Domain(DOMAIN_NAME, DOMAIN_VERSION, chain_id=chain_id, verifying_contract=contract)


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class TypedMessage:
    """Base of all signed messages. Every subclass is a frozen dataclass."""

    struct_name: ClassVar[str] = ""
    """The name of the EIP-712 type, where it differs from the class name."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)

    def values(self) -> tuple[Any, ...]:
        """The fields in order, as a contract call takes them."""
        return tuple(_call_value(getattr(self, member.field)) for member in members_of(type(self)))


class MessageMember(NamedTuple):
    """How a field of a message is written as a member of its EIP-712 struct."""

    field: str
    name: str
    type: str


def struct_hash(message: TypedMessage) -> bytes:
    return hash_struct(_struct_name(type(message)), _members(message), nested_types=_nested_types_of(type(message)))


def message_digest(domain: Domain, message: TypedMessage) -> bytes:
    """The 32 bytes that are signed."""
    kind = type(message)
    return typed_digest(domain, _struct_name(kind), _members(message), nested_types=_nested_types_of(kind))


def members_of(kind: type[TypedMessage]) -> tuple[MessageMember, ...]:
    cls: Any = kind  # mypy does not accept a class as hashable
    return _members_of(cls)


def type_text(kind: type[TypedMessage]) -> str:
    """The struct's type string, without those of nested structs."""
    return f"{_struct_name(kind)}({','.join(f'{member.type} {member.name}' for member in members_of(kind))})"


def row_type(kind: type[TypedMessage], field: str) -> type[TypedMessage]:
    """The class of the nested messages in a field that holds a tuple of them."""
    row: type[TypedMessage] = get_args(get_type_hints(kind)[field])[0]
    return row


def _struct_name(kind: type[TypedMessage]) -> str:
    return kind.struct_name or kind.__name__


def _members(message: TypedMessage) -> list[StructMember]:
    return [
        StructMember(member.type, member.name, _member_value(getattr(message, member.field)))
        for member in members_of(type(message))
    ]


def _member_value(value: Any) -> Any:
    """Nested messages are hashed by themselves, and enter the outer hash so."""
    if isinstance(value, tuple) and value and isinstance(value[0], TypedMessage):
        return tuple(struct_hash(row) for row in value)
    return value


def _call_value(value: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], TypedMessage):
        return tuple(row.values() for row in value)
    return value


@cache
def _members_of(cls: type[Any]) -> tuple[MessageMember, ...]:
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple(MessageMember(name, _camel(name), hints[name].__metadata__[0]) for name in names)


def _nested_types_of(kind: type[TypedMessage]) -> str:
    cls: Any = kind
    return _nested_types(cls)


@cache
def _nested_types(cls: type[Any]) -> str:
    """The type strings of the nested messages, sorted by name, as EIP-712 appends them. Rows nest no further."""
    rows = [row_type(cls, member.field) for member in members_of(cls) if member.type[0].isupper()]
    return "".join(sorted(type_text(row) for row in rows))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
