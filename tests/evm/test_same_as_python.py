"""Differential tests: Python and the contracts agree on the rule, hashes, trees and money. The soak runs 10,000."""

from __future__ import annotations

import random

import pytest

from sparewatt.market.rule import commit_of
from sparewatt.protocol.contracts.match import Bid, CommitList, RevealList, Vote
from sparewatt.protocol.contracts.merkle import merkle_tree, verify_proof
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.cases import (
    compare_streams,
    open_order,
    random_case,
    require_false,
    require_forged_is_punished,
    require_honest_is_safe,
    require_same_judgement,
)
from tests.evm.machine import Contract, deploy
from tests.evm.network import Network

LIST_TYPE = "(bytes32 orderId,uint32 attempt,bytes32[] bidIds)"


@pytest.fixture
def window(network: Network) -> Contract:
    return deploy("rule_window")


def test_eligibility_winner_price_and_runner_ups_are_the_same(window: Contract) -> None:
    rng = random.Random(1)
    for _ in range(150):
        case = random_case(rng, rng.randbytes(32))
        require_same_judgement(window, case)
        require_false(window, rng, case)


def test_hashes_are_the_same(window: Contract) -> None:
    rng = random.Random(2)
    for _ in range(20):
        case = random_case(rng, rng.randbytes(32))
        assert window.policy_hash(case.policy.values()) == struct_hash(case.policy)
        for profile in case.profiles:
            assert window.profile_hash(profile.values()) == struct_hash(profile)
        for leaf in case.book.leaves:
            assert window.leaf_hash(leaf.values()) == struct_hash(leaf)
            bid = Bid(case.task.order_id, 3, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)
            assert window.commit_hash(case.task.order_id, 3, leaf.values()) == struct_hash(commit_of(bid))
        vote = Vote(case.task.order_id, case.task.attempt, 5, struct_hash(case.task))
        assert window.vote_hash(case.task.values(), 5) == struct_hash(vote)


@pytest.mark.parametrize("count", [0, 1, 2, 128])
@pytest.mark.parametrize("shape", [CommitList, RevealList])
def test_lists_are_hashed_the_same(window: Contract, shape: type[CommitList], count: int) -> None:
    ids = tuple(keccak256(bytes([n])) for n in range(count))
    typehash = keccak256(f"{shape.__name__}{LIST_TYPE}".encode())
    assert window.list_hash(typehash, b"\1" * 32, 7, ids) == struct_hash(shape(b"\1" * 32, 7, ids))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 64, 129])
def test_paths_prove_the_same(window: Contract, count: int) -> None:
    leaves = [keccak256(bytes([n])) for n in range(count)]
    tree = merkle_tree(leaves)
    rng = random.Random(count)
    for _ in range(20):
        index = rng.randrange(len(tree.levels[0]) + 2)
        leaf = rng.choice([*leaves, bytes(32)])
        path = tree.path(min(index, len(tree.levels[0]) - 1))[: rng.choice([None, None, None, 1])]
        claimed = rng.choice([count, count, count + 1])
        expected = verify_proof(root=tree.root, count=claimed, leaf=leaf, index=index, path=path)
        assert window.proves(tree.root, claimed, leaf, index, path) == expected


def test_an_honest_vote_is_never_slashed_and_a_forged_one_always(network: Network) -> None:
    rng = random.Random(3)
    order = open_order(network)
    for _ in range(60):
        require_honest_is_safe(rng, order)
        require_forged_is_punished(rng, order)


def test_streams_pay_the_same(network: Network) -> None:
    compare_streams(network, random.Random(4), settlements=300)
