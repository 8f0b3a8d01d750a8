# pragma version 0.4.3
# pragma evm-version prague
# pragma optimize codesize
"""
@title Orders and their leases
@notice An order asks for machines under a policy, with a deposit; PROVIDER_LOOKUP opens its auction. A certificate
        places the lease with the first candidate that is not suspended and bonded; when that one fails, resigns or
        never starts, a stand-in claims the lease, with no new auction (`lease_moves`). The deposit is the cap: no lease
        can cost more. Holds no money itself.
"""

from contracts.interfaces import ILeases
from contracts.interfaces import IOrders
from contracts.interfaces import IStakes
from contracts import awards
from contracts import match_rule
from contracts.modules import lease_actions
from contracts.modules import lease_book
from contracts.modules import order_reads
from contracts.modules import order_book
from contracts.modules import placement
from contracts.modules import sisters
from contracts.modules import twins

initializes: twins
initializes: sisters
initializes: order_book
initializes: lease_book
initializes: lease_actions[
    lease_book := lease_book, order_book := order_book, sisters := sisters, twins := twins
]
initializes: order_reads[lease_book := lease_book, order_book := order_book]
initializes: placement[
    lease_book := lease_book, order_book := order_book, sisters := sisters
]
implements: IOrders
implements: ILeases
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    sisters.registry, sisters.stakes, sisters.escrow, sisters.tasks,
    order_book.order_count, order_book.order_of, order_book.opened_at, order_book.stake_version_at,
    order_reads.open_order, order_reads.order_facts,
    lease_book.lease_of,
    lease_actions.confirm_start, lease_actions.confirm_start_with_signature,
    lease_actions.pause, lease_actions.pause_with_signature,
    lease_actions.resume, lease_actions.resume_with_signature,
    lease_actions.give_notice, lease_actions.give_notice_with_signature,
    lease_actions.close, lease_actions.close_with_signature, lease_actions.on_empty,
    placement.moves, placement.wire, placement.vacate, placement.place, placement.apply_update,
)

event PROVIDER_LOOKUP:
    order_id: indexed(bytes32)
    attempt: indexed(uint256)
    renter: indexed(address)
    policy: match_rule.Policy
    spec_hash: bytes32
    stake_version: uint256
    snapshot_epoch: uint256
    expires_at: uint256
    max_attempts: uint256

event AttemptExpired:
    order_id: indexed(bytes32)
    attempt: indexed(uint256)
    final: bool

event OrderCancelled:
    order_id: indexed(bytes32)

MIN_DEPOSIT_S: public(constant(uint256)) = 600  # of the highest price
ORDER_LIFE_S_MAX: constant(uint256) = 30 * 86_400
ATTEMPTS_MAX: constant(uint256) = 16
HOUR_S: constant(uint256) = 3_600

NO_QUORUM: constant(uint256) = 98  # why an order is unmatched
NONE_ELIGIBLE: constant(uint256) = 97
NO_PROVIDER: constant(uint256) = 5  # why a lease is closed

CREATE_TYPEHASH: constant(bytes32) = keccak256(
    "CreateOrder(address renter,bytes32 policyHash,bytes32 specHash,uint256 deposit,uint256 expiresAt,uint256 maxAttempts,uint256 nonce,uint256 deadline)"
)
CANCEL_TYPEHASH: constant(bytes32) = keccak256(
    "CancelOrder(address renter,bytes32 orderId,uint256 nonce,uint256 deadline)"
)
REOPEN_TYPEHASH: constant(bytes32) = keccak256("Reopen(address renter,bytes32 orderId,uint256 nonce,uint256 deadline)")

ATTEMPT_S: public(immutable(uint256))


@deploy
def __init__(registry: address, stakes: address, escrow: address, tasks: address, token: address):
    """
    @notice Set the contracts that this one works with, for good.
    @param registry The provider registry.
    @param stakes The stake registry.
    @param escrow The escrow.
    @param tasks The task manager.
    @param token The ERC-20 of this deployment, with six decimals.
    """
    sisters.__init__(registry, stakes, escrow, tasks)
    ATTEMPT_S = staticcall sisters.stakes.ATTEMPT_S()
    placement.__init__(token)


# The renter's auction


@external
@nonreentrant
def create_order(
    policy: match_rule.Policy, spec_hash: bytes32, deposit: uint256, expires_at: uint256, max_attempts: uint256
) -> bytes32:
    """
    @notice Order machines: take the deposit and open the first auction.
    @dev The caller must have approved the escrow for what it is not owed there.
    @param policy The terms of the order. Only its hash is stored: a later call that needs the policy passes it again.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param deposit The deposit in µUSD: the most that the lease can cost.
    @param expires_at The Unix second after which the order gets no new auction; at most 30 days ahead.
    @param max_attempts How often the auction may be opened again if it finds no provider.
    @return The id of the order, and of its lease.
    """
    return self._create(msg.sender, policy, spec_hash, deposit, expires_at, max_attempts)


