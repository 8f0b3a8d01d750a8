# pragma version 0.4.3
# pragma evm-version prague
"""
@title Faults of votes, proven by what their authors signed
@notice A task is judged against the roots and hashes it names itself, so no reorganisation makes an honest vote wrong;
        a single bad vote is punishable, accepted or not. Evidence that shows no fault reverts and costs its sender the
        gas. A proven fault does not touch the lease: service goes on and the signers pay.
"""

from contracts import awards
from contracts import match_rule
from contracts.modules import evidence
from contracts.modules import penalties
from contracts.modules import places

initializes: penalties
exports: (
    penalties.stakes, penalties.registry, penalties.orders, penalties.tasks, penalties.ATTEMPT_S,
    penalties.CHALLENGE_S, penalties.punished,
)

COMMIT_LIST: constant(uint256) = 0  # kinds of messages that a validator signs once
REVEAL_LIST: constant(uint256) = 1
VOTE: constant(uint256) = 2
SNAPSHOT: constant(uint256) = 3

NO_LEAF: constant(uint16) = 65_535
TYPEHASHES: constant(bytes32[4]) = [
    keccak256("CommitList(bytes32 orderId,uint32 attempt,bytes32[] bidIds)"),
    keccak256("RevealList(bytes32 orderId,uint32 attempt,bytes32[] bidIds)"),
    keccak256("Vote(bytes32 orderId,uint32 attempt,uint32 round,bytes32 taskHash)"),
    keccak256("Snapshot(uint32 epoch,uint32 round,bytes32 root,uint32 count,bytes32 inputsHash)"),
]
WORDS: constant(uint256[4]) = [3, 3, 4, 5]  # of a message; a list counts as its hash
KEY_WORDS: constant(uint256[4]) = [2, 2, 3, 2]  # the first ones, for which there may be one message only


@deploy
def __init__(stakes: address, registry: address, orders: address, tasks: address):
    """
    @notice Set the contracts that this one works with, for good.
    @param stakes The stake registry.
    @param registry The provider registry.
    @param orders The order contract.
    @param tasks The task manager.
    """
    penalties.__init__(stakes, registry, orders, tasks)


@external
@nonreentrant
def prove_double_sign(
    kind: uint256,
    words_a: DynArray[bytes32, 5],
    signature_a: Bytes[65],
    words_b: DynArray[bytes32, 5],
    signature_b: Bytes[65],
    version: uint256,
    history_index: uint256,
):
    """
    @notice Prove that one key signed two different messages where it may sign one.
    @dev Each occasion is punished once.
    @param kind 0 for a list of commits, 1 for a list of reveals, 2 for a vote, 3 for a snapshot.
    @param words_a The fields of the first message, one word each; a list is its hash.
    @param signature_a The signature of the first message.
    @param words_b The fields of the second message.
    @param signature_b The signature of the second message, by the same key.
    @param version The stake version that decides the auction, or one of the time of the snapshot: the penalty is a
                   share of the key's weight at it.
    @param history_index Where the signer's weight at that version is in its history.
    """
    assert kind <= SNAPSHOT, "UNKNOWN_KIND"
    assert len(words_a) == WORDS[kind] and len(words_b) == WORDS[kind], "WRONG_LENGTH"
    hash_a: bytes32 = self._message_hash(kind, words_a)
    hash_b: bytes32 = self._message_hash(kind, words_b)
    assert hash_a != hash_b, "SAME_MESSAGE"
    for i: uint256 in range(KEY_WORDS[kind], bound=3):
        assert words_a[i] == words_b[i], "DIFFERENT_OCCASION"
    signer: address = penalties._signer(hash_a, signature_a)
    assert signer == penalties._signer(hash_b, signature_b), "DIFFERENT_SIGNERS"
    harmed: address = self._require_occasion_in_time(kind, words_a, version)
    # One penalty per occasion: its hash is used as the order id, the kind as the attempt.
    round: bytes32 = words_a[2] if kind == VOTE else empty(bytes32)
    occasion: bytes32 = keccak256(abi_encode(words_a[0], words_a[1], round))
    penalties._punish(signer, version, history_index, occasion, kind, penalties.DOUBLE_SIGN, harmed)


