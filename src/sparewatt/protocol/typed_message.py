"""Signed messages as dataclasses: a class is an EIP-712 struct type, its fields in order are the members.

`struct_hash` is the one place that turns a message into the bytes that contracts see. A member has its field's name in
camel case, as in the contracts.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Annotated, Any, ClassVar, dataclass_transform, get_type_hints

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
        return tuple(member.value for member in _members(self))


def struct_hash(message: TypedMessage) -> bytes:
    return hash_struct(_struct_name(message), _members(message))


def message_digest(domain: Domain, message: TypedMessage) -> bytes:
    """The 32 bytes that are signed."""
    return typed_digest(domain, _struct_name(message), _members(message))


def _struct_name(message: TypedMessage) -> str:
    return message.struct_name or type(message).__name__


def _members(message: TypedMessage) -> list[StructMember]:
    cls: Any = type(message)  # mypy does not accept a class as hashable
    return [StructMember(kind, camel, getattr(message, name)) for name, camel, kind in _member_types(cls)]


@cache
def _member_types(cls: type[Any]) -> tuple[tuple[str, str, str], ...]:
    """Field name, member name and EIP-712 type of each member."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple((name, _camel(name), hints[name].__metadata__[0]) for name in names)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
