# pragma version 0.4.3
"""
@title Faults of bidders: a certified bid that was never revealed, and two commits for one auction
@notice They cost the bid bond, which is shared as a slash is, with the renter as the harmed. The node key that counts
        is the one of the attempt's opening.
"""

from contracts.interfaces import IStakes
from contracts import awards
from contracts import match_rule
from contracts.modules import evidence
from contracts.modules import penalties

uses: penalties

struct SignedList:
    bid_ids: DynArray[bytes32, 128]
    signature: Bytes[65]
    history_index: uint256

COMMIT_LIST_TYPEHASH: constant(bytes32) = keccak256(
    "CommitList(bytes32 orderId,uint32 attempt,bytes32[] bidIds)"
)


@external
@nonreentrant
def prove_two_commits(
    order_id: bytes32,
    attempt: uint32,
    provider: address,
    bid_ids: bytes32[2],
    signature_a: Bytes[65],
    signature_b: Bytes[65],
):
    """
    @notice Prove that a provider signed commits for two bids in one auction. It loses its bid bond.
    @param order_id The order.
    @param attempt The number of the auction of this order, from 0.
    @param provider The provider.
    @param bid_ids The ids of the two bids.
    @param signature_a The node key's signature of the first commit.
    @param signature_b The node key's signature of the second commit.
    """
    opened_at: uint256 = penalties._opened_at(order_id, attempt)
    assert bid_ids[0] != bid_ids[1], "SAME_MESSAGE"
    self._require_commit(order_id, attempt, provider, bid_ids[0], signature_a, opened_at)
    self._require_commit(order_id, attempt, provider, bid_ids[1], signature_b, opened_at)
    penalties._take_bid_bond(provider, order_id, attempt, penalties.TWO_COMMITS)


@external
@nonreentrant
def forfeit_bid(
    task: match_rule.Task,
    record: awards.Record,
    provider: address,
    bid_id: bytes32,
    commit_signature: Bytes[65],
    lists: DynArray[SignedList, 32],
    neighbours: DynArray[evidence.PlacedLeaf, 2],
):
    """
    @notice Prove that a provider never revealed a bid that a quorum had listed as committed. It loses its bid bond.
    @param task What the validators voted on.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param provider The provider.
    @param bid_id The id of the bid.
    @param commit_signature The node key's signature of the commit.
    @param lists Lists of commits that name the bid, worth a quorum, in ascending order of their signers' addresses.
    @param neighbours The leaves next to where the bid would be.
    """
    opened_at: uint256 = penalties._opened_at(task.order_id, task.attempt)
    recorded: bytes32 = staticcall penalties.tasks.record_of(task.order_id, task.attempt)
    assert awards._record_hash(record) == recorded, "WRONG_RECORD"
    assert match_rule._task_hash(task) == record.task_hash, "WRONG_TASK"
    self._require_commit(task.order_id, task.attempt, provider, bid_id, commit_signature, opened_at)
    assert evidence._has_no_bid(task, provider, neighbours), "NOT_ABSENT"
    self._require_certified(task, bid_id, lists)
    penalties._take_bid_bond(provider, task.order_id, task.attempt, penalties.UNREVEALED)


@internal
@view
def _require_commit(
    order_id: bytes32, attempt: uint32, provider: address, bid_id: bytes32, signature: Bytes[65], opened_at: uint256
):
    content: bytes32 = match_rule._commit_hash(order_id, attempt, provider, bid_id)
    signer: address = penalties._signer(content, signature)
    assert staticcall penalties.registry.was_node_key(provider, signer, opened_at), "NOT_SIGNED_BY_NODE_KEY"


@internal
@view
def _require_certified(task: match_rule.Task, bid_id: bytes32, lists: DynArray[SignedList, 32]):
    """The lists that name the bid are worth a quorum of the task's stake version."""
    signers: DynArray[address, 32] = []
    history_indices: DynArray[uint256, 32] = []
    last: uint256 = 0
    for signed: SignedList in lists:
        assert bid_id in signed.bid_ids, "NOT_LISTED"
        content: bytes32 = evidence._list_hash(COMMIT_LIST_TYPEHASH, task.order_id, task.attempt, signed.bid_ids)
        signer: address = penalties._signer(content, signed.signature)
        assert convert(signer, uint256) > last, "LISTS_NOT_ASCENDING"
        last = convert(signer, uint256)
        signers.append(signer)
        history_indices.append(signed.history_index)
    stakes: IStakes = IStakes(penalties.stakes.address)
    version: uint256 = convert(task.stake_version, uint256)
    weight: uint256 = staticcall stakes.weight_of(signers, history_indices, version)
    assert awards._is_quorum(weight, staticcall stakes.total_at(version)), "NO_QUORUM"
