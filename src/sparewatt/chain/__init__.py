"""The network's side of an EVM chain: indexer, transactional outbox, deployment, and money on the settlement contract.

It runs in a process of its own (`sparewatt chain run`). Only commands import this package, and only this one imports
web3.
"""

from __future__ import annotations

import sys

# A library below web3 raises the recursion limit a hundredfold while it is imported. With such a limit, deeply nested
# JSON overruns the C stack, so the limit is restored before anything is parsed.
_limit = sys.getrecursionlimit()
try:
    import web3  # noqa: F401
finally:
    sys.setrecursionlimit(_limit)
