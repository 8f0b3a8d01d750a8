"""Which nodes have read the beginning of a prompt before: a bounded memory of keyed hashes, never of text.

A prompt is a chain of blocks; the hash of a block covers everything before it as well, so that two prompts share a hash
only if they share all up to there. The first hash is keyed by a secret of this process and by the account, so a hash
tells nothing about other accounts' prompts. The rest of the chain is Python's own keyed hash of bytes (SipHash), at a
fifth of BLAKE2's cost: a collision would mislead the account that made it, and no other. The index is a guess: servers
evict when they please.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import (
    PREFIX_AGE_S_MAX,
    PREFIX_BLOCK_BYTES,
    PREFIX_BLOCKS_MAX,
    PREFIX_BLOCKS_PER_PROMPT_MAX,
    PREFIX_HOLDERS_MAX,
)
from sparewatt.inference.admission.sizing import BYTES_PER_TOKEN, has_media

BLOCK_TOKENS = PREFIX_BLOCK_BYTES // BYTES_PER_TOKEN
HASH_BYTES = 8

Chain = Sequence[int]
"""A prompt's whole blocks, first to last, as hashes. They include the model."""


def prefix_hashes(
    messages: Collection[bytes], *, model: str, account: str, secret: bytes, is_text: bool = False
) -> tuple[int, ...]:
    """The hashes of a prompt given as raw JSON messages, up to the first that holds an image or a sound.

    `is_text` if none does.
    """
    if sum(map(len, messages)) < PREFIX_BLOCK_BYTES:  # less than one block
        return ()
    key = hashlib.blake2b(f"{account}\n{model}\n".encode(), key=secret, digest_size=HASH_BYTES)
    text, name = _beginning(messages, is_text=is_text), int.from_bytes(key.digest(), "big")
    found = []
    for first in range(0, len(text) - PREFIX_BLOCK_BYTES + 1, PREFIX_BLOCK_BYTES):
        name = hash((name, text[first : first + PREFIX_BLOCK_BYTES]))
        found.append(name)
    return tuple(found)


def _beginning(messages: Iterable[bytes], *, is_text: bool) -> bytes:
    """The part of the prompt that is hashed."""
    room, pieces = PREFIX_BLOCK_BYTES * PREFIX_BLOCKS_PER_PROMPT_MAX, []
    for message in messages:
        if room <= 0 or (not is_text and has_media(message)):
            break
        pieces.append(message[:room])
        room -= len(pieces[-1])
    return b"".join(pieces)


class PrefixIndex:
    """Which nodes have read which blocks. Bounded per node by the cache size that it reports, and in total."""

    def __init__(self, *, blocks_max: int = PREFIX_BLOCKS_MAX) -> None:
        self._blocks_max = blocks_max
        self._readers: dict[int, dict[NodeId, float]] = {}
        """By block: the nodes that read it last, and when."""
        self._cached: OrderedDict[tuple[NodeId, str], OrderedDict[int, None]] = OrderedDict()
        """By node and model: the blocks that its server should still have cached; both levels are LRU."""
        self._count = 0

    def __len__(self) -> int:
        """Blocks remembered, once for each node."""
        return self._count

    def tokens_by_node(self, chain: Chain, *, now_s: float) -> dict[NodeId, int]:
        """Tokens of the prompt's beginning by node, the longest first. A block implies all before it."""
        found: dict[NodeId, int] = {}
        readers_of = self._readers.get
        for number in range(len(chain) if self._readers else 0, 0, -1):
            readers = readers_of(chain[number - 1])
            if readers is None:
                continue
            for node_id, read_s in readers.items():
                if now_s - read_s <= PREFIX_AGE_S_MAX:
                    found.setdefault(node_id, number * BLOCK_TOKENS)
            if len(found) >= PREFIX_HOLDERS_MAX:
                break
        return found

    def add(self, node_id: NodeId, model: str, chain: Chain, *, capacity_tokens: int, now_s: float) -> None:
        """A node has read this prompt; its cache keeps the latest `capacity_tokens` of this model's prompts."""
        if not chain or capacity_tokens < BLOCK_TOKENS:
            return
        blocks = self._cached.get((node_id, model))
        if blocks is None:
            blocks = self._cached[node_id, model] = OrderedDict()
        else:
            self._cached.move_to_end((node_id, model))
        was, readers_of = len(blocks), self._readers
        for block in reversed(chain):  # servers evict the end of a prompt before its beginning
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
            readers = readers_of.get(block)
            if readers is None:
                readers_of[block] = {node_id: now_s}
            else:
                _add_reader(readers, node_id, now_s)
        self._drop(blocks, len(blocks) - capacity_tokens // BLOCK_TOKENS, node_id)
        self._count += len(blocks) - was
        while self._count > self._blocks_max:
            self._drop_oldest()

    def forget(self, node_id: NodeId) -> None:
        """The node is gone; when it comes back, its server may have restarted with an empty cache."""
        for key in [key for key in self._cached if key[0] == node_id]:
            blocks = self._cached.pop(key)
            self._count -= len(blocks)
            self._drop(blocks, len(blocks), node_id)

    def _drop(self, blocks: OrderedDict[int, None], count: int, node_id: NodeId) -> None:
        """Drop this many of one node's blocks, the least recently used first; none if `count` is not positive."""
        readers_of = self._readers
        for _ in repeat(None, count):
            block, _ = blocks.popitem(last=False)
            readers = readers_of.get(block)
            if readers is not None and readers.pop(node_id, None) is not None and not readers:
                del readers_of[block]

    def _drop_oldest(self) -> None:
        """Drop blocks of the node that has been without a job for the longest time."""
        key, blocks = next(iter(self._cached.items()))
        count = min(len(blocks), self._count - self._blocks_max)
        self._drop(blocks, count, key[0])
        self._count -= count
        if not blocks:
            del self._cached[key]


def _add_reader(readers: dict[NodeId, float], node_id: NodeId, now_s: float) -> None:
    """Append as the latest reader; beyond the limit the oldest is dropped."""
    readers.pop(node_id, None)
    readers[node_id] = now_s
    if len(readers) > PREFIX_HOLDERS_MAX:
        del readers[next(iter(readers))]
