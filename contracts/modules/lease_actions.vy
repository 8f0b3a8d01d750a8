# pragma version 0.4.3
"""
@title What renter and provider do with a lease: confirm, pause, resume, notice, close
@notice Each has a `…_with_signature` twin (meta-transaction). The provider acts with its own address or its node key.
"""

from contracts.modules import lease_book
from contracts.modules import order_book
from contracts.modules import sisters
from contracts.modules import twins

uses: lease_book
uses: order_book
uses: sisters
uses: twins

event DeploymentConfirmed:
    lease_id: indexed(bytes32)
    provider: indexed(address)
    term: uint256
    details_hash: bytes32

event LeasePaused:
    lease_id: indexed(bytes32)
    reason: uint256

event LeaseResumed:
    lease_id: indexed(bytes32)
    confirm_by: uint256

event ReclaimNoticed:
    lease_id: indexed(bytes32)
    may_close_at: uint256

event LeaseClosed:
    lease_id: indexed(bytes32)
    reason: uint256

BY_RENTER: constant(uint256) = 1  # reasons to pause or close
BY_DURATION: constant(uint256) = 2
BY_RECLAIM: constant(uint256) = 3
BY_EMPTY: constant(uint256) = 4
HOUR_S: constant(uint256) = 3_600

CONFIRM_TYPEHASH: constant(bytes32) = keccak256(
    "ConfirmStart(address account,bytes32 leaseId,bytes32 detailsHash,uint256 nonce,uint256 deadline)"
)
PAUSE_TYPEHASH: constant(bytes32) = keccak256("Pause(address account,bytes32 leaseId,uint256 nonce,uint256 deadline)")
RESUME_TYPEHASH: constant(bytes32) = keccak256("Resume(address account,bytes32 leaseId,uint256 nonce,uint256 deadline)")
NOTICE_TYPEHASH: constant(bytes32) = keccak256(
    "GiveNotice(address account,bytes32 leaseId,uint256 nonce,uint256 deadline)"
)
CLOSE_TYPEHASH: constant(bytes32) = keccak256(
    "Close(address account,bytes32 leaseId,uint256 reason,uint256 nonce,uint256 deadline)"
)


@external
@nonreentrant
def confirm_start(lease_id: bytes32, details_hash: bytes32):
    """
    @notice Confirm that the deployment runs, so that pay begins. Only the provider or its node key may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param details_hash Hash of how the renter reaches the deployment. The details go to the renter off chain.
    """
    self._confirm_start(msg.sender, lease_id, details_hash)


@external
@nonreentrant
def confirm_start_with_signature(
    account: address, lease_id: bytes32, details_hash: bytes32, deadline: uint256, signature: Bytes[65]
):
    """
    @notice `confirm_start` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param details_hash Hash of how the renter reaches the deployment. The details go to the renter off chain.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(abi_encode(CONFIRM_TYPEHASH, account, lease_id, details_hash, nonce, deadline))
    twins._require_signed(account, content, deadline, signature)
    self._confirm_start(account, lease_id, details_hash)


@external
@nonreentrant
def pause(lease_id: bytes32):
    """
    @notice Pause a lease of the caller: pay stops, the bond stays locked.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    self._pause(msg.sender, lease_id)


@external
@nonreentrant
def pause_with_signature(account: address, lease_id: bytes32, deadline: uint256, signature: Bytes[65]):
    """
    @notice `pause` as a meta-transaction: the renter signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    self._require_twin(PAUSE_TYPEHASH, account, lease_id, deadline, signature)
    self._pause(account, lease_id)


@external
@nonreentrant
def resume(lease_id: bytes32):
    """
    @notice Ask the provider to start a paused lease again. Only the renter may call it, but anyone if the pause came
            from an empty deposit.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    self._resume(msg.sender, lease_id)


