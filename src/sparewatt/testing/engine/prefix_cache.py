"""The beginnings of prompts that an engine has read and still keeps, so as not to read them again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 16
"""As vLLM does it: whole blocks are kept, each named after all that comes before it."""
HASH_BYTES = 16


class EnginePrefixCache:
    def __init__(self, capacity_tokens: int) -> None:
        self._blocks_max = capacity_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def read(self, tokens: Sequence[str]) -> int:
        """How many tokens were here before; at least one must always be read. From now on all are here."""
        names = _names(tokens)
        found = next((at for at, name in enumerate(names) if name not in self._blocks), len(names))
        for name in reversed(names):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self._blocks_max:
            self._blocks.popitem(last=False)
        return min(found * BLOCK_TOKENS, len(tokens) - 1)


def _names(tokens: Sequence[str]) -> list[bytes]:
    state = hashlib.blake2b(digest_size=HASH_BYTES)
    names = []
    for first in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        state.update("\0".join((*tokens[first : first + BLOCK_TOKENS], "")).encode())
        names.append(state.copy().digest())
    return names