@external
@nonreentrant
def challenge_leaf(
    task: match_rule.Task,
    round: uint32,
    votes: DynArray[awards.Vote, 32],
    policy: match_rule.Policy,
    placed: evidence.PlacedLeaf,
    profiles: DynArray[evidence.PlacedProfile, 2],
    absent: bool,
):
    """
    @notice Prove that validators voted for a leaf that does not follow from its provider's profile.
    @param task What the validators voted on.
    @param round The round of voting.
    @param votes Votes for the task by the validators to punish.
    @param policy The policy of the order.
    @param placed The wrong leaf, with its place in the task's tree of bids.
    @param profiles The provider's profile with its place in the snapshot; with `absent`, the profiles next to where it
                    would be.
    @param absent Whether the fault is that the provider has no profile.
    """
    renter: address = self._require_in_time(task)
    assert match_rule._policy_hash(policy) == task.policy_hash, "WRONG_POLICY"
    assert evidence._is_bid(task, placed), "NOT_IN_BIDS"
    if absent:
        assert evidence._has_no_profile(task.snapshot_root, placed.leaf.provider, profiles), "NOT_ABSENT"
    else:
        assert len(profiles) == 1, "ONE_PROFILE"
        profile: match_rule.Profile = profiles[0].profile
        assert profile.provider == placed.leaf.provider, "OTHER_PROVIDER"
        assert places._in_snapshot(task.snapshot_root, profile, profiles[0].index, profiles[0].path), "NOT_IN_SNAPSHOT"
        assert not match_rule._is_true_leaf(policy, profile, placed.leaf), "NO_FAULT"
    # Not to the leaf's provider: a false leaf mostly favours it.
    penalties._punish_voters(task, round, votes, penalties.LEAF, renter)


@external
@nonreentrant
def challenge_rank(
    task: match_rule.Task,
    round: uint32,
    votes: DynArray[awards.Vote, 32],
    slot: uint256,
    passed_over: evidence.PlacedLeaf,
    candidate: evidence.PlacedLeaf,
):
    """
    @notice Prove that a candidate should not be where it is: no leaf, listed twice, not eligible, or behind a better
            bid.
    @param task What the validators voted on.
    @param round The round of voting.
    @param votes Votes for the task by the validators to punish.
    @param slot The candidate's place: 0, 1 or 2.
    @param passed_over An eligible bid that comes before it; unused if the candidate itself is wrong.
    @param candidate The bid in that place; unused if the place is empty.
    """
    renter: address = self._require_in_time(task)
    assert slot < 3, "UNKNOWN_SLOT"
    slots: uint16[3] = [task.first, task.second, task.third]
    if self._is_no_leaf_or_twice(task, slots, slot) or self._is_ineligible(task, slots[slot], candidate):
        penalties._punish_voters(task, round, votes, penalties.RANK, renter)
        return
    assert evidence._is_bid(task, passed_over) and passed_over.leaf.status == 0, "NOT_IN_BIDS"
    for i: uint256 in range(3):
        if i < slot:
            assert convert(slots[i], uint256) != passed_over.index, "LISTED_BEFORE"
    if slots[slot] != NO_LEAF:
        assert candidate.index == convert(slots[slot], uint256), "NOT_THE_CANDIDATE"
        assert evidence._is_bid(task, candidate), "NOT_IN_BIDS"
        assert match_rule._precedes(task, passed_over.leaf, candidate.leaf), "NO_FAULT"
    penalties._punish_voters(task, round, votes, penalties.RANK, passed_over.leaf.provider)


@external
@nonreentrant
def challenge_order(
    task: match_rule.Task,
    round: uint32,
    votes: DynArray[awards.Vote, 32],
    left: evidence.PlacedLeaf,
    right: evidence.PlacedLeaf,
):
    """
    @notice Prove that two neighbouring leaves are not in ascending order of their providers, or are of one provider.
    @param task What the validators voted on.
    @param round The round of voting.
    @param votes Votes for the task by the validators to punish.
    @param left A leaf with its place in the task's tree of bids.
    @param right The leaf right after it.
    """
    renter: address = self._require_in_time(task)
    assert right.index == left.index + 1, "NOT_NEIGHBOURS"
    assert evidence._is_bid(task, left) and evidence._is_bid(task, right), "NOT_IN_BIDS"
    assert convert(left.leaf.provider, uint256) >= convert(right.leaf.provider, uint256), "NO_FAULT"
    penalties._punish_voters(task, round, votes, penalties.ORDER, renter)


