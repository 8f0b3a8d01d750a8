# pragma version 0.4.3
"""
@title Pull payments: what is owed to whom
@notice What an account is owed is recorded here, and the account withdraws it. A receiver that reverts blocks only
        itself.
"""

from contracts.modules import twins
from contracts.modules import vault

uses: twins
uses: vault

event Withdrawn:
    account: indexed(address)
    receiver: indexed(address)
    amount: uint256

event Owed:
    account: indexed(address)
    amount: uint256

WITHDRAW_TYPEHASH: constant(bytes32) = keccak256(
    "Withdraw(address account,address receiver,uint256 nonce,uint256 deadline)"
)

owed: public(HashMap[address, uint256])


@external
@nonreentrant
def withdraw(receiver: address):
    """
    @notice Send all that the caller is owed.
    @param receiver The account that receives the money.
    """
    self._withdraw(msg.sender, receiver)


@external
@nonreentrant
def withdraw_with_signature(account: address, receiver: address, deadline: uint256, signature: Bytes[65]):
    """
    @notice `withdraw` as a meta-transaction: the account signs it, a relayer sends it and pays the gas.
    @param account The account that acts and signs.
    @param receiver The account that receives the money.
    @param deadline The last Unix second at which the signature is valid.
    @param signature The EIP-712 signature of the account that acts: 65 bytes r, s, v.
    """
    nonce: uint256 = twins._next_nonce(account)
    content: bytes32 = keccak256(abi_encode(WITHDRAW_TYPEHASH, account, receiver, nonce, deadline))
    twins._require_signed(account, content, deadline, signature)
    self._withdraw(account, receiver)


@internal
def _owe(account: address, amount: uint256):
    self.owed[account] += amount


@internal
def _owe_openly(account: address, amount: uint256):
    """`_owe` where no other event says to whom and how much."""
    self._owe(account, amount)
    if amount > 0:
        log Owed(account=account, amount=amount)


@internal
def _spend(account: address, amount: uint256) -> uint256:
    """Use up what the account is owed, up to `amount`; returns how much that was."""
    spent: uint256 = min(amount, self.owed[account])
    if spent > 0:
        self.owed[account] -= spent
    return spent


@internal
def _withdraw(account: address, receiver: address):
    amount: uint256 = self.owed[account]
    assert amount > 0, "NOTHING_OWED"
    assert receiver != empty(address), "ZERO_ADDRESS"
    self.owed[account] = 0
    vault._send(receiver, amount)
    log Withdrawn(account=account, receiver=receiver, amount=amount)
