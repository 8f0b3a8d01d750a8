"""Merkle trees: one rule for bids, snapshots and payouts. The contracts have the same (`contracts/modules/tree.vy`).

A node is keccak256(0x01 ‖ left ‖ right). Leaves are padded with zeros to the next power of two. A path lists siblings
bottom up, one per level; the bits of the index say the side. No leaf: root 0. One leaf: the root is the leaf.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.protocol.signing import keccak256

ZERO = bytes(32)
DEPTH_MAX = 20
"""What the contracts take: about a million leaves."""


def node_hash(left: bytes, right: bytes) -> bytes:
    return keccak256(b"\x01" + left + right)


class MerkleTree:
    """All levels of a tree, leaves first. Raises ValueError for more leaves than a contract can follow."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        depth = depth_of(len(leaves))
        if depth > DEPTH_MAX:
            raise ValueError(f"a tree holds at most {1 << DEPTH_MAX} leaves")
        self._count = len(leaves)
        self._levels = [list(leaves)]
        padding = ZERO  # of the level: whole branches of padding are never hashed one by one
        for _ in range(depth):
            self._levels.append(_level_above(self._levels[-1], padding))
            padding = node_hash(padding, padding)

    @property
    def root(self) -> bytes:
        return self._levels[-1][0] if self._count else ZERO

    def path(self, index: int) -> list[bytes]:
        """The siblings of a leaf. Raises IndexError for one that is not there."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        found, padding = [], ZERO
        for level in self._levels[:-1]:
            sibling = index ^ 1
            found.append(level[sibling] if sibling < len(level) else padding)
            index >>= 1
            padding = node_hash(padding, padding)
        return found


def depth_of(count: int) -> int:
    return max(0, count - 1).bit_length()


def proves(root: bytes, *, count: int, leaf: bytes, index: int, path: Sequence[bytes]) -> bool:
    """Whether `leaf` stands at `index` of the tree with this root and so many leaves."""
    if not 0 <= index < count or len(path) != depth_of(count):
        return False
    node = leaf
    for sibling in path:
        node = node_hash(node, sibling) if index & 1 == 0 else node_hash(sibling, node)
        index >>= 1
    return node == root


def _level_above(level: Sequence[bytes], padding: bytes) -> list[bytes]:
    padded = [*level, padding] if len(level) % 2 else level
    return [node_hash(padded[at], padded[at + 1]) for at in range(0, len(padded), 2)]
