"""What a node or a contract says when it will not: turned into leaves of the error tree.

A contract's reason is read from the bytes it returned, as the ABI encodes them, and never guessed from a node's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp

from sparewatt.chain.web3_shim import (
    BadResponseFormat,
    BlockNotFound,
    ContractLogicError,
    DecodingError,
    TooManyRequests,
    TransactionNotFound,
    Web3RPCError,
    abi_decode,
)
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable

RETRY_AFTER_S = 2.0
REASON_CHARS_MAX = 200
_ERROR_TEXT = bytes.fromhex("08c379a0")
"""Error(string), what `assert …, "reason"` returns."""

_PANIC = bytes.fromhex("4e487b71")
_PANICS = {0x01: "assertion failed", 0x11: "number out of range", 0x12: "division by zero", 0x32: "index out of range"}


def read_reason(data: bytes) -> str:
    """The reason in what a contract returned, or a sentence that says there is none."""
    try:
        match data[:4], data[4:]:
            case selector, rest if selector == _ERROR_TEXT:
                (text,) = abi_decode(["string"], rest)
                return str(text)[:REASON_CHARS_MAX]
            case selector, rest if selector == _PANIC:
                (number,) = abi_decode(["uint256"], rest)
                return _PANICS.get(number, f"panic {number}")
    except (DecodingError, UnicodeDecodeError):
        pass
    return f"error 0x{data[:4].hex()}" if data else "no reason given"


def revert_error(data: object) -> ChainReverted:
    raw = _returned(data)
    return ChainReverted(read_reason(raw), data=raw)


def _returned(data: object) -> bytes:
    """Nodes put it directly or one level down."""
    if isinstance(data, Mapping):
        data = data.get("data") or data.get("result")
    if not isinstance(data, str):
        return b""
    try:
        return bytes.fromhex(data.removeprefix("0x"))
    except ValueError:
        return b""


@contextmanager
def translate_chain_errors() -> Iterator[None]:
    """Whatever web3 or the wire raises comes out as ChainUnavailable, ChainReverted or ChainRefused."""
    try:
        yield
    except ContractLogicError as error:
        raise revert_error(error.data) from None
    except (BlockNotFound, TransactionNotFound):
        raise  # answers, not errors; whoever asked knows what they mean
    except Web3RPCError as error:
        raise ChainRefused(f"The chain's node refused this: {_node_message(error)}.") from None
    except (aiohttp.ClientError, TimeoutError, OSError, TooManyRequests, BadResponseFormat) as error:
        raise ChainUnavailable(
            f"The chain does not answer ({type(error).__name__}). 'sparewatt chain status' tells more.",
            retry_after_s=RETRY_AFTER_S,
        ) from None


def _node_message(error: Web3RPCError) -> str:
    said = (error.rpc_response or {}).get("error")
    text = said.get("message") if isinstance(said, Mapping) else said
    return " ".join(str(text or "no reason given").split())[:REASON_CHARS_MAX]
