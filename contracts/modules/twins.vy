# pragma version 0.4.3
"""
@title What the `…_with_signature` twins share: a nonce per account, a deadline, a signature
@notice The twin's typed message ends in `uint256 nonce,uint256 deadline`. The relayer pays the gas and gains nothing.
"""

from contracts.modules import typed

nonces: public(HashMap[address, uint256])


@external
@view
def DOMAIN_SEPARATOR() -> bytes32:
    """
    @notice The EIP-712 domain separator of messages for this contract.
    @return The separator, with the current chain id.
    """
    return typed._separator_of(self)


@internal
def _next_nonce(account: address) -> uint256:
    nonce: uint256 = self.nonces[account]
    self.nonces[account] = nonce + 1
    return nonce


@internal
@view
def _require_signed(account: address, struct_hash: bytes32, deadline: uint256, signature: Bytes[65]):
    assert block.timestamp <= deadline, "DEADLINE_PASSED"
    assert typed._recover(typed._digest_of(self, struct_hash), signature) == account, "NOT_SIGNED_BY_ACCOUNT"
