# pragma version 0.4.3
"""
@title Evidence about trees: leaves and profiles with their places
@notice Pure. An empty provider means padding.
"""

from contracts import match_rule
from contracts.modules import places

struct PlacedLeaf:
    leaf: match_rule.BidLeaf
    index: uint256
    path: DynArray[bytes32, 20]

struct PlacedProfile:
    profile: match_rule.Profile
    index: uint256
    path: DynArray[bytes32, 20]


@internal
@pure
def _is_bid(task: match_rule.Task, placed: PlacedLeaf) -> bool:
    return places._in_bids(task, placed.leaf, placed.index, placed.path)


@internal
@pure
def _has_no_bid(task: match_rule.Task, provider: address, neighbours: DynArray[PlacedLeaf, 2]) -> bool:
    spots: DynArray[places.Spot, 2] = []
    for n: PlacedLeaf in neighbours:
        padding: bool = n.leaf.provider == empty(address)
        leaf: bytes32 = empty(bytes32) if padding else match_rule._leaf_hash(n.leaf)
        spots.append(places.Spot(provider=n.leaf.provider, leaf=leaf, index=n.index, path=n.path))
    return places._is_absent(task.bid_root, provider, spots)


@internal
@pure
def _has_no_profile(root: bytes32, provider: address, neighbours: DynArray[PlacedProfile, 2]) -> bool:
    spots: DynArray[places.Spot, 2] = []
    for n: PlacedProfile in neighbours:
        padding: bool = n.profile.provider == empty(address)
        leaf: bytes32 = empty(bytes32) if padding else match_rule._profile_hash(n.profile)
        spots.append(places.Spot(provider=n.profile.provider, leaf=leaf, index=n.index, path=n.path))
    return places._is_absent(root, provider, spots)


@internal
@pure
def _list_hash(typehash: bytes32, order_id: bytes32, attempt: uint32, bid_ids: DynArray[bytes32, 128]) -> bytes32:
    # An EIP-712 array is hashed as its bare elements: the ABI's offset and length are cut off.
    return keccak256(
        abi_encode(typehash, order_id, attempt, keccak256(slice(abi_encode(bid_ids), 64, 32 * len(bid_ids))))
    )
