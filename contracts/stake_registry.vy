# pragma version 0.4.3
# pragma evm-version prague
"""
@title Stakes of validators, bonds of providers
@notice Money comes in by deposit; it leaves after UNBOND_S, which outlasts every proof that could still take it. New
        stake weighs once it is activated, ACTIVATE_S after it came. Only the dispute contracts take money for a fault,
        only the order contract locks. Of what is taken, 10 % goes to the account that proved the fault, 40 % to the
        harmed one and the rest to insurance, so that whoever owns both still loses half.
        The network's times are set here alone. Every other contract reads them when it is created.
"""

from contracts.interfaces import IStakes
from contracts.modules import bonds
from contracts.modules import payouts
from contracts.modules import twins
from contracts.modules import validator_set
from contracts.modules import vault

initializes: twins
initializes: vault
initializes: payouts[twins := twins, vault := vault]
initializes: validator_set
initializes: bonds
implements: IStakes
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    vault.token, vault.held, vault.solvent,
    payouts.owed, payouts.withdraw, payouts.withdraw_with_signature,
    validator_set.MIN_STAKE, validator_set.version, validator_set.total_at, validator_set.operators,
    validator_set.validator_of, validator_set.url_of, validator_set.operator_of, validator_set.history_length,
    validator_set.history_at, validator_set.weight_of, validator_set.all_operators, validator_set.made_at,
    validator_set.was_current,
    bonds.bond_of, bonds.free_bond,
)

event Wired:
    orders: indexed(address)
    disputes: address[2]

CLAIMANT_BPS: constant(uint256) = 1_000
HARMED_BPS: constant(uint256) = 4_000
BPS: constant(uint256) = 10_000
UNBOND_BOND_TYPEHASH: constant(bytes32) = keccak256(
    "UnbondBond(address provider,uint256 amount,uint256 nonce,uint256 deadline)"
)
DEPOSIT_BOND_TYPEHASH: constant(bytes32) = keccak256(
    "DepositBond(address payer,address provider,uint256 amount,uint256 nonce,uint256 deadline)"
)

ATTEMPT_S: public(immutable(uint256))
CHALLENGE_S: public(immutable(uint256))
UNBOND_S: public(immutable(uint256))
ACTIVATE_S: public(immutable(uint256))
deployer: immutable(address)
insurance: public(immutable(address))

orders: public(address)
disputes: public(address[2])  # one for votes, one for books and bids


@deploy
def __init__(
    token: address,
    insurance_: address,
    min_stake: uint256,
    attempt_s: uint256,
    challenge_s: uint256,
    unbond_s: uint256,
    activate_s: uint256,
):
    """
    @notice Set the token, the least stake and the times, all for good.
    @param token The ERC-20 of this deployment, with six decimals.
    @param insurance_ The account that receives the rest of what is taken for a fault.
    @param min_stake The least stake of a validator, in µUSD.
    @param attempt_s How long an auction may last, in seconds.
    @param challenge_s How many seconds after an auction a fault can be proven.
    @param unbond_s How many seconds stakes and bonds wait before they leave: longer than any proof can take.
    @param activate_s How many seconds new stake waits before it can weigh.
    """
    vault.__init__(token)
    validator_set.__init__(min_stake)
    assert insurance_ != empty(address), "ZERO_ADDRESS"
    assert attempt_s > 0 and challenge_s > 0 and activate_s > 0, "ZERO_TIME"
    assert unbond_s >= 2 * (attempt_s + challenge_s), "UNBONDING_TOO_SHORT"
    ATTEMPT_S = attempt_s
    CHALLENGE_S = challenge_s
    UNBOND_S = unbond_s
    ACTIVATE_S = activate_s
    insurance = insurance_
    deployer = msg.sender


@external
def wire(orders: address, disputes: address[2]):
    """
    @notice Name the contracts that may lock bonds and slash. The deployer does this once; it is never changed again.
    @param orders The order contract, which locks, releases and takes bonds.
    @param disputes The two dispute contracts, which slash.
    """
    assert msg.sender == deployer, "NOT_DEPLOYER"
    assert self.orders == empty(address), "ALREADY_WIRED"
    assert orders != empty(address) and empty(address) not in disputes, "ZERO_ADDRESS"
    self.orders = orders
    self.disputes = disputes
    log Wired(orders=orders, disputes=disputes)


