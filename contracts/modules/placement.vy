# pragma version 0.4.3
"""
@title Placing a lease with a provider, and moving it to the next
@notice A certificate names up to three candidates. The lease goes to the first that is active and bonded; when it never
        starts, resigns or is down, the next one gets it and the renter an hour of pay from the bond, where that is
        owed.
"""

from ethereum.ercs import IERC20
from contracts.interfaces import IStakes
from contracts import awards
from contracts.modules import lease_actions
from contracts.modules import lease_book
from contracts.modules import order_book
from contracts.modules import sisters
from contracts.modules import typed

uses: lease_book
uses: order_book
uses: sisters

event OrderUnmatched:
    order_id: indexed(bytes32)
    attempt: indexed(uint256)
    reason: uint256

event CandidateSkipped:
    order_id: indexed(bytes32)
    provider: indexed(address)

event LeaseCreated:
    lease_id: indexed(bytes32)
    provider: indexed(address)
    term: uint256
    rate_uusd: uint256
    confirm_by: uint256

event LeaseHandedOver:
    lease_id: indexed(bytes32)
    provider: indexed(address)
    term: uint256
    reason: uint256
    compensation: uint256

event LeaseUnplaced:
    lease_id: indexed(bytes32)

NONE_PLACEABLE: constant(uint256) = 99
NO_START: constant(uint256) = 16  # why a lease moves
DOWN: constant(uint256) = 17
RESIGNED: constant(uint256) = 18

RESIGN_TYPEHASH: constant(bytes32) = keccak256("Resign(bytes32 leaseId,uint32 term)")
DOWN_TYPEHASH: constant(bytes32) = keccak256("Down(bytes32 leaseId,uint32 term,address provider,uint64 downSince)")

token: immutable(IERC20)


@deploy
def __init__(token_: address):
    """
    @notice Set the token.
    @param token_ The ERC-20 of this deployment, with six decimals.
    """
    assert token_ != empty(address), "ZERO_ADDRESS"
    token = IERC20(token_)


@external
@nonreentrant
def hand_over(
    lease_id: bytes32,
    record: awards.Record,
    reason: uint256,
    down_since: uint256,
    votes: DynArray[awards.Vote, 32],
    resign_signature: Bytes[65],
):
    """
    @notice Move a lease to the next candidate of its certificate (failover). Anyone may call it who has the evidence.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param reason 16 the provider did not start in time, 17 it is down, 18 it resigned.
    @param down_since The Unix second since which it is down; unused for other reasons.
    @param votes Votes of a quorum that it is down, in ascending order of their signers' addresses; unused for other
                 reasons.
    @param resign_signature The provider's signature that it resigns; unused for other reasons, or if the provider
                            itself calls.
    """
    lease: lease_book.Lease = lease_book._load(lease_id)
    order: order_book.Order = order_book._load(lease_id)
    assert lease.state == lease_book.PENDING or lease.state == lease_book.ACTIVE, "NOT_RUNNING"
    recorded: bytes32 = staticcall sisters.tasks.record_of(lease_id, convert(order.attempt, uint32))
    assert awards._record_hash(record) == recorded, "WRONG_RECORD"
    paid_until: uint256 = block.timestamp
    owes: bool = True
    if reason == NO_START:
        assert lease.state == lease_book.PENDING and paid_until > lease.confirm_by, "NOT_LATE"
        owes = lease.position == 0 and not lease.resumed
    elif reason == RESIGNED:
        self._require_resignation(lease_id, lease, resign_signature)
        owes = not lease_actions._notice_is_over(lease)
    else:
        assert reason == DOWN, "UNKNOWN_REASON"
        self._require_down(lease_id, lease, down_since, votes)
        paid_until = down_since
    self._move(lease_id, order, lease, record.chosen, reason, paid_until, owes)


@internal
def _to_unmatched(order_id: bytes32, order: order_book.Order, reason: uint256):
    unmatched: order_book.Order = order
    unmatched.state = order_book.UNMATCHED
    order_book._save(order_id, unmatched)
    log OrderUnmatched(order_id=order_id, attempt=order.attempt, reason=reason)


