# pragma version 0.4.3
# pragma evm-version prague
"""
@title Credits in, earnings and era rewards out
@notice A pool holds deposits; the operator posts roots of cumulative amounts, (account, earned, spent), and each
        account is paid what it earned beyond what it was paid. Roots of all epochs stay good for claims, so a later
        root lowers no amount; and no root promises more than the pool holds. A root counts ROOT_DELAY_S after it was
        posted, and until then a second key, the guardian's, can strike it. So neither key alone takes the pool. A
        depositor leaves without the operator's help: request an exit, wait, exit with all that was not shown to be
        spent.
"""

from contracts.interfaces import IStakeRegistry
from contracts.modules import guardians
from contracts.modules import roots
from contracts.modules import twins
from contracts.modules import vault

initializes: guardians
initializes: roots
initializes: twins
initializes: vault
exports: (
    twins.nonces, twins.DOMAIN_SEPARATOR,
    vault.token, vault.held, vault.solvent,
    guardians.guardian, guardians.guardian_next, guardians.propose_guardian, guardians.accept_guardian,
    roots.ROOT_DELAY_S, roots.root_at, roots.operator, roots.operator_next, roots.propose_operator, roots.accept_operator,
)

struct Pool:
    funded: uint256  # came in, less what depositors took back
    promised: uint256  # the sum of `earned` in the last root, ripe or not
    paid: uint256  # paid <= promised <= funded, always
    epoch: uint256

struct Exit:
    amount: uint256
    ready_at: uint256

event Deposited:
    account: indexed(address)
    payer: indexed(address)
    amount: uint256

event PoolFunded:
    pool: indexed(uint256)
    payer: indexed(address)
    amount: uint256

event RootPosted:
    pool: indexed(uint256)
    epoch: indexed(uint256)
    root: bytes32
    count: uint256
    promised: uint256
    ripe_at: uint256

event RootStruck:
    pool: indexed(uint256)
    epoch: indexed(uint256)

event PoolStopped:
    pool: indexed(uint256)

event PoolLifted:
    pool: indexed(uint256)

event Claimed:
    pool: indexed(uint256)
    account: indexed(address)
    amount: uint256
    earned: uint256
    to_bond: bool

event SpentRecorded:
    account: indexed(address)
    spent: uint256

event ExitRequested:
    account: indexed(address)
    amount: uint256
    ready_at: uint256

event Exited:
    account: indexed(address)
    amount: uint256

CREDITS: public(constant(uint256)) = 0  # deposits of users; pays for inference
REWARDS: public(constant(uint256)) = 1  # era rewards, funded by gifts
POOLS: constant(uint256) = 2
DEPOSIT_TYPEHASH: constant(bytes32) = keccak256(
    "Deposit(address payer,address account,uint256 amount,uint256 nonce,uint256 deadline)"
)
CLAIM_TO_BOND_TYPEHASH: constant(bytes32) = keccak256(
    "ClaimToBond(address account,uint256 pool,uint256 earned,uint256 nonce,uint256 deadline)"
)
REQUEST_EXIT_TYPEHASH: constant(bytes32) = keccak256(
    "RequestExit(address account,uint256 amount,uint256 nonce,uint256 deadline)"
)

stakes: public(immutable(IStakeRegistry))
EXIT_S: public(immutable(uint256))  # how long anyone may show what an account that leaves has spent

pools: public(HashMap[uint256, Pool])
promised_before: HashMap[uint256, uint256]  # by the root before the last one
stopped: public(HashMap[uint256, bool])
claimed: public(HashMap[uint256, HashMap[address, uint256]])
deposited: public(HashMap[address, uint256])
spent: public(HashMap[address, uint256])
exited: public(HashMap[address, uint256])
exit_of: public(HashMap[address, Exit])