# Validators


@external
@nonreentrant
def join(vote_key: address, vote_key_signature: Bytes[65], url: String[200], amount: uint256):
    """
    @notice Become a validator, with a stake from the caller's allowance. It is pending: `activate` gives it weight.
    @param vote_key The key that signs votes.
    @param vote_key_signature The key's own EIP-712 signature that it votes for this operator.
    @param url Where other participants reach the validator.
    @param amount The stake in µUSD; at least MIN_STAKE.
    """
    received: uint256 = vault._receive(msg.sender, amount)
    validator_set._join(msg.sender, vote_key, vote_key_signature, url, received)


@external
@nonreentrant
def deposit(amount: uint256):
    """
    @notice Add to the caller's pending stake, from its allowance. A jailed validator cannot.
    @dev The time until it can be activated starts anew for all that is pending.
    @param amount How much, in µUSD.
    """
    received: uint256 = vault._receive(msg.sender, amount)
    validator_set._add_pending(msg.sender, received)


@external
def activate(operator: address):
    """
    @notice Give an operator's pending stake its weight, ACTIVATE_S after the last of it came. Anyone may call it.
    @dev In a full set it takes the place of the lowest stake if it is more than 11/10 of that, and otherwise stays
         pending. Who is replaced loses the place and its weight, not the stake, which is pending again.
    @param operator The operator.
    """
    validator_set._activate(operator, ACTIVATE_S)


@external
def set_vote_key(vote_key: address, vote_key_signature: Bytes[65]):
    """
    @notice Replace the caller's vote key. The old key has no weight from the new stake version on.
    @param vote_key The key that signs votes.
    @param vote_key_signature The key's own EIP-712 signature that it votes for this operator.
    """
    validator_set._set_vote_key(msg.sender, vote_key, vote_key_signature)


@external
def set_url(url: String[200]):
    """
    @notice Change where the caller's validator is reached.
    @param url Where other participants reach the validator.
    """
    validator_set._set_url(msg.sender, url)


@external
def request_unbond(amount: uint256):
    """
    @notice Take stake out: its weight falls at once, the money is free after UNBOND_S and can be slashed until then.
    @dev Pending stake leaves first. A second request restarts the delay for all of it.
    @param amount How much, in µUSD.
    """
    validator_set._start_unbonding(msg.sender, amount, block.timestamp + UNBOND_S)


@external
def finish_unbond():
    """
    @notice Make the caller's unbonded stake payable, once its delay is over.
    """
    payouts._owe_openly(msg.sender, validator_set._finish_unbonding(msg.sender))


# Providers


@external
@nonreentrant
def deposit_bond(provider: address, amount: uint256):
    """
    @notice Add to a provider's bond, from the caller's allowance. Anyone may bond any provider.
    @param provider The provider.
    @param amount How much, in µUSD.
    """
    self._deposit_bond(msg.sender, provider, amount)


@external
@nonreentrant
def deposit_bond_with_signature(
    payer: address, provider: address, amount: uint256, deadline: uint256, signature: Bytes[65]
):
    """
    @notice `deposit_bond` as a meta-transaction: the payer signs it, a relayer sends it and pays the gas.
    @param payer The account that pays and signs. It must have approved this contract for the amount.
    @param provider The provider.
    @param amount How much, in µUSD.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(payer)
    content: bytes32 = keccak256(abi_encode(DEPOSIT_BOND_TYPEHASH, payer, provider, amount, nonce, deadline))
    twins._require_signed(payer, content, deadline, signature)
    self._deposit_bond(payer, provider, amount)


@external
def unbond_bond(amount: uint256):
    """
    @notice Take free bond of the caller out. The money is free after UNBOND_S.
    @dev A second request restarts the delay for all of it.
    @param amount How much, in µUSD.
    """
    bonds._start_unbonding(msg.sender, amount, block.timestamp + UNBOND_S)


@external
def unbond_bond_with_signature(provider: address, amount: uint256, deadline: uint256, signature: Bytes[65]):
    """
    @notice `unbond_bond` as a meta-transaction: the provider signs it, a relayer sends it and pays the gas.
    @param provider The provider, who signs.
    @param amount How much, in µUSD.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(provider)
    content: bytes32 = keccak256(abi_encode(UNBOND_BOND_TYPEHASH, provider, amount, nonce, deadline))
    twins._require_signed(provider, content, deadline, signature)
    bonds._start_unbonding(provider, amount, block.timestamp + UNBOND_S)