@external
@nonreentrant
def resume_with_signature(account: address, lease_id: bytes32, deadline: uint256, signature: Bytes[65]):
    """
    @notice `resume` as a meta-transaction: the account signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    self._require_twin(RESUME_TYPEHASH, account, lease_id, deadline, signature)
    self._resume(account, lease_id)


@external
@nonreentrant
def give_notice(lease_id: bytes32):
    """
    @notice Announce that the provider will take its machine back. Only the provider or its node key may call it.
    @dev A provider that has not started yet cannot: it would leave its bid for nothing.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    self._give_notice(msg.sender, lease_id)


@external
@nonreentrant
def give_notice_with_signature(account: address, lease_id: bytes32, deadline: uint256, signature: Bytes[65]):
    """
    @notice `give_notice` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    self._require_twin(NOTICE_TYPEHASH, account, lease_id, deadline, signature)
    self._give_notice(account, lease_id)


@external
@nonreentrant
def close(lease_id: bytes32, reason: uint256):
    """
    @notice End a lease: pay what is due, refund the rest, free the bond.
    @dev A renter that closes while its provider prepares the start pays for the time set for the start.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param reason 1 the renter closes it, 2 the agreed time is over, 3 the provider's notice is over, 4 it has been
                  paused for longer than the grace and the deposit does not pay for a minute.
    """
    self._close(msg.sender, lease_id, reason)


@external
@nonreentrant
def close_with_signature(
    account: address, lease_id: bytes32, reason: uint256, deadline: uint256, signature: Bytes[65]
):
    """
    @notice `close` as a meta-transaction: the account signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param reason As for `close`.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(abi_encode(CLOSE_TYPEHASH, account, lease_id, reason, nonce, deadline))
    twins._require_signed(account, content, deadline, signature)
    self._close(account, lease_id, reason)


