# pragma version 0.4.3
# pragma evm-version prague
"""
@title Certificates: what a quorum of stake signed
@notice Takes one certificate per order and attempt, from any sender, if votes worth more than 2/3 of the stake version
        are in it and each candidate's leaf, path, score and signed commit hold. It does not look for better bids: that
        is what a challenge is for. Also keeps the roots of provider snapshots. Holds no money.
"""

from contracts.interfaces import IOrders
from contracts.interfaces import IProviderRegistry
from contracts.interfaces import IStakeRegistry
from contracts.interfaces import IStakes
from contracts import awards
from contracts import match_rule
from contracts.modules import places
from contracts.modules import typed

struct Candidate:
    leaf: match_rule.BidLeaf
    path: DynArray[bytes32, 20]
    commit_signature: Bytes[65]

struct Snapshot:
    root: bytes32
    count: uint32
    posted_at: uint256

event MatchAccepted:
    order_id: indexed(bytes32)
    attempt: indexed(uint32)
    task: match_rule.Task
    round: uint32
    chosen: awards.Award[3]
    signers: DynArray[address, 32]

event NoMatch:
    order_id: indexed(bytes32)
    attempt: indexed(uint32)
    task: match_rule.Task
    round: uint32
    signers: DynArray[address, 32]

event SnapshotPosted:
    epoch: indexed(uint32)
    root: bytes32
    count: uint32
    inputs_hash: bytes32

event Wired:
    orders: indexed(address)

NO_LEAF: constant(uint16) = 65_535
SNAPSHOT_COUNT_MAX: constant(uint32) = 2**20
SNAPSHOT_TYPEHASH: constant(bytes32) = keccak256(
    "Snapshot(uint32 epoch,uint32 round,bytes32 root,uint32 count,bytes32 inputsHash)"
)

stakes: public(immutable(IStakes))
registry: public(immutable(IProviderRegistry))
ATTEMPT_S: public(immutable(uint256))
SNAPSHOT_SPACING_S: public(immutable(uint256))
deployer: immutable(address)

orders: public(IOrders)
record_of: public(HashMap[bytes32, HashMap[uint32, bytes32]])
accepted_at: public(HashMap[bytes32, HashMap[uint32, uint256]])
latest_epoch: public(uint32)
snapshot_of: public(HashMap[uint32, Snapshot])


@deploy
def __init__(stakes_: address, registry_: address, snapshot_spacing_s: uint256):
    """
    @notice Set the contracts that this one works with, and the spacing of snapshots.
    @param stakes_ The stake registry, which has the network's times.
    @param registry_ The provider registry.
    @param snapshot_spacing_s The least number of seconds between two snapshots.
    """
    assert stakes_ != empty(address) and registry_ != empty(address), "ZERO_ADDRESS"
    stakes = IStakes(stakes_)
    registry = IProviderRegistry(registry_)
    ATTEMPT_S = staticcall IStakeRegistry(stakes_).ATTEMPT_S()
    SNAPSHOT_SPACING_S = snapshot_spacing_s
    deployer = msg.sender


@external
def wire(orders: address):
    """
    @notice Name the order contract. The deployer does this once; it is never changed again.
    @param orders The order contract.
    """
    assert msg.sender == deployer, "NOT_DEPLOYER"
    assert self.orders.address == empty(address), "ALREADY_WIRED"
    assert orders != empty(address), "ZERO_ADDRESS"
    self.orders = IOrders(orders)
    log Wired(orders=orders)


# Certificates