@external
def finish_unbond_bond(provider: address):
    """
    @notice Make a provider's unbonded bond payable, once its delay is over. Anyone may call it.
    @param provider The provider.
    """
    payouts._owe_openly(provider, bonds._finish_unbonding(provider))


# For the order contract


@external
def lock(provider: address, wanted: uint256, least: uint256) -> uint256:
    """
    @notice Lock a part of a provider's bond while it has a lease. Only the order contract may call it.
    @dev Free bond is used first, then bond that is unbonding: unbonding does not free a bidder from its bid.
    @param provider The provider.
    @param wanted How much to lock if there is as much, in µUSD.
    @param least How much there must be, in µUSD. With less, nothing is locked.
    @return How much was locked; 0 if there was less than `least`.
    """
    assert msg.sender == self.orders, "NOT_ORDERS"
    return bonds._lock(provider, wanted, least)


@external
def release(provider: address, amount: uint256):
    """
    @notice Unlock bond after a lease. Only the order contract may call it.
    @param provider The provider.
    @param amount How much, in µUSD.
    """
    assert msg.sender == self.orders, "NOT_ORDERS"
    bonds._release(provider, amount)


@external
@nonreentrant
def take_bond(provider: address, amount: uint256, receiver: address):
    """
    @notice Send locked bond away as compensation of a renter. Only the order contract may call it.
    @param provider The provider.
    @param amount How much, in µUSD.
    @param receiver The escrow.
    """
    assert msg.sender == self.orders, "NOT_ORDERS"
    bonds._take_locked(provider, amount)
    vault._send(receiver, amount)


# For the dispute contract


@external
def forfeit_bond(provider: address, amount: uint256, claimant: address, harmed: address) -> uint256:
    """
    @notice Take bond that is not locked, for a bidder's fault. Only the dispute contracts may call it.
    @dev It is shared as a slash is: 10 % to the claimant, 40 % to the harmed account, the rest to insurance.
    @param provider The provider.
    @param amount How much at most, in µUSD.
    @param claimant The account that proved the fault.
    @param harmed The renter.
    @return How much there was to take.
    """
    assert msg.sender in self.disputes, "NOT_DISPUTE"
    taken: uint256 = bonds._take_unlocked(provider, amount)
    self._share(taken, claimant, harmed)
    return taken


@external
def slash(
    vote_key: address, version: uint256, history_index: uint256, bps: uint256, challenger: address, harmed: address
) -> uint256:
    """
    @notice Take a share of a validator's stake for a proven fault, and jail it. Only the dispute contracts may call it.
    @dev 10 % is owed to the challenger, 40 % to the harmed account, the rest to the insurance account.
    @param vote_key The key that signed the faulty message.
    @param version A stake version at which the key had weight; the share is taken of that weight.
    @param history_index Where the signer's weight at that version is in its history.
    @param bps The share, in hundredths of a percent.
    @param challenger The account that proved the fault.
    @param harmed The account that suffered from it; empty if there is none.
    @return How much was taken.
    """
    assert msg.sender in self.disputes, "NOT_DISPUTE"
    assert bps <= BPS, "TOO_MUCH"
    amount: uint256 = validator_set._cut(vote_key, version, history_index, bps)
    self._share(amount, challenger, harmed)
    return amount


@internal
def _share(amount: uint256, claimant: address, harmed: address):
    bounty: uint256 = amount * CLAIMANT_BPS // BPS
    damages: uint256 = amount * HARMED_BPS // BPS
    payouts._owe_openly(claimant, bounty)
    payouts._owe_openly(insurance if harmed == empty(address) else harmed, damages)
    payouts._owe_openly(insurance, amount - bounty - damages)


@internal
def _deposit_bond(payer: address, provider: address, amount: uint256):
    assert provider != empty(address), "ZERO_ADDRESS"
    bonds._add(provider, vault._receive(payer, amount))
