# pragma version 0.4.3
# pragma evm-version prague
"""
@title A dollar for development networks: ERC-20 with EIP-2612 permits and a faucet
@notice Anyone may mint, so it refuses to be created on any chain that is not a local one: free stake is no stake. The
        other contracts work with any ERC-20 of six decimals.
"""

from ethereum.ercs import IERC20
from contracts.modules import typed

implements: IERC20

event Transfer:
    sender: indexed(address)
    receiver: indexed(address)
    amount: uint256

event Approval:
    owner: indexed(address)
    spender: indexed(address)
    amount: uint256

name: public(constant(String[32])) = "Sparewatt test dollar"
symbol: public(constant(String[8])) = "tUSD"
decimals: public(constant(uint8)) = 6
version: public(constant(String[1])) = "1"
FAUCET_MAX: public(constant(uint256)) = 1_000_000 * 10**6  # per call

DOMAIN_TYPEHASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
PERMIT_TYPEHASH: constant(bytes32) = keccak256(
    "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)

LOCAL_CHAIN_IDS: constant(uint256[2]) = [31337, 1337]  # of development chains: anvil, geth --dev and others

totalSupply: public(uint256)
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
nonces: public(HashMap[address, uint256])


@deploy
def __init__():
    """
    @notice Refuse every chain but a local one.
    """
    assert chain.id in LOCAL_CHAIN_IDS, "NOT_A_LOCAL_CHAIN"


@external
@view
def DOMAIN_SEPARATOR() -> bytes32:
    """
    @notice The EIP-712 domain separator of permits.
    @return The separator, with the current chain id.
    """
    return self._separator()


@external
def transfer(receiver: address, amount: uint256) -> bool:
    """
    @notice Move tokens of the caller.
    @param receiver The account that receives them.
    @param amount How many, in millionths.
    @return Always true; a failure reverts.
    """
    self._move(msg.sender, receiver, amount)
    return True


@external
def transferFrom(owner: address, receiver: address, amount: uint256) -> bool:
    """
    @notice Move tokens of an account that allowed it.
    @dev An allowance of 2**256 - 1 never shrinks.
    @param owner The account that pays.
    @param receiver The account that receives them.
    @param amount How many, in millionths.
    @return Always true; a failure reverts.
    """
    allowed: uint256 = self.allowance[owner][msg.sender]
    if allowed != max_value(uint256):
        assert allowed >= amount, "ALLOWANCE_TOO_SMALL"
        self.allowance[owner][msg.sender] = allowed - amount
    self._move(owner, receiver, amount)
    return True


@external
def approve(spender: address, amount: uint256) -> bool:
    """
    @notice Allow an account to move tokens of the caller.
    @param spender The account that may move them.
    @param amount How many in all. It replaces the allowance before.
    @return Always true.
    """
    self._approve(msg.sender, spender, amount)
    return True


@external
def permit(owner: address, spender: address, amount: uint256, deadline: uint256, v: uint8, r: bytes32, s: bytes32):
    """
    @notice Allow an account to move tokens of the signer (EIP-2612).
    @dev Anyone may send it.
    @param owner The account whose tokens these are, and that signed.
    @param spender The account that may move them.
    @param amount How many in all. It replaces the allowance before.
    @param deadline The last Unix second at which the signature is valid.
    @param v Of the signature: 27 or 28.
    @param r Of the signature.
    @param s Of the signature, in the lower half of its range.
    """
    assert block.timestamp <= deadline, "DEADLINE_PASSED"
    nonce: uint256 = self.nonces[owner]
    self.nonces[owner] = nonce + 1
    content: bytes32 = keccak256(abi_encode(PERMIT_TYPEHASH, owner, spender, amount, nonce, deadline))
    digest: bytes32 = keccak256(concat(b"\x19\x01", self._separator(), content))
    signature: Bytes[65] = concat(r, s, convert(v, bytes1))
    assert typed._recover(digest, signature) == owner, "NOT_SIGNED_BY_OWNER"
    self._approve(owner, spender, amount)


@external
def faucet(receiver: address, amount: uint256):
    """
    @notice Mint tokens, for development networks.
    @param receiver The account that receives them.
    @param amount How many, in millionths; at most FAUCET_MAX per call.
    """
    assert amount <= FAUCET_MAX, "TOO_MUCH"
    assert receiver != empty(address), "ZERO_ADDRESS"
    self.totalSupply += amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=empty(address), receiver=receiver, amount=amount)


@internal
@view
def _separator() -> bytes32:
    # EIP-2612 wants the token's own name here, so it is not the domain of the other contracts.
    return keccak256(abi_encode(DOMAIN_TYPEHASH, keccak256(name), keccak256(version), chain.id, self))


@internal
def _approve(owner: address, spender: address, amount: uint256):
    self.allowance[owner][spender] = amount
    log Approval(owner=owner, spender=spender, amount=amount)


@internal
def _move(sender: address, receiver: address, amount: uint256):
    assert receiver != empty(address), "ZERO_ADDRESS"
    assert self.balanceOf[sender] >= amount, "BALANCE_TOO_SMALL"
    self.balanceOf[sender] -= amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=sender, receiver=receiver, amount=amount)
