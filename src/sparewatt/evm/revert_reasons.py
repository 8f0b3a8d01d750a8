"""The reason of a revert, decoded from the bytes that the contract returned, never guessed from a node's message."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.evm.abi_codec import AbiError, decode_values
from sparewatt.evm.model import bytes_of

REASON_CHARS_MAX = 200
_ERROR = bytes.fromhex("08c379a0")
"""The selector of Error(string), which `assert …, "reason"` returns."""
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {0x01: "assertion failed", 0x11: "number out of range", 0x12: "division by zero", 0x32: "index out of range"}


def read_reason(data: bytes) -> str:
    """The reason in the bytes that a contract returned, or a phrase that says there is none."""
    selector, rest = data[:4], data[4:]
    try:
        if selector == _ERROR:
            (text,) = decode_values(["string"], rest)
            return str(text)[:REASON_CHARS_MAX]
        if selector == _PANIC:
            (number,) = decode_values(["uint256"], rest)
            return _PANICS.get(number, f"panic {number}")
    except AbiError:
        pass
    return f"error 0x{selector.hex()}" if data else "no reason given"


def returned_bytes(data: object) -> bytes:
    """What a contract returned, out of a JSON-RPC error: nodes put it into the error's data, or one level down."""
    if isinstance(data, Mapping):
        data = data.get("data") or data.get("result")
    try:
        return bytes_of(data) if isinstance(data, str) else b""
    except ValueError:
        return b""
