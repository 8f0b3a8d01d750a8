"""Prefix-cache affinity: which nodes have read the beginning of a prompt before. Holds keyed hashes, never text.

The index is a guess: servers evict from their caches when they please. The hashes come from `prompt.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat

from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.prompt import BLOCK_TOKENS, PREFIX_HOLDERS_MAX

PREFIX_BLOCKS_MAX = 200_000
"""Blocks that a gateway remembers over all nodes and models (about 400 bytes each); the longest unused go first."""

PREFIX_AGE_S_MAX = 1800.0
"""After half an hour without use a server has needed the memory for others; the usual gap is under two minutes."""

Chain = Sequence[int]
"""A prompt's whole blocks, first to last, as hashes. They include the model."""


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


def note_prompt(prefixes: PrefixIndex, row: NodeRow | None, job: Job, *, now_s: float) -> None:
    """The node has read the prompt, and may have it cached for the next prompt that begins alike."""
    model = row.models.get(job.match.model) if row is not None and job.prefix else None
    if row is not None and model is not None:
        prefixes.add(row.id, model.id, job.prefix, capacity_tokens=model.prefix_cache_tokens, now_s=now_s)