@external
@nonreentrant
def create_order_with_signature(
    renter: address,
    policy: match_rule.Policy,
    spec_hash: bytes32,
    deposit: uint256,
    expires_at: uint256,
    max_attempts: uint256,
    deadline: uint256,
    signature: Bytes[65],
) -> bytes32:
    """
    @notice `create_order` as a meta-transaction: the renter signs it, a relayer sends it and pays the gas.
    @param renter The account that orders and signs.
    @param policy The terms of the order. Only its hash is stored: a later call that needs the policy passes it again.
    @param spec_hash Hash of the specification of what is to be deployed. The specification itself stays off chain.
    @param deposit The deposit in µUSD: the most that the lease can cost.
    @param expires_at The Unix second after which the order gets no new auction; at most 30 days ahead.
    @param max_attempts How often the auction may be opened again if it finds no provider.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    @return The id of the order, and of its lease.
    """
    nonce: uint256 = twins._next_nonce(renter)
    policy_hash: bytes32 = match_rule._policy_hash(policy)
    content: bytes32 = keccak256(
        abi_encode(
            CREATE_TYPEHASH, renter, policy_hash, spec_hash, deposit, expires_at, max_attempts, nonce, deadline
        )
    )
    twins._require_signed(renter, content, deadline, signature)
    return self._create(renter, policy, spec_hash, deposit, expires_at, max_attempts)


@external
@nonreentrant
def reopen(order_id: bytes32, policy: match_rule.Policy):
    """
    @notice Open a new auction for an order without a provider. Anyone may call it as often as the renter allowed;
            beyond that only the renter.
    @dev The deposit must be what a new order needs: a lease that lost its provider may have used it up.
    @param order_id The order.
    @param policy The policy of the order, unchanged.
    """
    self._reopen(msg.sender, order_id, policy)


@external
@nonreentrant
def reopen_with_signature(
    renter: address, order_id: bytes32, policy: match_rule.Policy, deadline: uint256, signature: Bytes[65]
):
    """
    @notice `reopen` as a meta-transaction: the renter signs it, a relayer sends it and pays the gas.
    @param renter The account that ordered and signs.
    @param order_id The order.
    @param policy The policy of the order, unchanged.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    lease_actions._require_twin(REOPEN_TYPEHASH, renter, order_id, deadline, signature)
    self._reopen(renter, order_id, policy)


@external
@nonreentrant
def expire_attempt(order_id: bytes32):
    """
    @notice End an auction that brought no certificate in time, a vacant lease that no stand-in claimed in time, or an
            order that has expired. Anyone may call it.
    @dev An order expires at its time, or after its last attempt if no provider ever had its lease; the deposit is then
         owed to the renter.
    @param order_id The order.
    """
    order: order_book.Order = order_book._load(order_id)
    lease: lease_book.Lease = lease_book._load(order_id)
    vacant: bool = order.state == order_book.MATCHED and lease.state == lease_book.VACANT
    used_up: bool = lease.term == 0 and order.attempt >= order.attempts_max
    final: bool = not vacant and (used_up or block.timestamp > order.expires_at)
    if vacant:
        assert block.timestamp > lease.confirm_by, "STAND_INS_HAVE_TIME"
    elif order.state == order_book.OPEN:
        assert block.timestamp > order_book._opened_at(order_id, order.attempt) + ATTEMPT_S, "ATTEMPT_NOT_OVER"
    else:
        assert order.state == order_book.UNMATCHED, "NOT_OPEN"
        assert final, "ORDER_NOT_EXPIRED"
    log AttemptExpired(order_id=order_id, attempt=order.attempt, final=final)
    if vacant:
        placement._unplace(order_id, lease)
    elif final:
        self._finish(order_id, order, order_book.EXPIRED)
    else:
        placement._to_unmatched(order_id, order, NO_QUORUM)


@external
@nonreentrant
def cancel_order(order_id: bytes32):
    """
    @notice Cancel an order of the caller that has no provider. Its deposit is owed to the renter.
    @param order_id The order.
    """
    self._cancel(msg.sender, order_id)


@external
@nonreentrant
def cancel_order_with_signature(renter: address, order_id: bytes32, deadline: uint256, signature: Bytes[65]):
    """
    @notice `cancel_order` as a meta-transaction: the renter signs it, a relayer sends it and pays the gas.
    @param renter The account that orders and signs.
    @param order_id The order.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    lease_actions._require_twin(CANCEL_TYPEHASH, renter, order_id, deadline, signature)
    self._cancel(renter, order_id)


# Certificates


