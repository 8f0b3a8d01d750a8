"""Leaves of a settlement root, what an account has earned and spent in all, and the Merkle tree posted on chain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sparewatt.protocol.contracts.merkle import MerkleTree, merkle_tree
from sparewatt.protocol.typed_message import Address, TypedMessage, Uint256, struct_hash


class PayoutEntry(TypedMessage):
    """Cumulative: the amounts never shrink."""

    struct_name = "Entry"

    account: Address
    earned: Uint256
    spent: Uint256


def settlement_tree(entries: Sequence[PayoutEntry]) -> MerkleTree:
    """The entries must ascend by account. Raises ValueError."""
    if any(int(left.account, 16) >= int(right.account, 16) for left, right in pairwise(entries)):
        raise ValueError("entries must ascend by account")
    return merkle_tree([struct_hash(entry) for entry in entries])
