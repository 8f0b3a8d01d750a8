"""Translates reverts of contracts and errors of nodes into ChainReverted, ChainRefused and ChainUnavailable.

The reason of a revert is decoded from the bytes that the contract returned, never guessed from a node's message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError

import aiohttp
from eth_abi.abi import decode as abi_decode
from eth_abi.exceptions import DecodingError
from web3.exceptions import (
    BadResponseFormat,
    BlockNotFound,
    ContractLogicError,
    TooManyRequests,
    TransactionNotFound,
    Web3RPCError,
)

from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable

RETRY_AFTER_S = 2.0
REASON_CHARS_MAX = 200
_ERROR = bytes.fromhex("08c379a0")
"""The selector of Error(string), which `assert …, "reason"` returns."""
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {0x01: "assertion failed", 0x11: "number out of range", 0x12: "division by zero", 0x32: "index out of range"}

_NO_REPLY = (aiohttp.ClientError, TimeoutError, OSError, JSONDecodeError, TooManyRequests, BadResponseFormat)
"""Nothing, or something that is no reply: a proxy's page, say."""


def read_reason(data: bytes) -> str:
    """The reason in the bytes that a contract returned, or a phrase that says there is none."""
    selector, rest = data[:4], data[4:]
    try:
        if selector == _ERROR:
            (text,) = abi_decode(["string"], rest)
            return str(text)[:REASON_CHARS_MAX]
        if selector == _PANIC:
            (number,) = abi_decode(["uint256"], rest)
            return _PANICS.get(number, f"panic {number}")
    except (DecodingError, UnicodeDecodeError):
        pass
    return f"error 0x{selector.hex()}" if data else "no reason given"


def _returned_bytes(data: object) -> bytes:
    """Nodes put them into the error itself, or one level down."""
    if isinstance(data, Mapping):
        data = data.get("data") or data.get("result")
    try:
        return bytes.fromhex(data.removeprefix("0x")) if isinstance(data, str) else b""
    except ValueError:
        return b""


@contextmanager
def translate_chain_errors() -> Iterator[None]:
    try:
        yield
    except ContractLogicError as error:
        returned = _returned_bytes(error.data)
        raise ChainReverted(read_reason(returned), data=returned) from None
    except (BlockNotFound, TransactionNotFound):
        raise  # replies rather than errors: the client turns them into None
    except Web3RPCError as error:
        raise ChainRefused(f"The chain's node refused this: {_node_message(error)}.") from None
    except _NO_REPLY as error:
        raise ChainUnavailable(
            f"The chain does not answer ({type(error).__name__}). 'sparewatt chain status' tells more.",
            retry_after_s=RETRY_AFTER_S,
        ) from None


def _node_message(error: Web3RPCError) -> str:
    details = (error.rpc_response or {}).get("error")
    text = details.get("message") if isinstance(details, Mapping) else details
    return " ".join(str(text or "no reason given").split())[:REASON_CHARS_MAX]
