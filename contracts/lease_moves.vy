# pragma version 0.4.3
# pragma evm-version prague
"""
@title Moving and changing leases: who may, and on what evidence
@notice A lease moves when its provider never starts, resigns, or is down by the word of a quorum; the stand-ins of its
        certificate then claim it, each in its turn. A lease that runs changes when renter and provider both want it.
        This contract judges the evidence and tells the order contract what to do. Holds no money.
"""

from contracts.interfaces import IMovableLeases
from contracts.interfaces import IOrders
from contracts.interfaces import IStakes
from contracts import awards
from contracts.modules import lease_book
from contracts.modules import sisters
from contracts.modules import twins
from contracts.modules import typed

initializes: sisters
initializes: twins
exports: (twins.nonces, twins.DOMAIN_SEPARATOR)

event UpdateProposed:
    lease_id: indexed(bytes32)
    spec_hash: bytes32
    rate_uusd: uint256
    duration_s: uint256
    seq: uint256

event LeaseUpdated:
    lease_id: indexed(bytes32)
    spec_hash: bytes32
    rate_uusd: uint256
    duration_s: uint256
    seq: uint256

NO_START: constant(uint256) = 16  # why a lease moves
DOWN: constant(uint256) = 17
RESIGNED: constant(uint256) = 18
PAUSED_BY_RENTER: constant(uint256) = 1
DURATION_S_MIN: constant(uint256) = 60
DURATION_S_END: constant(uint256) = 2**32

RESIGN_TYPEHASH: constant(bytes32) = keccak256("Resign(bytes32 leaseId,uint32 term)")
ACCEPT_TYPEHASH: constant(bytes32) = keccak256("Accept(bytes32 leaseId,uint32 term)")
DOWN_TYPEHASH: constant(bytes32) = keccak256("Down(bytes32 leaseId,uint32 term,address provider,uint64 downSince)")
PROPOSE_UPDATE_TYPEHASH: constant(bytes32) = keccak256(
    "ProposeUpdate(address account,bytes32 leaseId,bytes32 specHash,uint256 rateUusd,uint256 durationS,uint256 seq,uint256 nonce,uint256 deadline)"
)
ACCEPT_UPDATE_TYPEHASH: constant(bytes32) = keccak256(
    "AcceptUpdate(address account,bytes32 leaseId,bytes32 specHash,uint256 rateUusd,uint256 durationS,uint256 seq,uint256 nonce,uint256 deadline)"
)

ATTEMPT_S: public(immutable(uint256))
orders: public(immutable(IMovableLeases))

update_seq: public(HashMap[bytes32, uint256])
update_digest: public(HashMap[bytes32, bytes32])


@deploy
def __init__(orders_: address):
    """
    @notice Set the order contract, for good. The other contracts are those that it works with.
    @param orders_ The order contract.
    """
    orders = IMovableLeases(orders_)
    registry: address = staticcall orders.registry()
    stakes: address = staticcall orders.stakes()
    sisters.__init__(registry, stakes, staticcall orders.escrow(), staticcall orders.tasks())
    ATTEMPT_S = staticcall sisters.stakes.ATTEMPT_S()


