from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.matcher.formula import hash_fractions, hash_text

words = st.integers(0, (1 << 64) - 1)


def by_hand(seed: int, match_hash: int, node_hash: int) -> float:
    """splitmix64, from its paper, with plain integers."""
    mask = (1 << 64) - 1
    x = node_hash ^ ((match_hash + seed * 0x9E3779B97F4A7C15) & mask)
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return ((x ^ (x >> 31)) >> 11) / (1 << 53)


@given(seed=st.integers(-(1 << 70), 1 << 70), match_hash=words, nodes=st.lists(words, max_size=6))
def test_a_fraction_lies_in_zero_to_one_and_anyone_can_recompute_it(
    seed: int, match_hash: int, nodes: list[int]
) -> None:
    found = hash_fractions(seed, match_hash, np.array(nodes, np.uint64)).tolist()
    assert found == [by_hand(seed, match_hash, node) for node in nodes]
    assert all(0.0 <= fraction < 1.0 for fraction in found)


@given(nodes=st.lists(words, min_size=1, max_size=6), data=st.data())
def test_a_node_has_its_fraction_wherever_it_stands(nodes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(nodes))))
    straight = hash_fractions(3, 5, np.array(nodes, np.uint64))
    assert hash_fractions(3, 5, np.array([nodes[i] for i in order], np.uint64)).tolist() == straight[order].tolist()


def test_fractions_differ_by_seed_match_and_node() -> None:
    nodes = np.array([hash_text("a"), hash_text("b")], np.uint64)
    found = [hash_fractions(seed, hash_text(match), nodes) for seed in (1, 2) for match in ("m", "n")]
    assert len(set(np.concatenate(found).tolist())) == 8


def test_fractions_are_spread_evenly() -> None:
    nodes = np.array([hash_text(str(n)) for n in range(4000)], np.uint64)
    counts, _ = np.histogram(hash_fractions(1, hash_text("m"), nodes), bins=10, range=(0, 1))
    assert counts.min() > 320
    assert counts.max() < 480


def test_a_text_is_hashed_by_blake2b() -> None:
    assert hash_text("0x1") == int.from_bytes(hashlib.blake2b(b"0x1", digest_size=8).digest(), "big")
