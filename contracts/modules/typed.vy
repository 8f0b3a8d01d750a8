# pragma version 0.4.3
"""
@title EIP-712 messages and their signatures
@notice Domain {name "Sparewatt", version "1", chainId, verifyingContract}. A signature is 65 bytes r, s, v with the low
        s and v 27 or 28, so that each message has one valid signature per key. Stores nothing.
"""

DOMAIN_TYPEHASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
NAME_HASH: constant(bytes32) = keccak256("Sparewatt")
VERSION_HASH: constant(bytes32) = keccak256("1")
S_MAX: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168  # half the order


@internal
@view
def _separator_of(contract: address) -> bytes32:
    # Computed each time: it is cheap, and stays right when the chain forks.
    return keccak256(abi_encode(DOMAIN_TYPEHASH, NAME_HASH, VERSION_HASH, chain.id, contract))


@internal
@view
def _digest_of(contract: address, struct_hash: bytes32) -> bytes32:
    return keccak256(concat(b"\x19\x01", self._separator_of(contract), struct_hash))


@internal
@pure
def _recover(digest: bytes32, signature: Bytes[65]) -> address:
    assert len(signature) == 65, "BAD_SIGNATURE"
    r: uint256 = extract32(signature, 0, output_type=uint256)
    s: uint256 = extract32(signature, 32, output_type=uint256)
    v: uint256 = convert(slice(signature, 64, 1), uint256)
    assert s <= S_MAX and (v == 27 or v == 28), "BAD_SIGNATURE"
    signer: address = ecrecover(digest, v, r, s)
    assert signer != empty(address), "BAD_SIGNATURE"
    return signer