# From one provider to the next


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
    @notice Take a lease from its provider (failover), so that the stand-ins of its certificate can claim it. Anyone may
            call it who has the evidence.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param reason 16 the provider did not start in time, 17 it is down, 18 it resigned.
    @param down_since The Unix second since which it is down; unused for other reasons.
    @param votes Votes of a quorum that it is down, in ascending order of their signers' addresses; unused for other
                 reasons.
    @param resign_signature The provider's signature that it resigns; unused for other reasons, or if the provider
                            itself calls.
    """
    lease: lease_book.Lease = staticcall orders.lease_of(lease_id)
    self._require_record(lease_id, record)
    paid_until: uint256 = block.timestamp
    owes: bool = True
    if reason == NO_START:
        assert lease.state == lease_book.PENDING, "NOT_PENDING"
        assert block.timestamp > lease.confirm_by, "NOT_LATE"
        owes = not lease.resumed
    elif reason == RESIGNED:
        owes = self._owes_for_resigning(lease)
        self._require_resignation(lease_id, lease, resign_signature)
    else:
        assert reason == DOWN, "UNKNOWN_REASON"
        self._require_down(lease_id, lease, down_since, votes)
        paid_until = down_since
    # Nothing is left to hand over, nor to answer for, once the agreed time is used up: anyone closes the lease.
    assert lease_book._duration_left_s(lease, paid_until) > 0, "DURATION_USED_UP"
    extcall orders.vacate(lease_id, reason, paid_until, owes, self._standins(record, lease.position))


@external
@nonreentrant
def take_over(lease_id: bytes32, record: awards.Record, position: uint256, accept_signature: Bytes[65]):
    """
    @notice Claim a vacant lease for a stand-in of its certificate, in its turn. The stand-in or its node key calls it,
            or anyone with its signature.
    @dev The next candidate has its turn at once, each further one `standin_s` later. Its bond is locked.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param record The record that the certificate left behind. Its hash must be the stored one.
    @param position The place of the stand-in among the candidates of the record: 1 or 2.
    @param accept_signature The stand-in's signature that it takes the lease for its next term; unused if the stand-in
                            itself calls.
    """
    lease: lease_book.Lease = staticcall orders.lease_of(lease_id)
    assert lease.state == lease_book.VACANT, "NOT_VACANT"
    self._require_record(lease_id, record)
    assert position > lease.position and position < 3, "NOT_A_STAND_IN"
    chosen: awards.Award = record.chosen[position]
    assert chosen.provider != empty(address), "NOT_A_STAND_IN"
    turn: uint256 = lease.vacated_at + (position - lease.position - 1) * lease.standin_s
    assert block.timestamp >= turn, "NOT_ITS_TURN"
    self._require_signed_for(chosen.provider, ACCEPT_TYPEHASH, lease_id, lease.term + 1, accept_signature)
    assert not sisters._is_suspended(chosen.provider), "SUSPENDED"
    extcall orders.place(lease_id, chosen.provider, chosen.price_uusd, position)


# Changing a lease that runs


@external
@nonreentrant
def propose_update(lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256, seq: uint256):
    """
    @notice Propose another price, specification or length for a running lease of the caller.
    @dev It replaces a proposal that was not accepted.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The new price in µUSD per hour, at most the highest price of the order.
    @param duration_s How many seconds the lease goes on from the moment of acceptance; at least 60.
    @param seq The number of the proposal; it must be higher than that of the one before.
    """
    self._propose_update(msg.sender, lease_id, spec_hash, rate_uusd, duration_s, seq)


@external
@nonreentrant
def propose_update_with_signature(
    account: address,
    lease_id: bytes32,
    spec_hash: bytes32,
    rate_uusd: uint256,
    duration_s: uint256,
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
    @param duration_s How many seconds the lease goes on from the moment of acceptance; at least 60.
    @param seq The number of the proposal; it must be higher than that of the one before.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(
        abi_encode(
            PROPOSE_UPDATE_TYPEHASH, account, lease_id, spec_hash, rate_uusd, duration_s, seq, nonce, deadline
        )
    )
    twins._require_signed(account, content, deadline, signature)
    self._propose_update(account, lease_id, spec_hash, rate_uusd, duration_s, seq)


@external
@nonreentrant
def accept_update(lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256, seq: uint256):
    """
    @notice Accept the renter's proposal. Only the provider or its node key may call it.
    @dev All values must be those of the proposal. What is due is settled at the old price; the locked bond stays.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param rate_uusd The price in µUSD per hour.
    @param duration_s How many seconds the lease goes on from now.
    @param seq The number of the proposal.
    """
    self._accept_update(msg.sender, lease_id, spec_hash, rate_uusd, duration_s, seq)


@external
@nonreentrant
def accept_update_with_signature(
    account: address,
    lease_id: bytes32,
    spec_hash: bytes32,
    rate_uusd: uint256,
    duration_s: uint256,
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
    @param duration_s How many seconds the lease goes on from now.
    @param seq The number of the proposal.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(
        abi_encode(ACCEPT_UPDATE_TYPEHASH, account, lease_id, spec_hash, rate_uusd, duration_s, seq, nonce, deadline)
    )
    twins._require_signed(account, content, deadline, signature)
    self._accept_update(account, lease_id, spec_hash, rate_uusd, duration_s, seq)


# The parts


@internal
@view
def _require_record(lease_id: bytes32, record: awards.Record):
    order: IOrders.OrderFacts = staticcall orders.order_facts(lease_id)
    recorded: bytes32 = staticcall sisters.tasks.record_of(lease_id, convert(order.attempt, uint32))
    assert awards._record_hash(record) == recorded, "WRONG_RECORD"


@internal
@pure
def _standins(record: awards.Record, position: uint256) -> uint256:
    """How many candidates come after this one."""
    count: uint256 = 0
    for i: uint256 in range(3):
        if i > position and record.chosen[i].provider != empty(address):
            count += 1
    return count


@internal
@view
def _owes_for_resigning(lease: lease_book.Lease) -> bool:
    """
    A renter's pause binds the provider for the grace only, also if the renter resumes just before the provider leaves;
    an empty deposit's pause ends by `resume` or `close`.
    """
    by_renter: bool = lease.pause_reason == PAUSED_BY_RENTER
    grace_is_over: bool = block.timestamp > lease.paused_at + lease.empty_grace_s
    if lease.state == lease_book.PAUSED:
        assert by_renter, "PAUSED_AS_EMPTY"
        assert grace_is_over, "GRACE_NOT_OVER"
        return False
    assert lease.state == lease_book.PENDING or lease.state == lease_book.ACTIVE, "NOT_RUNNING"
    waits_again: bool = lease.state == lease_book.PENDING and lease.resumed
    return not (lease_book._notice_is_over(lease) or (waits_again and by_renter and grace_is_over))


@internal
@view
def _require_resignation(lease_id: bytes32, lease: lease_book.Lease, signature: Bytes[65]):
    self._require_signed_for(lease.provider, RESIGN_TYPEHASH, lease_id, lease.term, signature)


@internal
@view
def _require_signed_for(
    provider: address, typehash: bytes32, lease_id: bytes32, term: uint256, signature: Bytes[65]
):
    """The provider or its node key calls, or has signed this for the lease's term."""
    if sisters._acts_for(msg.sender, provider):
        return
    content: bytes32 = keccak256(abi_encode(typehash, lease_id, term))
    signer: address = typed._recover(typed._digest_of(self, content), signature)
    assert sisters._acts_for(signer, provider), "NOT_PROVIDER"


