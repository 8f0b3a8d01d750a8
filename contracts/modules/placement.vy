# pragma version 0.4.3
"""
@title Placing a lease with a provider, changing it, and taking it away
@notice A certificate names up to three candidates. The lease goes to the first that is not suspended and whose bond can
        be locked; a stand-in gets it by its own claim only. At least ten minutes of the order's highest price are
        locked, whatever the bid: the renter's compensation if the provider fails it. `lease_moves` judges who may take
        a lease away, claim it or change it.
"""

from ethereum.ercs import IERC20
from contracts import awards
from contracts.modules import lease_book
from contracts.modules import order_book
from contracts.modules import sisters

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
    suspended: bool  # or else bonded with less than the bid bond

event LeaseCreated:
    lease_id: indexed(bytes32)
    provider: indexed(address)
    term: uint256
    position: uint256
    rate_uusd: uint256
    locked_uusd: uint256
    confirm_by: uint256

event LeaseHandedOver:
    lease_id: indexed(bytes32)
    provider: indexed(address)
    term: uint256
    reason: uint256
    compensation: uint256
    claim_by: uint256  # when the stand-ins' time is over

event LeaseUnplaced:
    lease_id: indexed(bytes32)
    expires_at: uint256

event Wired:
    moves: indexed(address)

NONE_PLACEABLE: constant(uint256) = 99

token: immutable(IERC20)
deployer: immutable(address)

moves: public(address)


@deploy
def __init__(token_: address):
    """
    @notice Set the token.
    @param token_ The ERC-20 of this deployment, with six decimals.
    """
    assert token_ != empty(address), "ZERO_ADDRESS"
    token = IERC20(token_)
    deployer = msg.sender


@external
def wire(moves: address):
    """
    @notice Name the contract that moves and changes leases. The deployer does this once; it is never changed again.
    @param moves The `lease_moves` contract.
    """
    assert msg.sender == deployer, "NOT_DEPLOYER"
    assert self.moves == empty(address), "ALREADY_WIRED"
    assert moves != empty(address), "ZERO_ADDRESS"
    self.moves = moves
    log Wired(moves=moves)


@external
@nonreentrant
def vacate(lease_id: bytes32, reason: uint256, paid_until: uint256, owes: bool, standins: uint256):
    """
    @notice End the term of a lease's provider: stop its pay, settle its bond. Only `lease_moves` may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param reason 16 the provider did not start in time, 17 it is down, 18 it resigned.
    @param paid_until The Unix second up to which the provider is paid.
    @param owes Whether its locked bond goes to the renter's deposit.
    @param standins How many candidates can claim the lease. Without any it waits for a new auction.
    """
    self._require_moves()
    lease: lease_book.Lease = lease_book._load(lease_id)
    left: lease_book.Lease = lease
    left.duration_left_s = lease_book._duration_left_s(lease, paid_until)
    left.state = lease_book.VACANT
    left.locked_uusd = 0
    left.provider = empty(address)  # the provider that left can no longer act, not even by an earlier notice
    left.notice_at = 0
    left.vacated_at = block.timestamp
    left.confirm_by = block.timestamp + standins * lease.standin_s
    lease_book._save(lease_id, left)
    extcall sisters.escrow.stop(lease_id, paid_until)
    compensation: uint256 = self._settle_bond(lease_id, lease, owes)
    log LeaseHandedOver(
        lease_id=lease_id,
        provider=lease.provider,
        term=lease.term,
        reason=reason,
        compensation=compensation,
        claim_by=left.confirm_by,
    )
    if standins == 0:
        self._unplace(lease_id, left)


@external
@nonreentrant
def place(lease_id: bytes32, provider: address, rate_uusd: uint256, position: uint256):
    """
    @notice Give a vacant lease to a stand-in that claims it, and lock its bond. Only `lease_moves` may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param provider The stand-in.
    @param rate_uusd Its price in µUSD per hour.
    @param position Its place among the candidates.
    """
    self._require_moves()
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert self._give(lease_id, lease, provider, rate_uusd, position, lease.standin_s), "BOND_TOO_SMALL"


