"""Translates web3's errors into ChainReverted, ChainRefused and ChainUnavailable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError

import aiohttp
from web3.exceptions import (
    BadResponseFormat,
    BlockNotFound,
    ContractLogicError,
    TooManyRequests,
    TransactionNotFound,
    Web3RPCError,
)

from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.evm.revert_reasons import REASON_CHARS_MAX, read_reason, returned_bytes

RETRY_AFTER_S = 2.0
_NO_REPLY = (aiohttp.ClientError, TimeoutError, OSError, JSONDecodeError, TooManyRequests, BadResponseFormat)
"""Nothing, or something that is no reply: a proxy's page, say."""


@contextmanager
def translate_chain_errors() -> Iterator[None]:
    try:
        yield
    except ContractLogicError as error:
        returned = returned_bytes(error.data)
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
