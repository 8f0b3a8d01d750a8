"""eth_account, which shares no code with ours, imported without its side effect.

A library below it raises the interpreter's recursion limit to 100,000. At that depth a C stack is long full, and JSON
that is nested deeply ends the process instead of being refused.
"""

from __future__ import annotations

import sys

_limit = sys.getrecursionlimit()
from eth_account import Account  # noqa: E402 (the limit must be read first)
from eth_account.messages import SignableMessage, encode_typed_data  # noqa: E402

sys.setrecursionlimit(_limit)

__all__ = ["Account", "SignableMessage", "encode_typed_data"]
