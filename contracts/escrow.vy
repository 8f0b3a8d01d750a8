# pragma version 0.4.3
# pragma evm-version prague
"""
@title Escrow: a renter's deposit streams to a provider, second by second
@notice Pay is rate · seconds // 3600, rounded down; the remainder stays with the lease. Anyone may settle; payouts are
        pulled by the account that is owed. A stream stops by itself when the deposit or the agreed time is used up:
        nothing can be overdrawn. Only the order contract opens, starts, stops and refunds. A deposit is taken first
        from what its payer is owed here, so that a refund pays for the next order. The fee is a share of pay, fixed at
        deployment, one for all.
"""

from contracts.interfaces import IEscrow
from contracts.interfaces import ILeases
from contracts.modules import payouts
from contracts.modules import streams
from contracts.modules import twins
from contracts.modules import vault

initializes: twins
initializes: vault
initializes: streams
initializes: payouts[twins := twins, vault := vault]
implements: IEscrow
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    vault.token, vault.held, vault.solvent,
    streams.deposit_of, streams.stream_of, streams.accrued,
    payouts.owed, payouts.withdraw, payouts.withdraw_with_signature,
)

event DepositChanged:
    lease_id: indexed(bytes32)
    payer: indexed(address)
    amount: uint256
    from_owed: uint256  # the part of it that the payer was owed here
    deposit: uint256

event Compensated:
    lease_id: indexed(bytes32)
    amount: uint256
    deposit: uint256

event StreamStarted:
    lease_id: indexed(bytes32)
    payee: indexed(address)
    rate_uusd: uint256
    end_at: uint256

event Settled:
    lease_id: indexed(bytes32)
    payee: indexed(address)
    amount: uint256
    fee: uint256
    deposit: uint256

event StreamStopped:
    lease_id: indexed(bytes32)

event Refunded:
    lease_id: indexed(bytes32)
    payer: indexed(address)
    amount: uint256

event Wired:
    orders: indexed(address)

BPS: constant(uint256) = 10_000
FEE_BPS_MAX: constant(uint256) = 1_000
TOP_UP_TYPEHASH: constant(bytes32) = keccak256(
    "TopUp(address payer,bytes32 leaseId,uint256 amount,uint256 nonce,uint256 deadline)"
)

FEE_BPS: public(immutable(uint256))
treasury: public(immutable(address))
deployer: immutable(address)

orders: public(ILeases)


@deploy
def __init__(token: address, treasury_: address, fee_bps: uint256):
    """
    @notice Set the token and the fee, both for good.
    @param token The ERC-20 of this deployment, with six decimals.
    @param treasury_ The account that receives the fee.
    @param fee_bps The network's share of a provider's pay, in hundredths of a percent; at most 10 %.
    """
    vault.__init__(token)
    assert treasury_ != empty(address), "ZERO_ADDRESS"
    assert fee_bps <= FEE_BPS_MAX, "FEE_TOO_HIGH"
    FEE_BPS = fee_bps
    treasury = treasury_
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
    self.orders = ILeases(orders)
    log Wired(orders=orders)


# For everybody


@external
@nonreentrant
def settle(lease_id: bytes32):
    """
    @notice Write down what a provider has earned since the last settlement, and the fee. Anyone may call it.
    @dev If the deposit is used up, the stream stops and the order contract pauses the lease.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    stream: streams.Stream = streams._load(lease_id)
    assert stream.rate_uusd > 0, "NOT_RUNNING"
    stream = self._settled(lease_id, stream, block.timestamp)
    if stream.deposit > 0:
        streams._save(lease_id, stream)
        return
    self._halt(lease_id, stream)
    extcall self.orders.on_empty(lease_id)


@external
@nonreentrant
def top_up(lease_id: bytes32, amount: uint256):
    """
    @notice Add to the deposit of a lease, from what the caller is owed here, then from its allowance.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param amount How much, in µUSD.
    """
    self._top_up(msg.sender, lease_id, amount)


@external
@nonreentrant
def top_up_with_signature(
    payer: address, lease_id: bytes32, amount: uint256, deadline: uint256, signature: Bytes[65]
):
    """
    @notice `top_up` as a meta-transaction: the payer signs it, a relayer sends it and pays the gas.
    @param payer The account that pays and signs. It must have approved this contract for what it is not owed here.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param amount How much, in µUSD.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(payer)
    content: bytes32 = keccak256(abi_encode(TOP_UP_TYPEHASH, payer, lease_id, amount, nonce, deadline))
    twins._require_signed(payer, content, deadline, signature)
    self._top_up(payer, lease_id, amount)


# For the order contract


@external
@nonreentrant
def open(lease_id: bytes32, payer: address, amount: uint256) -> uint256:
    """
    @notice Take the first deposit of a new order. Only the order contract may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param payer The renter. What is left in the end is owed to it.
    @param amount How much to take, in µUSD: from what the payer is owed here, then from its allowance.
    @return How much arrived. A token may take a fee on the way.
    """
    self._require_orders()
    assert streams.parties[lease_id] == empty(address), "ALREADY_OPEN"
    streams.parties[lease_id] = payer
    return self._deposit(payer, lease_id, amount)


@external
@nonreentrant
def start(lease_id: bytes32, payee: address, rate_uusd: uint256, end_at: uint256):
    """
    @notice Start to pay a provider by the second. Only the order contract may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param payee The provider.
    @param rate_uusd The price in µUSD per hour.
    @param end_at The Unix second at which the agreed time is over; the stream ends there by itself.
    """
    self._require_orders()
    stream: streams.Stream = streams._load(lease_id)
    assert stream.rate_uusd == 0, "ALREADY_RUNNING"
    assert rate_uusd > 0, "ZERO_RATE"
    stream.payee = payee
    stream.rate_uusd = rate_uusd
    stream.since = block.timestamp
    stream.end_at = end_at
    stream.paid = 0
    streams._save(lease_id, stream)
    log StreamStarted(lease_id=lease_id, payee=payee, rate_uusd=rate_uusd, end_at=end_at)


