"""The ABI codec: values of the Solidity ABI to bytes and back. Pure.

It knows unsigned and signed integers, addresses, booleans, bytes, text, arrays and tuples. Only the canonical encoding
is decoded: padding is zero, every dynamic part begins where the one before it ends, and nothing is left over. So there
is one encoding of a value, and the work of decoding is bounded by the length of the data.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

WORD = 32
TYPES_MAX = 1_024
"""Compiled types that are kept; our contracts have about 200 signatures."""
TYPE_CHARS_MAX = 2_000
NESTING_MAX = 16
"""Of tuples and arrays; our deepest type has 3."""
ARRAY_LENGTH_MAX = 1 << 20
"""Of a fixed-size array in a type. Dynamic arrays are bounded by the data."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_INTEGER = re.compile(r"(u?)int(\d{1,3})")
_BYTES = re.compile(r"bytes(\d{1,2})")
_ARRAY = re.compile(r"(.+)\[(\d{0,7})\]")


class AbiError(ValueError):
    """A value does not fit its type, the data is no canonical encoding, or the type is none that we know."""


class AbiType(ABC):
    """How one type is written and read. `head_bytes` is its size in place; a dynamic type has an offset there."""

    head_bytes: int = WORD
    is_dynamic: bool = False

    @abstractmethod
    def encode(self, value: Any) -> bytes: ...

    @abstractmethod
    def decode(self, data: bytes, at: int) -> tuple[Any, int]:
        """The value that begins at `at`, and where it ends. Raises AbiError."""


@dataclass(frozen=True, slots=True)
class _Integer(AbiType):
    bits: int
    signed: bool

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool) or not self._fits(value):
            raise AbiError(f"{value!r:.80} is no {'' if self.signed else 'u'}int{self.bits}")
        return value.to_bytes(WORD, "big", signed=self.signed)

    def decode(self, data: bytes, at: int) -> tuple[int, int]:
        value = int.from_bytes(_word(data, at), "big", signed=self.signed)
        if not self._fits(value):
            raise AbiError(f"a word holds more than {self.bits} bits")
        return value, at + WORD

    def _fits(self, value: int) -> bool:
        if self.signed:
            return -(1 << self.bits - 1) <= value < 1 << self.bits - 1
        return 0 <= value < 1 << self.bits


@dataclass(frozen=True, slots=True)
class _Bool(AbiType):
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bool):
            raise AbiError(f"{value!r:.80} is no bool")
        return int(value).to_bytes(WORD, "big")

    def decode(self, data: bytes, at: int) -> tuple[bool, int]:
        number = int.from_bytes(_word(data, at), "big")
        if number > 1:
            raise AbiError("a bool is neither 0 nor 1")
        return bool(number), at + WORD


@dataclass(frozen=True, slots=True)
class _Address(AbiType):
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
            raise AbiError(f"{value!r:.80} is no address")
        return bytes.fromhex(value[2:]).rjust(WORD, b"\0")

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        word = _word(data, at)
        if any(word[:12]):
            raise AbiError("an address has more than 20 bytes")
        return f"0x{word[12:].hex()}", at + WORD


@dataclass(frozen=True, slots=True)
class _FixedBytes(AbiType):
    size: int

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes) or len(value) != self.size:
            raise AbiError(f"bytes{self.size} needs exactly {self.size} bytes")
        return value.ljust(WORD, b"\0")

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        word = _word(data, at)
        _require_zeros(word[self.size :])
        return word[: self.size], at + WORD


@dataclass(frozen=True, slots=True)
class _Bytes(AbiType):
    is_text: bool
    is_dynamic = True

    def encode(self, value: Any) -> bytes:
        raw = value.encode() if self.is_text and isinstance(value, str) else value
        if not isinstance(raw, bytes) or (self.is_text and raw is value):
            raise AbiError(f"a {type(value).__name__} is no {'string' if self.is_text else 'bytes'}")
        return len(raw).to_bytes(WORD, "big") + raw + bytes(-len(raw) % WORD)

    def decode(self, data: bytes, at: int) -> tuple[str | bytes, int]:
        length, start = int.from_bytes(_word(data, at), "big"), at + WORD
        end = start + length + -length % WORD
        if end > len(data):
            raise AbiError("bytes reach beyond the data")
        raw = data[start : start + length]
        _require_zeros(data[start + length : end])
        try:
            return (raw.decode() if self.is_text else raw), end
        except UnicodeDecodeError:
            raise AbiError("a string is not UTF-8") from None


