"""Trees as the contracts build them. The roots below were checked by the compiled contract module, leaf by leaf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.protocol.merkle import DEPTH_MAX, ZERO, MerkleTree, depth_of, node_hash, proves
from sparewatt.protocol.payouts import leaf_hash

ROOTS = {
    1: "7e9bd0666d247483309f190e3163a13244e0d5a2bf0dda35a7b40264c96811f0",
    2: "cf26be59ae79221cb3cff26e051c77c2d53965c8f74351551f67218ffc6fc898",
    3: "aba7aadb6a2488af3216b4b33a9b441a7727ded7116a801e6e3e26e90df2d824",
    5: "438fd87d103bbf4d0572bc5c969de311dc3c869341196033da3e54288c414d6a",
    8: "d199089d1a3c8642a42aaaac28aca5ace617fa51ff13c7a265f43992a0fc8c85",
    13: "de8853712b866d688dcde121d5ff458a17d0ca1bc88dbf9286f0c8e966f94497",
}
hashes = st.binary(min_size=32, max_size=32)


def entries(count: int) -> list[bytes]:
    return [leaf_hash(f"0x{(i + 1) * 7919:040x}", earned_micro=10**6 * i + i, spent_micro=3 * i) for i in range(count)]


@pytest.mark.parametrize(("count", "root"), ROOTS.items())
def test_the_root_is_that_of_the_contract(count: int, root: str) -> None:
    assert MerkleTree(entries(count)).root.hex() == root


def test_no_leaf_has_the_root_zero() -> None:
    assert MerkleTree([]).root == ZERO


def test_one_leaf_is_its_own_root_with_an_empty_path() -> None:
    assert MerkleTree([b"a" * 32]).root == b"a" * 32
    assert MerkleTree([b"a" * 32]).path(0) == []


def test_padding_is_zeros_up_to_the_next_power_of_two() -> None:
    a, b, c = (bytes([i]) * 32 for i in (1, 2, 3))
    assert MerkleTree([a, b, c]).root == node_hash(node_hash(a, b), node_hash(c, ZERO))


@given(leaves=st.lists(hashes, min_size=1, max_size=40), data=st.data())
def test_every_leaf_is_proven_by_its_path_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    tree = MerkleTree(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    other = data.draw(hashes.filter(lambda found: found != leaves[index]))
    path = tree.path(index)
    assert proves(tree.root, count=len(leaves), leaf=leaves[index], index=index, path=path)
    assert not proves(tree.root, count=len(leaves), leaf=other, index=index, path=path)
    assert not proves(tree.root, count=len(leaves), leaf=leaves[index], index=index, path=[*path, ZERO])


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_what_is_beyond_the_leaves_is_never_proven(index: int) -> None:
    tree = MerkleTree(entries(3))
    with pytest.raises(IndexError):
        tree.path(index)
    assert not proves(tree.root, count=3, leaf=ZERO, index=index, path=[ZERO, ZERO])


def test_a_tree_is_as_deep_as_the_contracts_count() -> None:
    assert [depth_of(n) for n in (0, 1, 2, 3, 4, 5, 1 << DEPTH_MAX)] == [0, 0, 1, 2, 2, 3, DEPTH_MAX]


def test_more_leaves_than_a_contract_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        MerkleTree([ZERO] * ((1 << DEPTH_MAX) + 1))
