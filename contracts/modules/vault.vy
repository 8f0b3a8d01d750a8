# pragma version 0.4.3
"""
@title The one ERC-20 of a deployment, and what this contract owes of it
@notice Counts the measured balance, never the amount in a call: a token may take a fee. Money leaves by `_send` only,
        after the books were changed. `solvent` is true as long as no token takes balances away without a transfer.
"""

from ethereum.ercs import IERC20

token: public(immutable(IERC20))
held: public(uint256)  # the sum of all that is owed to any account


@deploy
def __init__(token_: address):
    """
    @notice Set the token.
    @param token_ The ERC-20 of this deployment, with six decimals.
    """
    assert token_.is_contract, "NO_TOKEN"
    token = IERC20(token_)


@external
@view
def solvent() -> bool:
    """
    @notice Whether the contract holds at least what it owes.
    @return True unless the token took balances away.
    """
    return staticcall token.balanceOf(self) >= self.held


@internal
def _receive(payer: address, amount: uint256) -> uint256:
    """Take `amount` from the payer's allowance; returns what arrived."""
    assert amount > 0, "ZERO_AMOUNT"
    before: uint256 = staticcall token.balanceOf(self)
    assert extcall token.transferFrom(payer, self, amount, default_return_value=True), "TRANSFER_FAILED"
    received: uint256 = staticcall token.balanceOf(self) - before
    assert received > 0, "NOTHING_RECEIVED"
    self.held += received
    return received


@internal
def _acknowledge(amount: uint256):
    """Count `amount` that a sister contract has just sent. Reverts unless the balance shows it."""
    self.held += amount
    assert staticcall token.balanceOf(self) >= self.held, "NOT_RECEIVED"


@internal
def _send(receiver: address, amount: uint256):
    self.held -= amount
    assert extcall token.transfer(receiver, amount, default_return_value=True), "TRANSFER_FAILED"


@internal
def _allow(spender: address, amount: uint256):
    """For a sister contract that takes it in the same call."""
    self.held -= amount
    assert extcall token.approve(spender, amount, default_return_value=True), "TRANSFER_FAILED"
