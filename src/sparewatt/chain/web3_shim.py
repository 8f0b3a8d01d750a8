"""The one door to web3 and its family. They raise the interpreter's recursion limit a hundredfold when imported, with
which a deeply nested JSON body overruns the C stack: the limit is put back here, before anybody can send one.
"""

from __future__ import annotations

import sys

_limit = sys.getrecursionlimit()
try:
    from eth_abi.abi import decode as abi_decode
    from eth_abi.abi import encode as abi_encode
    from eth_abi.exceptions import DecodingError, EncodingError
    from eth_account import Account
    from eth_typing import BlockNumber, ChecksumAddress, HexStr
    from rlp import decode as rlp_decode
    from rlp import encode as rlp_encode
    from web3 import AsyncHTTPProvider, AsyncWeb3
    from web3.exceptions import (
        BadResponseFormat,
        BlockNotFound,
        ContractLogicError,
        TooManyRequests,
        TransactionNotFound,
        Web3RPCError,
    )
    from web3.types import FilterParams, RPCEndpoint, TxParams
finally:
    sys.setrecursionlimit(_limit)

__all__ = [
    "Account",
    "AsyncHTTPProvider",
    "AsyncWeb3",
    "BadResponseFormat",
    "BlockNotFound",
    "BlockNumber",
    "ChecksumAddress",
    "ContractLogicError",
    "DecodingError",
    "EncodingError",
    "FilterParams",
    "HexStr",
    "RPCEndpoint",
    "TooManyRequests",
    "TransactionNotFound",
    "TxParams",
    "Web3RPCError",
    "abi_decode",
    "abi_encode",
    "rlp_decode",
    "rlp_encode",
]
