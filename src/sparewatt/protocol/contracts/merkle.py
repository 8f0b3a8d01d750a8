"""Merkle trees and Merkle proofs as the contracts verify them: one rule for bids, snapshots and payouts.

A node is keccak256(0x01 ‖ left ‖ right); leaves are padded with zeros to the next power of two; a path lists the
siblings from the leaf up. No leaf: the root is 0. One leaf: the root is the leaf. Leaves are hashes of structs, so no
leaf can pass for an inner node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.protocol.signing import keccak256

PADDING = bytes(32)
EMPTY_ROOT = bytes(32)


@dataclass(frozen=True, slots=True)
class MerkleTree:
    """All levels, leaves first."""

    count: int
    levels: tuple[tuple[bytes, ...], ...]

    @property
    def root(self) -> bytes:
        return self.levels[-1][0] if self.count else EMPTY_ROOT

    def path(self, index: int) -> tuple[bytes, ...]:
        """The proof of a leaf, or of padding: any index within the padded width."""
        if not 0 <= index < len(self.levels[0]):
            raise IndexError(f"the tree has {len(self.levels[0])} places")
        return tuple(level[(index >> depth) ^ 1] for depth, level in enumerate(self.levels[:-1]))


def merkle_tree(leaves: Sequence[bytes]) -> MerkleTree:
    width = 1 << depth_of(len(leaves))
    level = tuple(leaves) + (PADDING,) * (width - len(leaves))
    levels = [level]
    while len(level) > 1:
        level = tuple(parent_hash(level[i], level[i + 1]) for i in range(0, len(level), 2))
        levels.append(level)
    return MerkleTree(count=len(leaves), levels=tuple(levels))


def depth_of(count: int) -> int:
    """ceil(log2(count)), and 0 for no leaf."""
    return max(count - 1, 0).bit_length()


def parent_hash(left: bytes, right: bytes) -> bytes:
    return keccak256(b"\x01" + left + right)


def verify_proof(*, root: bytes, count: int, leaf: bytes, index: int, path: Sequence[bytes]) -> bool:
    """Whether `leaf` is at `index`; from `count` on there is only padding."""
    if count == 0 or len(path) != depth_of(count) or not 0 <= index < 1 << len(path):
        return False
    if index >= count and leaf != PADDING:
        return False
    for sibling in path:
        leaf = parent_hash(sibling, leaf) if index & 1 else parent_hash(leaf, sibling)
        index >>= 1
    return leaf == root