class _Members(AbiType):
    """Several values side by side: a tuple, or the elements of an array."""

    def __init__(self, kinds: Sequence[AbiType]) -> None:
        self.kinds = kinds
        self.is_dynamic = any(kind.is_dynamic for kind in kinds)
        self.head_bytes = WORD if self.is_dynamic else sum(kind.head_bytes for kind in kinds)

    def encode(self, value: Any) -> bytes:
        return _encode_members(self.kinds, value)

    def decode(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        return _decode_members(self.kinds, data, at)


@dataclass(frozen=True, slots=True)
class _DynamicArray(AbiType):
    element: AbiType
    is_dynamic = True

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, list | tuple):
            raise AbiError(f"a {type(value).__name__} is no array")
        return len(value).to_bytes(WORD, "big") + _encode_members([self.element] * len(value), value)

    def decode(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        length = int.from_bytes(_word(data, at), "big")
        if length * self.element.head_bytes > len(data) - at - WORD:
            raise AbiError("an array reaches beyond the data")
        return _decode_members([self.element] * length, data, at + WORD)


_PLAIN_TYPES: dict[str, AbiType] = {
    "address": _Address(),
    "bool": _Bool(),
    "bytes": _Bytes(is_text=False),
    "string": _Bytes(is_text=True),
}


@lru_cache(maxsize=TYPES_MAX)
def abi_type(text: str) -> AbiType:
    """The type of this canonical name, such as `(address,uint256)[3]`. Raises AbiError."""
    if len(text) > TYPE_CHARS_MAX:
        raise AbiError("the name of a type is too long")
    return _compile(text, NESTING_MAX)


def encode_values(types: Sequence[str], values: Sequence[Any]) -> bytes:
    """The arguments of a call, or the data of a log. Raises AbiError."""
    return _encode_members([abi_type(text) for text in types], values)


def decode_values(types: Sequence[str], data: bytes) -> tuple[Any, ...]:
    """Arrays and tuples come as tuples, addresses as lower-case text. Raises AbiError."""
    values, end = _decode_members([abi_type(text) for text in types], data, 0)
    if end != len(data):
        raise AbiError("there is data behind the last value")
    return values


def _compile(text: str, depth: int) -> AbiType:
    if depth == 0:
        raise AbiError("a type is nested too deeply")
    if array := _ARRAY.fullmatch(text):
        element = _compile(array[1], depth - 1)
        if not array[2]:
            return _DynamicArray(element)
        if not 1 <= int(array[2]) <= ARRAY_LENGTH_MAX:
            raise AbiError(f"{text!r} has no usable length")
        return _Members([element] * int(array[2]))
    if text.startswith("(") and text.endswith(")"):
        return _Members([_compile(member, depth - 1) for member in _split_members(text[1:-1])])
    return _elementary(text)


def _elementary(text: str) -> AbiType:
    plain = _PLAIN_TYPES.get(text)
    if plain is not None:
        return plain
    if (integer := _INTEGER.fullmatch(text)) and int(integer[2]) in range(8, 257, 8):
        return _Integer(bits=int(integer[2]), signed=not integer[1])
    if (fixed := _BYTES.fullmatch(text)) and 1 <= int(fixed[1]) <= WORD:
        return _FixedBytes(int(fixed[1]))
    raise AbiError(f"there is no codec for the type {text[:60]!r}")


def _split_members(text: str) -> list[str]:
    """At the commas that are within no inner tuple."""
    members, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            members.append(text[start:at])
            start = at + 1
    return [*members, text[start:]]


def _encode_members(kinds: Sequence[AbiType], values: Any) -> bytes:
    if not isinstance(values, list | tuple) or len(values) != len(kinds):
        raise AbiError(f"{len(kinds)} values are needed")
    heads, tails, tail_at = [], [], sum(kind.head_bytes for kind in kinds)
    for kind, value in zip(kinds, values, strict=True):
        encoded = kind.encode(value)
        if kind.is_dynamic:
            heads.append(tail_at.to_bytes(WORD, "big"))
            tails.append(encoded)
            tail_at += len(encoded)
        else:
            heads.append(encoded)
    return b"".join(heads) + b"".join(tails)


def _decode_members(kinds: Sequence[AbiType], data: bytes, start: int) -> tuple[tuple[Any, ...], int]:
    """Heads in order; every dynamic value must begin where the last one ended."""
    values = []
    at, end = start, start + sum(kind.head_bytes for kind in kinds)
    for kind in kinds:
        if kind.is_dynamic:
            if start + int.from_bytes(_word(data, at), "big") != end:
                raise AbiError("an offset does not lead to the end of the value before")
            value, end = kind.decode(data, end)
            at += WORD
        else:
            value, at = kind.decode(data, at)
        values.append(value)
    return tuple(values), end


def _word(data: bytes, at: int) -> bytes:
    word = data[at : at + WORD]
    if len(word) != WORD:
        raise AbiError("the data is too short")
    return word


def _require_zeros(padding: bytes) -> None:
    if any(padding):
        raise AbiError("padding is not zero")
