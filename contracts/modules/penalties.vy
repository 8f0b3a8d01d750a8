# pragma version 0.4.3
"""
@title Who is punished, for what, and no more than once
@notice Judges nothing: the contracts that import it check the evidence. Evidence counts until its own attempt and the
        time to challenge it are over, whatever later attempts do; stakes stay longer than that.
"""

from contracts.interfaces import IOrders
from contracts.interfaces import IProviderRegistry
from contracts.interfaces import IStakeRegistry
from contracts.interfaces import ITasks
from contracts import awards
from contracts import match_rule
from contracts.modules import typed

event FaultProven:
    order_id: indexed(bytes32)
    culprit: indexed(address)
    fault: indexed(uint256)
    attempt: uint256
    amount: uint256

DOUBLE_SIGN: constant(uint256) = 1
LEAF: constant(uint256) = 2
RANK: constant(uint256) = 3
ORDER: constant(uint256) = 4
OMISSION: constant(uint256) = 5
SILENCE: constant(uint256) = 6
UNREVEALED: constant(uint256) = 7
TWO_COMMITS: constant(uint256) = 8

DOUBLE_SIGN_BPS: constant(uint256) = 500
WRONG_VOTE_BPS: constant(uint256) = 5_000

stakes: public(immutable(IStakeRegistry))
registry: public(immutable(IProviderRegistry))
orders: public(immutable(IOrders))
tasks: public(immutable(ITasks))
ATTEMPT_S: public(immutable(uint256))
CHALLENGE_S: public(immutable(uint256))

punished: public(HashMap[bytes32, bool])  # keccak256(key, order, attempt, fault)


@deploy
def __init__(stakes_: address, registry_: address, orders_: address, tasks_: address):
    """
    @notice Set the contracts to read from and to slash in.
    @param stakes_ The stake registry.
    @param registry_ The provider registry.
    @param orders_ The order contract.
    @param tasks_ The task manager.
    """
    assert empty(address) not in [stakes_, registry_, orders_, tasks_], "ZERO_ADDRESS"
    stakes = IStakeRegistry(stakes_)
    registry = IProviderRegistry(registry_)
    orders = IOrders(orders_)
    tasks = ITasks(tasks_)
    ATTEMPT_S = staticcall stakes.ATTEMPT_S()
    CHALLENGE_S = staticcall stakes.CHALLENGE_S()


@internal
@view
def _require_in_time(order_id: bytes32, attempt: uint32, version: uint256) -> address:
    """
    Evidence about this attempt still counts, and the penalty is a share of the weight at the version that decides it:
    no culprit reports itself at one in which it had little. Returns the renter.
    """
    self._opened_at(order_id, attempt)
    decides: uint256 = staticcall orders.stake_version_at(order_id, convert(attempt, uint256))
    assert version == decides, "WRONG_STAKE_VERSION"
    return (staticcall orders.order_facts(order_id)).renter


@internal
@view
def _opened_at(order_id: bytes32, attempt: uint32) -> uint256:
    opened_at: uint256 = staticcall orders.opened_at(order_id, convert(attempt, uint256))
    assert opened_at > 0, "UNKNOWN_ATTEMPT"
    assert block.timestamp <= opened_at + ATTEMPT_S + CHALLENGE_S, "TOO_LATE"
    return opened_at


@internal
@view
def _signer(struct_hash: bytes32, signature: Bytes[65]) -> address:
    """Of a message of the match: those are signed for the task manager."""
    return typed._recover(typed._digest_of(tasks.address, struct_hash), signature)


@internal
@pure
def _case(culprit: address, order_id: bytes32, attempt: uint256, fault: uint256) -> bytes32:
    return keccak256(abi_encode(culprit, order_id, attempt, fault))


@internal
def _once(culprit: address, order_id: bytes32, attempt: uint256, fault: uint256):
    case: bytes32 = self._case(culprit, order_id, attempt, fault)
    assert not self.punished[case], "ALREADY_PUNISHED"
    self.punished[case] = True


@internal
def _punish(
    vote_key: address,
    version: uint256,
    history_index: uint256,
    order_id: bytes32,
    attempt: uint256,
    fault: uint256,
    harmed: address,
):
    self._once(vote_key, order_id, attempt, fault)
    bps: uint256 = DOUBLE_SIGN_BPS if fault == DOUBLE_SIGN else WRONG_VOTE_BPS
    amount: uint256 = extcall stakes.slash(vote_key, version, history_index, bps, msg.sender, harmed)
    log FaultProven(order_id=order_id, culprit=vote_key, fault=fault, attempt=attempt, amount=amount)


@internal
def _punish_voters(
    task: match_rule.Task, round: uint32, votes: DynArray[awards.Vote, 32], fault: uint256, harmed: address
):
    assert len(votes) > 0, "NO_VOTES"
    vote_hash: bytes32 = match_rule._vote_hash(task, round)
    version: uint256 = convert(task.stake_version, uint256)
    attempt: uint256 = convert(task.attempt, uint256)
    punished_any: bool = False
    for vote: awards.Vote in votes:
        signer: address = self._signer(vote_hash, vote.signature)
        if self.punished[self._case(signer, task.order_id, attempt, fault)]:
            continue  # a culprit that reports itself first does not shield the others
        self._punish(signer, version, vote.history_index, task.order_id, attempt, fault, harmed)
        punished_any = True
    assert punished_any, "ALREADY_PUNISHED"


@internal
def _take_bid_bond(provider: address, order_id: bytes32, attempt: uint32, fault: uint256):
    number: uint256 = convert(attempt, uint256)
    self._once(provider, order_id, number, fault)
    facts: IOrders.OrderFacts = staticcall orders.order_facts(order_id)
    bid_bond: uint256 = awards._bid_bond(facts.max_price_uusd)
    amount: uint256 = extcall stakes.forfeit_bond(provider, bid_bond, msg.sender, facts.renter)
    log FaultProven(order_id=order_id, culprit=provider, fault=fault, attempt=number, amount=amount)