@internal
def _place(
    lease_id: bytes32, lease: lease_book.Lease, chosen: awards.Award[3], start: uint256
) -> bool:
    """The first candidate from `start` on that is active and bonded gets the lease; the others are passed over."""
    for i: uint256 in range(3):
        provider: address = chosen[i].provider
        if i < start or provider == empty(address):
            continue
        bond: uint256 = chosen[i].price_uusd  # an hour of pay
        if staticcall sisters.registry.is_active(provider) and staticcall sisters.stakes.free_bond(provider) >= bond:
            self._give(lease_id, lease, provider, chosen[i].price_uusd, i)
            extcall sisters.stakes.lock(provider, bond, bond)
            return True
        log CandidateSkipped(order_id=lease_id, provider=provider)
    return False


@internal
def _give(
    lease_id: bytes32, lease: lease_book.Lease, provider: address, rate_uusd: uint256, position: uint256
):
    given: lease_book.Lease = lease
    wait_s: uint256 = lease.start_s if position == 0 else lease.standin_s
    given.provider = provider
    given.state = lease_book.PENDING
    given.position = position
    given.term = lease.term + 1
    given.confirm_by = block.timestamp + wait_s
    given.rate_uusd = rate_uusd
    given.locked_uusd = rate_uusd
    given.resumed = False
    given.notice_at = 0
    lease_book._save(lease_id, given)
    log LeaseCreated(
        lease_id=lease_id, provider=provider, term=given.term, rate_uusd=rate_uusd, confirm_by=given.confirm_by
    )


@internal
def _require_resignation(lease_id: bytes32, lease: lease_book.Lease, signature: Bytes[65]):
    if sisters._acts_for(msg.sender, lease.provider):
        return
    content: bytes32 = keccak256(abi_encode(RESIGN_TYPEHASH, lease_id, lease.term))
    signer: address = typed._recover(typed._digest_of(self, content), signature)
    assert sisters._acts_for(signer, lease.provider), "NOT_PROVIDER"


@internal
@view
def _require_down(
    lease_id: bytes32, lease: lease_book.Lease, down_since: uint256, votes: DynArray[awards.Vote, 32]
):
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert down_since >= lease.running_since, "BEFORE_TERM"
    assert down_since + lease.down_s <= block.timestamp, "NOT_DOWN_LONG_ENOUGH"
    content: bytes32 = keccak256(abi_encode(DOWN_TYPEHASH, lease_id, lease.term, lease.provider, down_since))
    version: uint256 = staticcall IStakes(sisters.stakes.address).version()
    assert staticcall sisters.tasks.has_quorum(content, votes, convert(version, uint32)), "NO_QUORUM"


@internal
def _move(
    lease_id: bytes32,
    order: order_book.Order,
    lease: lease_book.Lease,
    chosen: awards.Award[3],
    reason: uint256,
    paid_until: uint256,
    owes: bool,
):
    """Stop the stream, settle the leaver's bond, place the lease with the next candidate."""
    left: lease_book.Lease = lease
    left.duration_left_s = lease_actions._duration_left_s(lease, paid_until)
    left.state = lease_book.UNPLACED
    left.locked_uusd = 0
    left.provider = empty(address)  # the provider that left can no longer act, not even by an earlier notice
    left.notice_at = 0
    lease_book._save(lease_id, left)
    extcall sisters.escrow.stop(lease_id, paid_until)
    compensation: uint256 = self._settle_bond(lease_id, lease, owes)
    log LeaseHandedOver(
        lease_id=lease_id, provider=lease.provider, term=lease.term, reason=reason, compensation=compensation
    )
    if not self._place(lease_id, left, chosen, lease.position + 1):
        log LeaseUnplaced(lease_id=lease_id)
        self._to_unmatched(lease_id, order, NONE_PLACEABLE)


@internal
def _settle_bond(lease_id: bytes32, lease: lease_book.Lease, owes: bool) -> uint256:
    """The locked hour of pay goes to the renter's deposit, or back to the provider. Returns what reached the deposit."""
    locked: uint256 = lease.locked_uusd
    if not owes:
        extcall sisters.stakes.release(lease.provider, locked)
        return 0
    escrow: address = sisters.escrow.address
    before: uint256 = staticcall token.balanceOf(escrow)
    extcall sisters.stakes.take_bond(lease.provider, locked, escrow)
    received: uint256 = staticcall token.balanceOf(escrow) - before
    extcall sisters.escrow.credit(lease_id, received)
    return received
