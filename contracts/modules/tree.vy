# pragma version 0.4.3
"""
@title Merkle trees: one rule for bids, snapshots and payouts
@notice node = keccak256(0x01 ‖ left ‖ right); leaves are padded with zeros to the next power of two; a path lists
        siblings bottom up, one per level, and the bits of the index give the side. No leaf: root 0. One leaf: the root
        is the leaf.
"""

DEPTH_MAX: constant(uint256) = 20


@internal
@pure
def _node(left: bytes32, right: bytes32) -> bytes32:
    return keccak256(concat(b"\x01", left, right))


@internal
@pure
def _depth(count: uint256) -> uint256:
    depth: uint256 = 0
    for level: uint256 in range(DEPTH_MAX):
        if (1 << depth) >= count:
            break
        depth += 1
    return depth


@internal
@pure
def _proves(root: bytes32, count: uint256, leaf: bytes32, index: uint256, path: DynArray[bytes32, DEPTH_MAX]) -> bool:
    """True if `leaf` is at `index`. An index at or beyond `count` can be proven only to hold padding (a zero leaf)."""
    depth: uint256 = self._depth(count)
    if count == 0 or len(path) != depth or index >= (1 << depth) or (index >= count and leaf != empty(bytes32)):
        return False
    node: bytes32 = leaf
    position: uint256 = index
    for sibling: bytes32 in path:
        if position & 1 == 0:
            node = self._node(node, sibling)
        else:
            node = self._node(sibling, node)
        position >>= 1
    return node == root