@deploy
def __init__(
    token: address,
    stakes_: address,
    operator: address,
    guardian: address,
    root_delay_s: uint256,
    exit_s: uint256,
    book_s: uint256,
):
    """
    @notice Set the token, the two keys and the delays.
    @param token The ERC-20 of this deployment, with six decimals.
    @param stakes_ The stake registry.
    @param operator The account that posts roots.
    @param guardian The account that strikes roots and stops a pool. Not the operator.
    @param root_delay_s How many seconds a root waits before it counts.
    @param exit_s How many seconds an exit waits, so that spending can be shown: long enough for a root under delay and
                  one more.
    @param book_s How many seconds a transaction may take until it is included, at most.
    """
    vault.__init__(token)
    assert stakes_ != empty(address), "ZERO_ADDRESS"
    assert operator != guardian, "SAME_KEY"
    assert exit_s >= 2 * root_delay_s + book_s, "EXIT_TOO_SHORT"
    guardians.__init__(guardian)
    roots.__init__(operator, root_delay_s)
    stakes = IStakeRegistry(stakes_)
    EXIT_S = exit_s


# Money in


@external
@nonreentrant
def deposit(account: address, amount: uint256):
    """
    @notice Buy credits for an account, from the caller's allowance.
    @param account The account that gets the credits.
    @param amount How much, in µUSD.
    """
    self._deposit(msg.sender, account, amount)


