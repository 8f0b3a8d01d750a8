# pragma version 0.4.3
"""
@title Changing a lease while it runs: the renter proposes, the provider accepts
@notice Price and specification only, never above the order's highest price. Each has a twin by signature.
"""

from contracts.modules import lease_book
from contracts.modules import order_book
from contracts.modules import sisters
from contracts.modules import twins

uses: lease_book
uses: order_book
uses: sisters
uses: twins

event UpdateProposed:
    lease_id: indexed(bytes32)
    spec_hash: bytes32
    rate_uusd: uint256
    seq: uint256

event LeaseUpdated:
    lease_id: indexed(bytes32)
    spec_hash: bytes32
    rate_uusd: uint256
    seq: uint256

PROPOSE_TYPEHASH: constant(bytes32) = keccak256(
    "ProposeUpdate(address account,bytes32 leaseId,bytes32 specHash,uint256 rateUusd,uint256 seq,uint256 nonce,uint256 deadline)"
)
ACCEPT_TYPEHASH: constant(bytes32) = keccak256(
    "AcceptUpdate(address account,bytes32 leaseId,bytes32 specHash,uint256 rateUusd,uint256 seq,uint256 nonce,uint256 deadline)"
)


@external
@nonreentrant
def propose_update(lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, seq: uint256):
    """
    @notice Propose a new price or specification for a running lease of the caller.
    @dev It replaces a proposal that was not accepted.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The new price in µUSD per hour, at most the highest price of the order.
    @param seq The number of the proposal; it must be higher than that of the one before.
    """
    self._propose_update(msg.sender, lease_id, spec_hash, rate_uusd, seq)


@external
@nonreentrant
def propose_update_with_signature(
    account: address,
    lease_id: bytes32,
    spec_hash: bytes32,
    rate_uusd: uint256,
    seq: uint256,
    deadline: uint256,
    signature: Bytes[65],
):
    """
    @notice `propose_update` as a meta-transaction: the renter signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The new price in µUSD per hour, at most the highest price of the order.
    @param seq The number of the proposal; it must be higher than that of the one before.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(
        abi_encode(PROPOSE_TYPEHASH, account, lease_id, spec_hash, rate_uusd, seq, nonce, deadline)
    )
    twins._require_signed(account, content, deadline, signature)
    self._propose_update(account, lease_id, spec_hash, rate_uusd, seq)


@external
@nonreentrant
def accept_update(lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, seq: uint256):
    """
    @notice Accept the renter's proposal. Only the provider or its node key may call it.
    @dev All values must be those of the proposal.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The price in µUSD per hour.
    @param seq The number of the proposal; it must be higher than that of the one before.
    """
    self._accept_update(msg.sender, lease_id, spec_hash, rate_uusd, seq)


@external
@nonreentrant
def accept_update_with_signature(
    account: address,
    lease_id: bytes32,
    spec_hash: bytes32,
    rate_uusd: uint256,
    seq: uint256,
    deadline: uint256,
    signature: Bytes[65],
):
    """
    @notice `accept_update` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The price in µUSD per hour.
    @param seq The number of the proposal; it must be higher than that of the one before.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(
        abi_encode(ACCEPT_TYPEHASH, account, lease_id, spec_hash, rate_uusd, seq, nonce, deadline)
    )
    twins._require_signed(account, content, deadline, signature)
    self._accept_update(account, lease_id, spec_hash, rate_uusd, seq)


@internal
def _propose_update(caller: address, lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, seq: uint256):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert caller == order_book._load(lease_id).renter, "NOT_RENTER"
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert rate_uusd > 0 and rate_uusd <= lease.max_rate_uusd, "BAD_RATE"
    assert seq > lease_book.update_seq[lease_id], "STALE_SEQ"
    lease_book.update_seq[lease_id] = seq
    lease_book.update_digest[lease_id] = keccak256(abi_encode(spec_hash, rate_uusd, seq, lease.term))
    log UpdateProposed(lease_id=lease_id, spec_hash=spec_hash, rate_uusd=rate_uusd, seq=seq)


@internal
def _accept_update(caller: address, lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, seq: uint256):
    lease: lease_book.Lease = lease_book._load(lease_id)
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert sisters._acts_for(caller, lease.provider), "NOT_PROVIDER"
    digest: bytes32 = keccak256(abi_encode(spec_hash, rate_uusd, seq, lease.term))
    assert lease_book.update_digest[lease_id] == digest, "NOT_PROPOSED"
    lease_book.update_digest[lease_id] = empty(bytes32)
    lease.rate_uusd = rate_uusd
    lease_book._save(lease_id, lease)
    order_book.spec_hash[lease_id] = spec_hash
    log LeaseUpdated(lease_id=lease_id, spec_hash=spec_hash, rate_uusd=rate_uusd, seq=seq)
    extcall sisters.escrow.change_rate(lease_id, rate_uusd)