@external
def accept_match(
    task: match_rule.Task,
    round: uint32,
    policy: match_rule.Policy,
    candidates: DynArray[Candidate, 3],
    votes: DynArray[awards.Vote, 32],
):
    """
    @notice Take a certificate: votes of a quorum for a task with candidates. Anyone may call it.
    @dev It checks each candidate's leaf, score, order and signed commit. It does not look for better bids: a challenge
         does.
    @param task What the validators voted on.
    @param round The round of voting.
    @param policy The policy of the order.
    @param candidates The bids of the task's candidates, best first, with their places in the tree.
    @param votes Votes in ascending order of their signers' addresses.
    """
    opened_at: uint256 = self._require_open(task)
    assert len(candidates) > 0, "NO_CANDIDATES"
    assert match_rule._policy_hash(policy) == task.policy_hash, "WRONG_POLICY"
    chosen: awards.Award[3] = self._check_candidates(task, policy, candidates, opened_at)
    signers: DynArray[address, 32] = self._quorum(match_rule._vote_hash(task, round), votes, task.stake_version)
    self._accept(task, round, chosen)
    log MatchAccepted(
        order_id=task.order_id, attempt=task.attempt, task=task, round=round, chosen=chosen, signers=signers
    )
    extcall self.orders.on_match(task.order_id, chosen)


@external
def accept_no_match(task: match_rule.Task, round: uint32, votes: DynArray[awards.Vote, 32]):
    """
    @notice Take a certificate that no bid was eligible. Anyone may call it.
    @param task What the validators voted on.
    @param round The round of voting.
    @param votes Votes in ascending order of their signers' addresses.
    """
    self._require_open(task)
    assert task.first == NO_LEAF and task.second == NO_LEAF and task.third == NO_LEAF, "HAS_CANDIDATES"
    signers: DynArray[address, 32] = self._quorum(match_rule._vote_hash(task, round), votes, task.stake_version)
    self._accept(task, round, empty(awards.Award[3]))
    log NoMatch(order_id=task.order_id, attempt=task.attempt, task=task, round=round, signers=signers)
    extcall self.orders.on_no_match(task.order_id)


@external
def post_snapshot(
    epoch: uint32, round: uint32, root: bytes32, count: uint32, inputs_hash: bytes32, votes: DynArray[awards.Vote, 32]
):
    """
    @notice Take the root of the provider profiles of an epoch, with votes of a quorum. Anyone may call it.
    @param epoch The number of the snapshot: one more than the last.
    @param round The round of voting.
    @param root The Merkle root of the profiles; zero if there are none.
    @param count The number of profiles.
    @param inputs_hash Hash of what the profiles were computed from.
    @param votes Votes in ascending order of their signers' addresses.
    """
    assert epoch == self.latest_epoch + 1, "WRONG_EPOCH"
    last: uint256 = self.snapshot_of[self.latest_epoch].posted_at
    assert block.timestamp >= last + SNAPSHOT_SPACING_S or last == 0, "TOO_EARLY"
    assert count <= SNAPSHOT_COUNT_MAX and (count == 0) == (root == empty(bytes32)), "BAD_ROOT"
    content: bytes32 = keccak256(abi_encode(SNAPSHOT_TYPEHASH, epoch, round, root, count, inputs_hash))
    self._quorum(content, votes, convert(staticcall stakes.version(), uint32))
    self.latest_epoch = epoch
    self.snapshot_of[epoch] = Snapshot(root=root, count=count, posted_at=block.timestamp)
    log SnapshotPosted(epoch=epoch, root=root, count=count, inputs_hash=inputs_hash)


# Reads


@external
@view
def has_quorum(struct_hash: bytes32, votes: DynArray[awards.Vote, 32], version: uint32) -> bool:
    """
    @notice Check votes for any message; the order contract uses it to prove that a provider is down.
    @param struct_hash The EIP-712 hash of the message.
    @param votes Votes in ascending order of their signers' addresses.
    @param version A stake version.
    @return True. If the votes are not worth a quorum of the version, it reverts with the reason.
    """
    self._quorum(struct_hash, votes, version)
    return True


@external
@view
def snapshot_posted_at(epoch: uint32) -> uint256:
    """
    @notice When a snapshot was posted.
    @param epoch The number of the snapshot.
    @return Unix seconds; 0 if there is no such snapshot.
    """
    return self.snapshot_of[epoch].posted_at


# The parts