@external
@nonreentrant
def apply_update(lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256):
    """
    @notice Change a running lease: settle, then go on at another price for a time that counts from now. Only
            `lease_moves` may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is deployed.
    @param rate_uusd The price in µUSD per hour.
    @param duration_s How many seconds the lease goes on from now.
    """
    self._require_moves()
    lease: lease_book.Lease = lease_book._load(lease_id)
    lease.rate_uusd = rate_uusd
    lease.duration_left_s = duration_s
    lease.running_since = block.timestamp
    lease_book._save(lease_id, lease)
    order_book.spec_hash[lease_id] = spec_hash
    extcall sisters.escrow.change_rate(lease_id, rate_uusd, block.timestamp + duration_s)


@internal
@view
def _require_moves():
    assert msg.sender == self.moves, "NOT_MOVES"


@internal
def _to_unmatched(order_id: bytes32, order: order_book.Order, reason: uint256):
    unmatched: order_book.Order = order
    unmatched.state = order_book.UNMATCHED
    order_book._save(order_id, unmatched)
    log OrderUnmatched(order_id=order_id, attempt=order.attempt, reason=reason)


@internal
def _unplace(lease_id: bytes32, lease: lease_book.Lease):
    """No candidate is left: the lease waits for a new auction, at least as long as a pause may last."""
    unplaced: lease_book.Lease = lease
    unplaced.state = lease_book.UNPLACED
    lease_book._save(lease_id, unplaced)
    order: order_book.Order = order_book._load(lease_id)
    order.expires_at = max(order.expires_at, block.timestamp + lease.empty_grace_s)
    log LeaseUnplaced(lease_id=lease_id, expires_at=order.expires_at)
    self._to_unmatched(lease_id, order, NONE_PLACEABLE)


@internal
def _place(lease_id: bytes32, chosen: awards.Award[3]) -> bool:
    """
    The first candidate that is not suspended and has a bond gets the lease. One that went to maintenance or left after
    its bid is bound by it.
    """
    lease: lease_book.Lease = lease_book._load(lease_id)
    for i: uint256 in range(3):
        provider: address = chosen[i].provider
        if provider == empty(address):
            break
        suspended: bool = sisters._is_suspended(provider)
        if not suspended and self._give(lease_id, lease, provider, chosen[i].price_uusd, i, lease.start_s):
            return True
        log CandidateSkipped(order_id=lease_id, provider=provider, suspended=suspended)
    return False


@internal
def _give(
    lease_id: bytes32,
    lease: lease_book.Lease,
    provider: address,
    rate_uusd: uint256,
    position: uint256,
    wait_s: uint256,
) -> bool:
    """False if the provider's bond is less than the bid bond. The answer of `lock` decides, so it is called first."""
    bid_bond: uint256 = awards._bid_bond(lease.max_rate_uusd)
    locked: uint256 = extcall sisters.stakes.lock(provider, max(rate_uusd, bid_bond), bid_bond)
    if locked == 0:
        return False
    given: lease_book.Lease = lease
    given.provider = provider
    given.state = lease_book.PENDING
    given.position = position
    given.term = lease.term + 1
    given.confirm_by = block.timestamp + wait_s
    given.rate_uusd = rate_uusd
    given.locked_uusd = locked
    given.resumed = False
    lease_book._save(lease_id, given)
    log LeaseCreated(
        lease_id=lease_id,
        provider=provider,
        term=given.term,
        position=position,
        rate_uusd=rate_uusd,
        locked_uusd=locked,
        confirm_by=given.confirm_by,
    )
    return True


@internal
def _settle_bond(lease_id: bytes32, lease: lease_book.Lease, owes: bool) -> uint256:
    """The locked bond goes to the renter's deposit, or back to the provider. Returns what reached the deposit."""
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
