# pragma version 0.4.3
"""
@title Merkle proofs of presence and of absence in the trees of a match
@notice Pure. A bid's place in a task's root, a profile's in a snapshot, and the absence of either.
"""

from contracts import match_rule
from contracts.modules import tree

struct Spot:  # a place in a tree, as evidence shows it; an empty provider is padding
    provider: address
    leaf: bytes32
    index: uint256
    path: DynArray[bytes32, 20]


@internal
@pure
def _in_bids(task: match_rule.Task, leaf: match_rule.BidLeaf, index: uint256, path: DynArray[bytes32, 20]) -> bool:
    count: uint256 = convert(task.bid_count, uint256)
    return index < count and tree._proves(task.bid_root, count, match_rule._leaf_hash(leaf), index, path)


@internal
@pure
def _in_snapshot(root: bytes32, profile: match_rule.Profile, index: uint256, path: DynArray[bytes32, 20]) -> bool:
    # Leaves cannot be mistaken for nodes, so the path's own length will do for the number of leaves.
    return tree._proves(root, 1 << len(path), match_rule._profile_hash(profile), index, path)


@internal
@pure
def _is_absent(root: bytes32, provider: address, spots: DynArray[Spot, 2]) -> bool:
    """True if `provider` has no leaf: its neighbours have adjacent indices, or one is at an end of the tree."""
    if len(spots) == 0:
        return root == empty(bytes32)
    for spot: Spot in spots:
        if not tree._proves(root, 1 << len(spot.path), spot.leaf, spot.index, spot.path):
            return False
    wanted: uint256 = convert(provider, uint256)
    low: uint256 = convert(spots[0].provider, uint256)
    if len(spots) == 1:
        at_end: bool = spots[0].index == (1 << len(spots[0].path)) - 1
        return (spots[0].index == 0 and wanted < low) or (at_end and low < wanted and low > 0)
    high: uint256 = convert(spots[1].provider, uint256)
    beside: bool = spots[1].index == spots[0].index + 1 and len(spots[0].path) == len(spots[1].path)
    return beside and low > 0 and low < wanted and (high == 0 or wanted < high)
