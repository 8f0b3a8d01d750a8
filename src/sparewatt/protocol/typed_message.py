"""Signed messages as dataclasses: a class is an EIP-712 type, its fields in order with their types.

`struct_hash` is the one place that turns a message into the bytes that contracts see. Names in the type are the field
names in camel case, as the contracts have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, get_type_hints

from sparewatt.protocol.signing import Domain, StructMember, Value, hash_struct, typed_digest

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
    """Both are read from the chain, never from a constant."""
    return Domain(DOMAIN_NAME, DOMAIN_VERSION, chain_id=chain_id, verifying_contract=contract)


@dataclasses.dataclass(frozen=True, slots=True)
class TypedMessage:
    """Base of every typed message."""

    struct_name: ClassVar[str] = ""
    """The EIP-712 type's name, where it is not the class's own."""

    def values(self) -> tuple[Any, ...]:
        """The fields in order, as a contract call takes them."""
        return tuple(getattr(self, name) for name, _, _ in _members_of(self))


def struct_hash(message: TypedMessage) -> bytes:
    return hash_struct(_struct_name(message), _fields(message))


def message_digest(domain: Domain, message: TypedMessage) -> bytes:
    """The 32 bytes that are signed."""
    return typed_digest(domain, _struct_name(message), _fields(message))


def _struct_name(message: TypedMessage) -> str:
    return message.struct_name or type(message).__name__


def _fields(message: TypedMessage) -> Sequence[StructMember]:
    return [StructMember(kind, camel, _value(message, name)) for name, camel, kind in _members_of(message)]


def _value(message: TypedMessage, name: str) -> Value:
    value: Value = getattr(message, name)
    return value


def _members_of(message: TypedMessage) -> tuple[tuple[str, str, str], ...]:
    kind: Any = type(message)  # mypy takes no class for hashable
    return _members(kind)


@cache
def _members(kind: type[Any]) -> tuple[tuple[str, str, str], ...]:
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple((name, _camel(name), hints[name].__metadata__[0]) for name in names)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
