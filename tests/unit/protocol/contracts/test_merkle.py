"""Merkle trees: every leaf is proven at its index, and nothing else is."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.merkle import EMPTY_ROOT, PADDING, depth_of, merkle_tree, parent_hash, verify_proof
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.protocol.signing import keccak256

COUNTS = [1, 2, 3, 5, 64, 128, 129, 255]


def leaves_of(count: int) -> list[bytes]:
    return [keccak256(n.to_bytes(2, "big")) for n in range(count)]


def test_no_leaf_has_the_empty_root_and_one_is_its_own() -> None:
    assert merkle_tree([]).root == EMPTY_ROOT
    assert merkle_tree([b"\1" * 32]).root == b"\1" * 32
    assert merkle_tree([]).path(0) == ()


def test_three_leaves_are_padded_to_four() -> None:
    a, b, c = leaves_of(3)
    assert merkle_tree([a, b, c]).root == parent_hash(parent_hash(a, b), parent_hash(c, PADDING))


@pytest.mark.parametrize("count", COUNTS)
def test_every_leaf_is_proven_at_its_index_only(count: int) -> None:
    leaves, tree = leaves_of(count), merkle_tree(leaves_of(count))
    for index, leaf in enumerate(leaves):
        path = tree.path(index)
        assert verify_proof(root=tree.root, count=count, leaf=leaf, index=index, path=path)
        assert not verify_proof(root=tree.root, count=count, leaf=leaf, index=index ^ 1, path=path)
        assert not verify_proof(root=tree.root, count=count, leaf=keccak256(leaf), index=index, path=path)


@pytest.mark.parametrize("count", [3, 5, 129, 255])
def test_beyond_the_last_leaf_there_is_padding_and_nothing_else(count: int) -> None:
    tree = merkle_tree(leaves_of(count))
    path = tree.path(count)
    assert verify_proof(root=tree.root, count=count, leaf=PADDING, index=count, path=path)
    assert not verify_proof(root=tree.root, count=count, leaf=b"\1" * 32, index=count, path=path)


@pytest.mark.parametrize("count", COUNTS)
def test_a_path_of_another_length_proves_nothing(count: int) -> None:
    leaves, tree = leaves_of(count), merkle_tree(leaves_of(count))
    path = tree.path(0)
    assert not verify_proof(root=tree.root, count=count, leaf=leaves[0], index=0, path=(*path, PADDING))
    assert not verify_proof(root=tree.root, count=0, leaf=leaves[0], index=0, path=path)
    with pytest.raises(IndexError):
        tree.path(len(tree.levels[0]))


@pytest.mark.parametrize(("count", "depth"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (255, 8), (2**20, 20)])
def test_the_depth_is_the_logarithm_rounded_up(count: int, depth: int) -> None:
    assert depth_of(count) == depth


def test_accounts_must_ascend_without_duplicates() -> None:
    one, two = PayoutEntry("0x" + "01" * 20, 1, 0), PayoutEntry("0x" + "02" * 20, 2, 0)
    assert settlement_tree([one, two]).count == 2
    for wrong in ([two, one], [one, one]):
        with pytest.raises(ValueError, match="ascend"):
            settlement_tree(wrong)
