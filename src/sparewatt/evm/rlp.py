"""RLP, Ethereum's encoding of byte strings and nested lists. Pure; only the canonical form is decoded."""

from __future__ import annotations

from collections.abc import Sequence

RlpItem = bytes | Sequence["RlpItem"]
NESTING_MAX = 16
_SHORT_MAX = 55
"""The longest payload whose length fits into the first byte."""


class RlpError(ValueError):
    """The bytes are no canonical RLP."""


def rlp_encode(item: RlpItem) -> bytes:
    if isinstance(item, bytes):
        return item if len(item) == 1 and item[0] < 0x80 else _prefix(len(item), 0x80) + item
    payload = b"".join(rlp_encode(each) for each in item)
    return _prefix(len(payload), 0xC0) + payload


def rlp_integer(number: int) -> bytes:
    """Big-endian without leading zeros: zero is the empty string."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def rlp_decode(data: bytes) -> RlpItem:
    """Raises RlpError."""
    item, end = _decode(data, 0, len(data), NESTING_MAX)
    if end != len(data):
        raise RlpError("there is data behind the item")
    return item


def _prefix(length: int, base: int) -> bytes:
    if length <= _SHORT_MAX:
        return bytes([base + length])
    size = rlp_integer(length)
    return bytes([base + _SHORT_MAX + len(size)]) + size


def _decode(data: bytes, at: int, end: int, depth: int) -> tuple[RlpItem, int]:
    if depth == 0:
        raise RlpError("lists are nested too deeply")
    if at >= end:
        raise RlpError("the data is too short")
    first = data[at]
    if first < 0x80:
        return data[at : at + 1], at + 1
    base = 0xC0 if first >= 0xC0 else 0x80
    start, stop = _payload(data, at, end, first - base)
    if base == 0x80:
        if stop - start == 1 and data[start] < 0x80:
            raise RlpError("a small byte stands for itself")
        return data[start:stop], stop
    items = []
    while start < stop:
        item, start = _decode(data, start, stop, depth - 1)
        items.append(item)
    return items, stop


def _payload(data: bytes, at: int, end: int, kind: int) -> tuple[int, int]:
    """Where the payload of the string or list at `at` begins and ends."""
    start, length = at + 1, kind
    if kind > _SHORT_MAX:
        size = kind - _SHORT_MAX
        start += size
        length = int.from_bytes(data[at + 1 : start], "big")
        if start > end or data[at + 1] == 0 or length <= _SHORT_MAX:
            raise RlpError("a length is not in its shortest form")
    if start + length > end:
        raise RlpError("the data is too short")
    return start, start + length