@external
@nonreentrant
def on_match(order_id: bytes32, chosen: awards.Award[3]):
    """
    @notice Place the lease with the first candidate that is not suspended and bonded. Only the task manager may call
            it.
    @param order_id The order.
    @param chosen The candidates of the certificate, best first.
    """
    assert msg.sender == sisters.tasks.address, "NOT_TASKS"
    order: order_book.Order = order_book._load(order_id)
    order.state = order_book.MATCHED
    if placement._place(order_id, chosen):
        order_book._save(order_id, order)
    else:
        placement._to_unmatched(order_id, order, placement.NONE_PLACEABLE)


@external
@nonreentrant
def on_no_match(order_id: bytes32):
    """
    @notice Note that no bid was eligible. Only the task manager may call it.
    @param order_id The order.
    """
    assert msg.sender == sisters.tasks.address, "NOT_TASKS"
    placement._to_unmatched(order_id, order_book._load(order_id), NONE_ELIGIBLE)


# The parts


@internal
def _create(
    renter: address,
    policy: match_rule.Policy,
    spec_hash: bytes32,
    deposit: uint256,
    expires_at: uint256,
    max_attempts: uint256,
) -> bytes32:
    order_book._require_policy(policy)
    assert expires_at > block.timestamp and expires_at <= block.timestamp + ORDER_LIFE_S_MAX, "BAD_EXPIRY"
    assert max_attempts <= ATTEMPTS_MAX, "TOO_MANY_ATTEMPTS"
    order: order_book.Order = empty(order_book.Order)
    order.renter = renter
    order.attempts_max = max_attempts
    order.expires_at = expires_at
    order.policy_hash = match_rule._policy_hash(policy)
    order.spec_hash = spec_hash
    order_id: bytes32 = order_book._new_id(renter, order.policy_hash, spec_hash)
    order_book._create(order_id, order)
    lease_book._note_terms(order_id, policy)
    self._open(order_id, order, policy)
    received: uint256 = extcall sisters.escrow.open(order_id, renter, deposit)
    self._require_deposit(received, policy)
    return order_id


@internal
@pure
def _require_deposit(deposit: uint256, policy: match_rule.Policy):
    """Whoever wins an auction is bound without being asked again, so a deposit backs each of them."""
    assert deposit >= convert(policy.max_price_uusd, uint256) * MIN_DEPOSIT_S // HOUR_S, "DEPOSIT_TOO_SMALL"


@internal
def _open(order_id: bytes32, order: order_book.Order, policy: match_rule.Policy):
    opened: order_book.Order = order
    opened.state = order_book.OPEN
    opened.stake_version = staticcall IStakes(sisters.stakes.address).version()
    opened.snapshot_epoch = convert(staticcall sisters.tasks.latest_epoch(), uint256)
    assert opened.snapshot_epoch > 0, "NO_SNAPSHOT"
    order_book._save(order_id, opened)
    order_book._note_opening(order_id, opened.attempt, opened.stake_version)
    log PROVIDER_LOOKUP(
        order_id=order_id,
        attempt=opened.attempt,
        renter=opened.renter,
        policy=policy,
        spec_hash=opened.spec_hash,
        stake_version=opened.stake_version,
        snapshot_epoch=opened.snapshot_epoch,
        expires_at=opened.expires_at,
        max_attempts=opened.attempts_max,
    )


@internal
def _reopen(caller: address, order_id: bytes32, policy: match_rule.Policy):
    order: order_book.Order = order_book._load(order_id)
    assert order.state == order_book.UNMATCHED, "NOT_UNMATCHED"
    order.attempt += 1
    assert order.attempt <= order.attempts_max or caller == order.renter, "NO_ATTEMPT_LEFT"
    assert block.timestamp <= order.expires_at, "ORDER_EXPIRED"
    assert match_rule._policy_hash(policy) == order.policy_hash, "WRONG_POLICY"
    self._require_deposit(staticcall sisters.escrow.deposit_of(order_id), policy)
    self._open(order_id, order, policy)


@internal
def _cancel(caller: address, order_id: bytes32):
    order: order_book.Order = order_book._load(order_id)
    assert caller == order.renter, "NOT_RENTER"
    assert order.state == order_book.OPEN or order.state == order_book.UNMATCHED, "NOT_OPEN"
    log OrderCancelled(order_id=order_id)
    self._finish(order_id, order, order_book.CLOSED)


@internal
def _finish(order_id: bytes32, order: order_book.Order, state: uint256):
    """The end of an order that has no provider; a lease that lost its last one ends with it."""
    finished: order_book.Order = order
    finished.state = state
    order_book._save(order_id, finished)
    lease: lease_book.Lease = lease_book._load(order_id)
    if lease.state == lease_book.UNPLACED:
        lease_actions._end(order_id, lease, NO_PROVIDER, 0)
    else:
        extcall sisters.escrow.refund(order_id)