@external
@nonreentrant
def deposit_with_signature(payer: address, account: address, amount: uint256, deadline: uint256, signature: Bytes[65]):
    """
    @notice `deposit` as a meta-transaction: the payer signs it, a relayer sends it and pays the gas.
    @param payer The account that pays and signs. It must have approved this contract for the amount.
    @param account The account that gets the credits.
    @param amount How much, in µUSD.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(payer)
    content: bytes32 = keccak256(abi_encode(DEPOSIT_TYPEHASH, payer, account, amount, nonce, deadline))
    twins._require_signed(payer, content, deadline, signature)
    self._deposit(payer, account, amount)


@external
@nonreentrant
def fund(pool: uint256, amount: uint256):
    """
    @notice Give money to a pool. It backs promises and can never be taken back.
    @param pool 0 for credits, 1 for era rewards.
    @param amount How much, in µUSD.
    """
    assert pool < POOLS, "UNKNOWN_POOL"
    received: uint256 = vault._receive(msg.sender, amount)
    self.pools[pool].funded += received
    log PoolFunded(pool=pool, payer=msg.sender, amount=received)


# Promises


@external
def post_root(pool: uint256, epoch: uint256, root: bytes32, count: uint256, promised: uint256):
    """
    @notice Post the Merkle root of what all accounts earned and spent in all. Only the operator may call it.
    @dev It counts ROOT_DELAY_S later, and until then no other root of the pool can be posted. A root never lowers the
         sum of the one before, and never promises more than the pool holds.
    @param pool 0 for credits, 1 for era rewards.
    @param epoch The number of the root: one more than the last.
    @param root The Merkle root.
    @param count The number of leaves.
    @param promised The sum of all `earned` in it, in µUSD.
    """
    roots._require_operator()
    assert pool < POOLS, "UNKNOWN_POOL"
    assert not self.stopped[pool], "POOL_STOPPED"
    before: Pool = self.pools[pool]
    assert epoch == before.epoch + 1, "WRONG_EPOCH"
    assert roots._is_ripe(pool, before.epoch), "ROOT_UNDER_DELAY"
    assert promised >= before.promised, "LOWERS_AMOUNTS"
    assert promised <= before.funded, "NOT_FUNDED"
    self.promised_before[pool] = before.promised
    self.pools[pool].epoch = epoch
    self.pools[pool].promised = promised
    ripe_at: uint256 = roots._keep(pool, epoch, root, count)
    log RootPosted(pool=pool, epoch=epoch, root=root, count=count, promised=promised, ripe_at=ripe_at)


@external
def strike_root(pool: uint256, epoch: uint256):
    """
    @notice Make a root that is not ripe yet void. Only the guardian may call it.
    @dev All is as if it had never been posted: what the pool promises, and the number of the next root.
    @param pool 0 for credits, 1 for era rewards.
    @param epoch The number of the root: the last one.
    """
    guardians._require_guardian()
    assert epoch > 0 and epoch == self.pools[pool].epoch, "WRONG_EPOCH"
    assert not roots._is_ripe(pool, epoch), "ROOT_IS_RIPE"
    self.pools[pool].epoch = epoch - 1
    self.pools[pool].promised = self.promised_before[pool]
    roots._delete(pool, epoch)
    log RootStruck(pool=pool, epoch=epoch)


@external
def stop(pool: uint256):
    """
    @notice Refuse further roots of a pool. Only the guardian may call it. Ripe roots and exits are not affected.
    @param pool 0 for credits, 1 for era rewards.
    """
    guardians._require_guardian()
    assert pool < POOLS, "UNKNOWN_POOL"
    assert not self.stopped[pool], "POOL_STOPPED"
    self.stopped[pool] = True
    log PoolStopped(pool=pool)


@external
def lift(pool: uint256):
    """
    @notice Take roots of a stopped pool again. Only the guardian may call it.
    @param pool 0 for credits, 1 for era rewards.
    """
    guardians._require_guardian()
    assert self.stopped[pool], "NOT_STOPPED"
    self.stopped[pool] = False
    log PoolLifted(pool=pool)


# Claims. Anyone may send one: the money goes to the account that earned it, so a relayer needs no signature.


@external
@nonreentrant
def claim(pool: uint256, epoch: uint256, entry: roots.Entry, index: uint256, path: DynArray[bytes32, 20]):
    """
    @notice Pay an account what it earned beyond what it was paid. Anyone may call it: the money goes to the account.
    @param pool 0 for credits, 1 for era rewards.
    @param epoch The number of the root.
    @param entry The account's leaf of that root: what it earned and spent in all.
    @param index The place of the leaf in the tree.
    @param path The Merkle proof: one sibling per level, from the bottom up.
    """
    amount: uint256 = self._claim(pool, epoch, entry, index, path, False)
    vault._send(entry.account, amount)


@external
@nonreentrant
def claim_to_bond(pool: uint256, epoch: uint256, entry: roots.Entry, index: uint256, path: DynArray[bytes32, 20]):
    """
    @notice Turn the caller's earnings into its bond, so that a provider without tokens bonds with what it earned.
    @param pool 0 for credits, 1 for era rewards.
    @param epoch The number of the root.
    @param entry The account's leaf of that root: what it earned and spent in all.
    @param index The place of the leaf in the tree.
    @param path The Merkle proof: one sibling per level, from the bottom up.
    """
    assert msg.sender == entry.account, "NOT_ACCOUNT"
    self._bond(entry.account, self._claim(pool, epoch, entry, index, path, True))


@external
@nonreentrant
def claim_to_bond_with_signature(
    pool: uint256,
    epoch: uint256,
    entry: roots.Entry,
    index: uint256,
    path: DynArray[bytes32, 20],
    deadline: uint256,
    signature: Bytes[65],
):
    """
    @notice `claim_to_bond` as a meta-transaction: the entry's account signs it, a relayer sends it and pays the gas.
    @param pool 0 for credits, 1 for era rewards.
    @param epoch The number of the root.
    @param entry The account's leaf of that root: what it earned and spent in all.
    @param index The place of the leaf in the tree.
    @param path The Merkle proof: one sibling per level, from the bottom up.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(entry.account)
    content: bytes32 = keccak256(
        abi_encode(CLAIM_TO_BOND_TYPEHASH, entry.account, pool, entry.earned, nonce, deadline)
    )
    twins._require_signed(entry.account, content, deadline, signature)
    self._bond(entry.account, self._claim(pool, epoch, entry, index, path, True))


# A depositor leaves


@external
def request_exit(amount: uint256):
    """
    @notice Ask to get unspent credits back. It is paid out by `exit` after EXIT_S.
    @dev A second request replaces the first, and its delay.
    @param amount How much, in µUSD; no more than is unspent now.
    """
    self._request_exit(msg.sender, amount)