@external
@nonreentrant
def challenge_omission(
    task: match_rule.Task,
    round: uint32,
    vote: awards.Vote,
    bid: match_rule.BidLeaf,
    reveal_list: DynArray[bytes32, 128],
    list_signature: Bytes[65],
    spots: DynArray[evidence.PlacedLeaf, 2],
):
    """
    @notice Prove that a validator voted for a tree without a bid that its own list of reveals names.
    @param task What the validators voted on.
    @param round The round of voting.
    @param vote The validator's vote.
    @param bid The bid. Only the fields that a bidder signs count.
    @param reveal_list The ids of bids in the validator's list.
    @param list_signature The validator's signature of the list.
    @param spots Another leaf of the same provider, or the leaves next to where the bid would be.
    """
    self._require_in_time(task)
    bid_id: bytes32 = match_rule._bid_id(task.order_id, task.attempt, bid)
    assert bid_id in reveal_list, "NOT_LISTED"
    content: bytes32 = evidence._list_hash(TYPEHASHES[REVEAL_LIST], task.order_id, task.attempt, reveal_list)
    lister: address = penalties._signer(content, list_signature)
    assert lister == penalties._signer(match_rule._vote_hash(task, round), vote.signature), "DIFFERENT_SIGNERS"
    if len(spots) == 1 and spots[0].leaf.provider == bid.provider:
        assert evidence._is_bid(task, spots[0]), "NOT_IN_BIDS"
        assert match_rule._bid_id(task.order_id, task.attempt, spots[0].leaf) != bid_id, "NO_FAULT"
    else:
        assert evidence._has_no_bid(task, bid.provider, spots), "NOT_ABSENT"
    penalties._punish_voters(task, round, [vote], penalties.OMISSION, bid.provider)


# The parts


@internal
@pure
def _message_hash(kind: uint256, words: DynArray[bytes32, 5]) -> bytes32:
    return keccak256(concat(TYPEHASHES[kind], slice(abi_encode(words), 64, 32 * len(words))))


@internal
@view
def _require_in_time(task: match_rule.Task) -> address:
    return penalties._require_in_time(task.order_id, task.attempt, convert(task.stake_version, uint256))


@internal
@view
def _require_occasion_in_time(kind: uint256, words: DynArray[bytes32, 5], version: uint256) -> address:
    """Returns who is harmed: the renter, or nobody in particular (empty) where it is a snapshot."""
    if kind != SNAPSHOT:
        return penalties._require_in_time(words[0], convert(words[1], uint32), version)
    # A snapshot is signed between the posting of the one before and its own.
    epoch: uint32 = convert(words[0], uint32)
    assert epoch > 0, "UNKNOWN_EPOCH"
    posted_at: uint256 = staticcall penalties.tasks.snapshot_posted_at(epoch)
    assert posted_at == 0 or block.timestamp <= posted_at + penalties.CHALLENGE_S, "TOO_LATE"
    start: uint256 = staticcall penalties.tasks.snapshot_posted_at(epoch - 1)
    end: uint256 = block.timestamp if posted_at == 0 else posted_at
    assert staticcall penalties.stakes.was_current(version, start, end), "WRONG_STAKE_VERSION"
    return empty(address)


@internal
@pure
def _is_no_leaf_or_twice(task: match_rule.Task, slots: uint16[3], slot: uint256) -> bool:
    index: uint16 = slots[slot]
    if index == NO_LEAF:
        return False
    if index >= task.bid_count:
        return True
    for i: uint256 in range(3):
        if i < slot and slots[i] == index:
            return True
    return False


@internal
@pure
def _is_ineligible(task: match_rule.Task, index: uint16, candidate: evidence.PlacedLeaf) -> bool:
    return (
        candidate.leaf.status != 0
        and candidate.index == convert(index, uint256)
        and evidence._is_bid(task, candidate)
    )
