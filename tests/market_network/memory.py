"""Remembers hashes and recovered signers while a simulation runs.

All validators of a simulation share one process and check the same signatures again and again. Signatures and hashes
are real, and these are pure functions of values that never change: only the second computation of the same is saved.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from unittest.mock import patch

from sparewatt.protocol import signing, typed_message
from sparewatt.protocol.contracts import match_messages

REMEMBERED = 1 << 14
PURE = (
    (signing, "keccak256"),
    (signing, "_recover"),
    (typed_message, "struct_hash"),
    (typed_message, "message_digest"),
    (match_messages, "list_digest"),
)


@contextmanager
def remembered() -> Iterator[None]:
    """Wherever a module that is loaded now calls one of them."""
    with ExitStack() as patches:
        for owner, name in PURE:
            function = getattr(owner, name)
            quick = lru_cache(REMEMBERED)(function)
            users = [each for each in list(sys.modules.values()) if getattr(each, "__dict__", {}).get(name) is function]
            for module in users:
                patches.enter_context(patch.object(module, name, quick))
        yield