@external
def request_exit_with_signature(account: address, amount: uint256, deadline: uint256, signature: Bytes[65]):
    """
    @notice `request_exit` as a meta-transaction: the account signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param amount How much, in µUSD; no more than is unspent now.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(abi_encode(REQUEST_EXIT_TYPEHASH, account, amount, nonce, deadline))
    twins._require_signed(account, content, deadline, signature)
    self._request_exit(account, amount)


@external
def record_spent(epoch: uint256, entry: roots.Entry, index: uint256, path: DynArray[bytes32, 20]):
    """
    @notice Show what an account has spent in all, from a ripe root of the credits. The figure only ever rises.
    @param epoch The number of the root.
    @param entry The account's leaf of that root: what it earned and spent in all.
    @param index The place of the leaf in the tree.
    @param path The Merkle proof: one sibling per level, from the bottom up.
    """
    roots._require_entry(CREDITS, epoch, entry, index, path)
    assert entry.spent > self.spent[entry.account], "NOTHING_NEW"
    self.spent[entry.account] = entry.spent
    log SpentRecorded(account=entry.account, spent=entry.spent)


@external
@nonreentrant
def exit(account: address):
    """
    @notice Pay out a requested exit. Anyone may call it: the money goes to the account.
    @dev It pays no more than is unspent and not promised to accounts that earned it. Where a root under delay promises
         what the account would get, it waits for the guardian's time: nobody uses up a request by a root that is struck.
         Where all was spent it pays nothing and ends the request, which would else let a later deposit out at once.
    @param account The account that asked.
    """
    request: Exit = self.exit_of[account]
    assert request.amount > 0, "NO_EXIT_REQUESTED"
    assert block.timestamp >= request.ready_at, "TOO_EARLY"
    pool: Pool = self.pools[CREDITS]
    due: uint256 = min(request.amount, self._unspent(account))
    amount: uint256 = min(due, pool.funded - pool.promised)
    assert amount == due or roots._is_ripe(CREDITS, pool.epoch), "ROOT_UNDER_DELAY"
    assert amount > 0 or due == 0, "NOTHING_FREE"
    self.exit_of[account] = empty(Exit)
    self.exited[account] += amount
    self.pools[CREDITS].funded -= amount
    if amount > 0:
        vault._send(account, amount)
    log Exited(account=account, amount=amount)


@external
@view
def unspent(account: address) -> uint256:
    """
    @notice The credits that an account could ask back.
    @param account The account.
    @return The amount in µUSD, by what was shown to be spent so far.
    """
    return self._unspent(account)


@internal
@view
def _unspent(account: address) -> uint256:
    gone: uint256 = self.spent[account] + self.exited[account]
    return self.deposited[account] - min(gone, self.deposited[account])


@internal
def _deposit(payer: address, account: address, amount: uint256):
    assert account != empty(address), "ZERO_ADDRESS"
    received: uint256 = vault._receive(payer, amount)
    self.deposited[account] += received
    self.pools[CREDITS].funded += received
    log Deposited(account=account, payer=payer, amount=received)


@internal
def _request_exit(account: address, amount: uint256):
    # No more than is there now: the event tells the operator what not to sell any more.
    asked: uint256 = min(amount, self._unspent(account))
    assert asked > 0, "NOTHING_UNSPENT"
    ready_at: uint256 = block.timestamp + EXIT_S
    self.exit_of[account] = Exit(amount=asked, ready_at=ready_at)
    log ExitRequested(account=account, amount=asked, ready_at=ready_at)


@internal
def _claim(
    pool: uint256, epoch: uint256, entry: roots.Entry, index: uint256, path: DynArray[bytes32, 20], to_bond: bool
) -> uint256:
    roots._require_entry(pool, epoch, entry, index, path)
    assert entry.earned > self.claimed[pool][entry.account], "NOTHING_TO_CLAIM"
    amount: uint256 = entry.earned - self.claimed[pool][entry.account]
    assert self.pools[pool].paid + amount <= self._ripe_promise(pool), "ROOT_EXCEEDS_ITS_TOTAL"
    self.claimed[pool][entry.account] = entry.earned
    self.pools[pool].paid += amount
    log Claimed(pool=pool, account=entry.account, amount=amount, earned=entry.earned, to_bond=to_bond)
    return amount


@internal
@view
def _ripe_promise(pool: uint256) -> uint256:
    """What ripe roots promise. A root under delay pays nothing, not even by way of an older one that holds too much."""
    last: Pool = self.pools[pool]
    return last.promised if roots._is_ripe(pool, last.epoch) else self.promised_before[pool]


@internal
def _bond(account: address, amount: uint256):
    vault._allow(stakes.address, amount)
    extcall stakes.deposit_bond(account, amount)