@external
@nonreentrant
def on_empty(lease_id: bytes32):
    """
    @notice Pause a lease whose deposit is used up. Only the escrow may call it; it has stopped the stream.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    assert msg.sender == sisters.escrow.address, "NOT_ESCROW"
    self._to_paused(lease_id, lease_book._load(lease_id), BY_EMPTY)


# The acts


@internal
def _require_twin(typehash: bytes32, account: address, lease_id: bytes32, deadline: uint256, signature: Bytes[65]):
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(abi_encode(typehash, account, lease_id, nonce, deadline))
    twins._require_signed(account, content, deadline, signature)


@internal
def _confirm_start(caller: address, lease_id: bytes32, details_hash: bytes32):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert lease.state == lease_book.PENDING, "NOT_PENDING"
    assert sisters._acts_for(caller, lease.provider), "NOT_PROVIDER"
    assert block.timestamp <= lease.confirm_by, "TOO_LATE"
    lease.state = lease_book.ACTIVE
    lease.running_since = block.timestamp
    lease_book._save(lease_id, lease)
    log DeploymentConfirmed(lease_id=lease_id, provider=lease.provider, term=lease.term, details_hash=details_hash)
    end_at: uint256 = block.timestamp + lease.duration_left_s
    extcall sisters.escrow.start(lease_id, lease.provider, lease.rate_uusd, end_at)


@internal
def _pause(caller: address, lease_id: bytes32):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert caller == order_book._load(lease_id).renter, "NOT_RENTER"
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    self._to_paused(lease_id, lease, BY_RENTER)
    extcall sisters.escrow.stop(lease_id, block.timestamp)


@internal
def _to_paused(lease_id: bytes32, lease: lease_book.Lease, reason: uint256):
    paused: lease_book.Lease = lease
    paused.duration_left_s = lease_book._duration_left_s(lease, block.timestamp)
    paused.state = lease_book.PAUSED
    paused.pause_reason = reason
    paused.paused_at = block.timestamp
    lease_book._save(lease_id, paused)
    log LeasePaused(lease_id=lease_id, reason=reason)


@internal
def _resume(caller: address, lease_id: bytes32):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert lease.state == lease_book.PAUSED, "NOT_PAUSED"
    assert lease.pause_reason == BY_EMPTY or caller == order_book._load(lease_id).renter, "NOT_RENTER"
    assert lease.duration_left_s > 0, "DURATION_USED_UP"
    assert self._pays_a_minute(lease_id, lease), "DEPOSIT_TOO_SMALL"
    lease.state = lease_book.PENDING
    lease.resumed = True
    lease.confirm_by = block.timestamp + lease.start_s
    lease_book._save(lease_id, lease)
    log LeaseResumed(lease_id=lease_id, confirm_by=lease.confirm_by)


@internal
@view
def _pays_a_minute(lease_id: bytes32, lease: lease_book.Lease) -> bool:
    return staticcall sisters.escrow.deposit_of(lease_id) >= max(1, lease.rate_uusd // 60)


@internal
def _give_notice(caller: address, lease_id: bytes32):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert lease.state in [lease_book.PENDING, lease_book.ACTIVE, lease_book.PAUSED], "NOT_RUNNING"
    assert sisters._acts_for(caller, lease.provider), "NOT_PROVIDER"
    assert not self._is_first_start(lease), "NOT_STARTED"
    assert lease.notice_at == 0, "ALREADY_NOTICED"
    lease.notice_at = block.timestamp
    lease_book._save(lease_id, lease)
    log ReclaimNoticed(lease_id=lease_id, may_close_at=block.timestamp + lease.reclaim_s)


@internal
def _close(caller: address, lease_id: bytes32, reason: uint256):
    lease: lease_book.Lease = lease_book._load(lease_id)
    order: order_book.Order = order_book._load(lease_id)
    assert lease.state != 0 and lease.state != lease_book.CLOSED, "NO_SUCH_LEASE"
    charge: uint256 = 0
    if reason == BY_RENTER:
        assert caller == order.renter, "NOT_RENTER"
        charge = self._start_charge(lease)
    elif reason == BY_DURATION:
        assert lease.state == lease_book.ACTIVE or lease.state == lease_book.PAUSED, "NOT_RUNNING"
        assert lease_book._duration_left_s(lease, block.timestamp) == 0, "DURATION_NOT_OVER"
    elif reason == BY_RECLAIM:
        assert sisters._acts_for(caller, lease.provider), "NOT_PROVIDER"
        assert lease_book._notice_is_over(lease), "NOTICE_NOT_OVER"
    else:
        assert reason == BY_EMPTY, "UNKNOWN_REASON"
        assert lease.state == lease_book.PAUSED, "NOT_PAUSED"
        assert block.timestamp > lease.paused_at + lease.empty_grace_s, "GRACE_NOT_OVER"
        assert not self._pays_a_minute(lease_id, lease), "NOT_EMPTY"
    order.state = order_book.CLOSED
    order_book._save(lease_id, order)
    self._end(lease_id, lease, reason, charge)


@internal
@pure
def _is_first_start(lease: lease_book.Lease) -> bool:
    """Its provider has not yet started in this term."""
    return lease.state == lease_book.PENDING and not lease.resumed


@internal
@view
def _start_charge(lease: lease_book.Lease) -> uint256:
    """What the renter owes if it ends the lease: the time set for a start that the provider still has time for."""
    charged: bool = self._is_first_start(lease) and block.timestamp <= lease.confirm_by
    return lease.rate_uusd * lease.start_s // HOUR_S if charged else 0


@internal
def _end(lease_id: bytes32, lease: lease_book.Lease, reason: uint256, charge: uint256):
    """Close the lease, pay what is due, refund the rest, free the bond."""
    closed: lease_book.Lease = lease
    closed.state = lease_book.CLOSED
    closed.locked_uusd = 0
    lease_book._save(lease_id, closed)
    log LeaseClosed(lease_id=lease_id, reason=reason)
    if lease.locked_uusd > 0:
        extcall sisters.stakes.release(lease.provider, lease.locked_uusd)
    extcall sisters.escrow.stop(lease_id, block.timestamp)
    if charge > 0:
        extcall sisters.escrow.pay(lease_id, lease.provider, charge)
    extcall sisters.escrow.refund(lease_id)