@external
@nonreentrant
def stop(lease_id: bytes32, at: uint256):
    """
    @notice Pay up to a moment and stop the stream. Only the order contract may call it.
    @dev The moment may be in the past. What was settled beyond it is not taken back. Without a stream it does nothing.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param at The Unix second up to which the provider is paid.
    """
    self._require_orders()
    stream: streams.Stream = streams._load(lease_id)
    if stream.rate_uusd > 0:
        self._halt(lease_id, self._settled(lease_id, stream, at))


@external
@nonreentrant
def change_rate(lease_id: bytes32, rate_uusd: uint256, end_at: uint256):
    """
    @notice Settle at the old price and go on with a new price and end. Only the order contract may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param rate_uusd The price in µUSD per hour.
    @param end_at The Unix second at which the agreed time is over; the stream ends there by itself.
    """
    self._require_orders()
    stream: streams.Stream = streams._load(lease_id)
    assert stream.rate_uusd > 0, "NOT_RUNNING"
    assert rate_uusd > 0, "ZERO_RATE"
    stream = self._settled(lease_id, stream, block.timestamp)
    assert stream.deposit > 0, "DEPOSIT_EMPTY"
    stream.rate_uusd = rate_uusd
    stream.since = block.timestamp
    stream.end_at = end_at
    stream.paid = 0
    streams._save(lease_id, stream)
    log StreamStarted(lease_id=lease_id, payee=stream.payee, rate_uusd=rate_uusd, end_at=end_at)


@external
@nonreentrant
def pay(lease_id: bytes32, payee: address, amount: uint256):
    """
    @notice Pay an amount from the deposit, less the fee: what a renter owes for a start that it called off. Only the
            order contract may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param payee The provider.
    @param amount How much, in µUSD. If the deposit has less, all of it.
    """
    self._require_orders()
    left: uint256 = streams.deposit_of[lease_id]
    paid: uint256 = min(amount, left)
    streams.deposit_of[lease_id] = left - paid
    self._owe_pay(lease_id, payee, paid, paid * FEE_BPS // BPS, left - paid)


@external
@nonreentrant
def credit(lease_id: bytes32, amount: uint256):
    """
    @notice Add compensation from a provider's bond to the deposit. Only the order contract may call it.
    @dev The stake registry has sent the money in the same transaction.
    @param lease_id The lease. It has the id of the order that it comes from.
    @param amount How much, in µUSD.
    """
    self._require_orders()
    vault._acknowledge(amount)
    streams.deposit_of[lease_id] += amount
    log Compensated(lease_id=lease_id, amount=amount, deposit=streams.deposit_of[lease_id])


@external
@nonreentrant
def refund(lease_id: bytes32):
    """
    @notice End a lease: what is left of its deposit is owed to the payer. Only the order contract may call it.
    @param lease_id The lease. It has the id of the order that it comes from.
    """
    self._require_orders()
    stream: streams.Stream = streams._load(lease_id)
    assert stream.rate_uusd == 0, "STILL_RUNNING"
    streams.deposit_of[lease_id] = 0
    streams.parties[lease_id] = empty(address)
    payouts._owe(stream.payer, stream.deposit)
    log Refunded(lease_id=lease_id, payer=stream.payer, amount=stream.deposit)


@internal
@view
def _require_orders():
    assert msg.sender == self.orders.address, "NOT_ORDERS"


@internal
def _top_up(payer: address, lease_id: bytes32, amount: uint256):
    assert streams.parties[lease_id] != empty(address), "NO_SUCH_LEASE"
    self._deposit(payer, lease_id, amount)


@internal
def _deposit(payer: address, lease_id: bytes32, amount: uint256) -> uint256:
    from_owed: uint256 = payouts._spend(payer, amount)
    received: uint256 = from_owed
    if from_owed == 0 or from_owed < amount:
        received += vault._receive(payer, amount - from_owed)
    streams.deposit_of[lease_id] += received
    log DepositChanged(
        lease_id=lease_id,
        payer=payer,
        amount=received,
        from_owed=from_owed,
        deposit=streams.deposit_of[lease_id],
    )
    return received


@internal
def _settled(lease_id: bytes32, stream: streams.Stream, at: uint256) -> streams.Stream:
    amount: uint256 = streams._due(stream, at)
    after: streams.Stream = stream
    after.paid += amount
    after.deposit -= amount
    # From the running sum, so that settling often does not round the fee away.
    fee: uint256 = after.paid * FEE_BPS // BPS - stream.paid * FEE_BPS // BPS
    self._owe_pay(lease_id, stream.payee, amount, fee, after.deposit)
    return after


@internal
def _owe_pay(lease_id: bytes32, payee: address, amount: uint256, fee: uint256, deposit: uint256):
    payouts._owe(payee, amount - fee)
    payouts._owe(treasury, fee)
    log Settled(lease_id=lease_id, payee=payee, amount=amount, fee=fee, deposit=deposit)


@internal
def _halt(lease_id: bytes32, stream: streams.Stream):
    stopped: streams.Stream = stream
    stopped.payee = empty(address)
    stopped.rate_uusd = 0
    stopped.since = 0
    stopped.end_at = 0
    stopped.paid = 0
    streams._save(lease_id, stopped)
    log StreamStopped(lease_id=lease_id)
