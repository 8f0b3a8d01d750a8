# pragma version 0.4.3
"""
@title A window into the rule of a match, for tests that hold it against Python
"""

from contracts import match_rule
from contracts.modules import evidence
from contracts.modules import tree
from contracts.modules import typed

BIDS_MAX: constant(uint256) = 12


@external
@pure
def policy_hash(policy: match_rule.Policy) -> bytes32:
    return match_rule._policy_hash(policy)


@external
@pure
def profile_hash(profile: match_rule.Profile) -> bytes32:
    return match_rule._profile_hash(profile)


@external
@pure
def leaf_hash(leaf: match_rule.BidLeaf) -> bytes32:
    return match_rule._leaf_hash(leaf)


@external
@pure
def task_hash(task: match_rule.Task) -> bytes32:
    return match_rule._task_hash(task)


@external
@pure
def bid_id(order_id: bytes32, attempt: uint32, leaf: match_rule.BidLeaf) -> bytes32:
    return match_rule._bid_id(order_id, attempt, leaf)


@external
@pure
def bid_commit_hash(order_id: bytes32, attempt: uint32, provider: address, bid_id: bytes32) -> bytes32:
    return match_rule._commit_hash(order_id, attempt, provider, bid_id)


@external
@pure
def vote_hash(task: match_rule.Task, round: uint32) -> bytes32:
    return match_rule._vote_hash(task, round)


@external
@pure
def commit_hash(order_id: bytes32, attempt: uint32, leaf: match_rule.BidLeaf) -> bytes32:
    bid_id: bytes32 = match_rule._bid_id(order_id, attempt, leaf)
    return match_rule._commit_hash(order_id, attempt, leaf.provider, bid_id)


@external
@pure
def list_hash(typehash: bytes32, order_id: bytes32, attempt: uint32, bid_ids: DynArray[bytes32, 128]) -> bytes32:
    return evidence._list_hash(typehash, order_id, attempt, bid_ids)


@external
@pure
def status(policy: match_rule.Policy, profile: match_rule.Profile, price_uusd: uint64) -> uint8:
    return match_rule._status(policy, profile, price_uusd)


@external
@pure
def proves(root: bytes32, count: uint256, leaf: bytes32, index: uint256, path: DynArray[bytes32, 20]) -> bool:
    return tree._proves(root, count, leaf, index, path)


@external
@pure
def recover(digest: bytes32, signature: Bytes[65]) -> address:
    return typed._recover(digest, signature)


@external
@pure
def judge(
    task: match_rule.Task,
    policy: match_rule.Policy,
    profiles: DynArray[match_rule.Profile, BIDS_MAX],
    leaves: DynArray[match_rule.BidLeaf, BIDS_MAX],
) -> (DynArray[bool, BIDS_MAX], uint256[3], uint256):
    """Which leaves are true, who the candidates are, and what the first is paid."""
    truths: DynArray[bool, BIDS_MAX] = []
    for i: uint256 in range(len(leaves), bound=BIDS_MAX):
        truths.append(match_rule._is_true_leaf(policy, profiles[i], leaves[i]))
    best: uint256[3] = [65_535, 65_535, 65_535]
    for slot: uint256 in range(3):
        for i: uint256 in range(len(leaves), bound=BIDS_MAX):
            if leaves[i].status != 0 or i in best:
                continue
            if best[slot] == 65_535 or match_rule._precedes(task, leaves[i], leaves[best[slot]]):
                best[slot] = i
    pay: uint256 = 0
    if best[0] != 65_535:
        pay = convert(leaves[best[0]].price_uusd, uint256)
        if policy.payment_rule == 1 and best[1] != 65_535:
            pay = match_rule._second_score_pay(policy, leaves[best[0]], leaves[best[1]])
    return truths, best, pay