@internal
@view
def _require_open(task: match_rule.Task) -> uint256:
    """The task names what the order says; returns when its attempt was opened."""
    assert self.record_of[task.order_id][task.attempt] == empty(bytes32), "ALREADY_MATCHED"
    order: IOrders.OpenOrder = staticcall self.orders.open_order(task.order_id)
    assert convert(task.attempt, uint256) == order.attempt, "WRONG_ATTEMPT"
    assert block.timestamp <= order.opened_at + ATTEMPT_S, "ATTEMPT_OVER"
    assert task.policy_hash == order.policy_hash, "WRONG_POLICY"
    assert convert(task.stake_version, uint256) == order.stake_version, "WRONG_STAKE_VERSION"
    assert convert(task.snapshot_epoch, uint256) == order.snapshot_epoch, "WRONG_SNAPSHOT"
    assert task.snapshot_root == self.snapshot_of[task.snapshot_epoch].root, "WRONG_SNAPSHOT"
    return order.opened_at


@internal
@view
def _check_candidates(
    task: match_rule.Task, policy: match_rule.Policy, candidates: DynArray[Candidate, 3], opened_at: uint256
) -> awards.Award[3]:
    indices: uint16[3] = [task.first, task.second, task.third]
    chosen: awards.Award[3] = empty(awards.Award[3])
    for i: uint256 in range(3):
        if i >= len(candidates):
            assert indices[i] == NO_LEAF, "CANDIDATE_MISSING"
            continue
        leaf: match_rule.BidLeaf = candidates[i].leaf
        assert places._in_bids(task, leaf, convert(indices[i], uint256), candidates[i].path), "NOT_IN_BIDS"
        assert leaf.status == 0 and match_rule._price_in_range(leaf), "NOT_ELIGIBLE"
        assert leaf.price_uusd <= policy.max_price_uusd, "NOT_ELIGIBLE"
        assert convert(leaf.score, uint256) == match_rule._score(policy, leaf), "WRONG_SCORE"
        if i > 0:
            assert match_rule._precedes(task, candidates[i - 1].leaf, leaf), "WRONG_ORDER"
        self._require_commit(task, leaf, candidates[i].commit_signature, opened_at)
        chosen[i] = awards.Award(provider=leaf.provider, price_uusd=convert(leaf.price_uusd, uint256))
    if policy.payment_rule == 1 and len(candidates) > 1:
        chosen[0].price_uusd = match_rule._second_score_pay(policy, candidates[0].leaf, candidates[1].leaf)
    return chosen


@internal
@view
def _require_commit(task: match_rule.Task, leaf: match_rule.BidLeaf, signature: Bytes[65], opened_at: uint256):
    """No provider is bound without its node key's signature: the key of the time when the attempt was opened."""
    bid_id: bytes32 = match_rule._bid_id(task.order_id, task.attempt, leaf)
    content: bytes32 = match_rule._commit_hash(task.order_id, task.attempt, leaf.provider, bid_id)
    signer: address = typed._recover(typed._digest_of(self, content), signature)
    assert signer == staticcall registry.node_key_at(leaf.provider, opened_at), "NOT_SIGNED_BY_NODE_KEY"


@internal
@view
def _quorum(struct_hash: bytes32, votes: DynArray[awards.Vote, 32], version: uint32) -> DynArray[address, 32]:
    """The one place that knows the signature scheme of certificates. Returns the signers."""
    digest: bytes32 = typed._digest_of(self, struct_hash)
    signers: DynArray[address, 32] = []
    history_indices: DynArray[uint256, 32] = []
    last: uint256 = 0
    for vote: awards.Vote in votes:
        signer: address = typed._recover(digest, vote.signature)
        assert convert(signer, uint256) > last, "VOTES_NOT_ASCENDING"
        last = convert(signer, uint256)
        signers.append(signer)
        history_indices.append(vote.history_index)
    at: uint256 = convert(version, uint256)
    weight: uint256 = staticcall stakes.weight_of(signers, history_indices, at)
    assert awards._is_quorum(weight, staticcall stakes.total_at(at)), "NO_QUORUM"
    return signers


@internal
def _accept(task: match_rule.Task, round: uint32, chosen: awards.Award[3]):
    record: awards.Record = awards.Record(task_hash=match_rule._task_hash(task), round=round, chosen=chosen)
    self.record_of[task.order_id][task.attempt] = awards._record_hash(record)
    self.accepted_at[task.order_id][task.attempt] = block.timestamp