@internal
@view
def _require_down(
    lease_id: bytes32, lease: lease_book.Lease, down_since: uint256, votes: DynArray[awards.Vote, 32]
):
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert down_since >= lease.running_since, "BEFORE_TERM"
    assert down_since + lease.down_s <= block.timestamp, "NOT_DOWN_LONG_ENOUGH"
    assert block.timestamp <= down_since + lease.down_s + ATTEMPT_S, "DOWN_TOO_LONG_AGO"
    content: bytes32 = keccak256(abi_encode(DOWN_TYPEHASH, lease_id, lease.term, lease.provider, down_since))
    version: uint256 = staticcall IStakes(sisters.stakes.address).version()
    assert staticcall sisters.tasks.has_quorum(content, votes, convert(version, uint32)), "NO_QUORUM"


@internal
def _propose_update(
    caller: address, lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256, seq: uint256
):
    lease: lease_book.Lease = staticcall orders.lease_of(lease_id)
    order: IOrders.OrderFacts = staticcall orders.order_facts(lease_id)
    assert caller == order.renter, "NOT_RENTER"
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert rate_uusd > 0 and rate_uusd <= lease.max_rate_uusd, "BAD_RATE"
    assert duration_s >= DURATION_S_MIN and duration_s < DURATION_S_END, "BAD_DURATION"
    assert seq > self.update_seq[lease_id], "STALE_SEQ"
    self.update_seq[lease_id] = seq
    self.update_digest[lease_id] = self._update_digest_of(spec_hash, rate_uusd, duration_s, seq, lease.term)
    log UpdateProposed(
        lease_id=lease_id, spec_hash=spec_hash, rate_uusd=rate_uusd, duration_s=duration_s, seq=seq
    )


@internal
def _accept_update(
    caller: address, lease_id: bytes32, spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256, seq: uint256
):
    lease: lease_book.Lease = staticcall orders.lease_of(lease_id)
    assert lease.state == lease_book.ACTIVE, "NOT_ACTIVE"
    assert sisters._acts_for(caller, lease.provider), "NOT_PROVIDER"
    digest: bytes32 = self._update_digest_of(spec_hash, rate_uusd, duration_s, seq, lease.term)
    assert self.update_digest[lease_id] == digest, "NOT_PROPOSED"
    self.update_digest[lease_id] = empty(bytes32)
    log LeaseUpdated(lease_id=lease_id, spec_hash=spec_hash, rate_uusd=rate_uusd, duration_s=duration_s, seq=seq)
    extcall orders.apply_update(lease_id, spec_hash, rate_uusd, duration_s)


@internal
@pure
def _update_digest_of(
    spec_hash: bytes32, rate_uusd: uint256, duration_s: uint256, seq: uint256, term: uint256
) -> bytes32:
    return keccak256(abi_encode(spec_hash, rate_uusd, duration_s, seq, term))
