# pragma version 0.4.3
"""
@title What a certificate awards, what a bid is bonded with, and how the record of a match is hashed
@notice A match stores one word: the hash of this record. A caller that needs the record passes it as calldata. Pure.
"""

struct Award:  # of one candidate; an empty provider is none
    provider: address
    price_uusd: uint256  # what it is paid per hour if the lease is placed with it

struct Record:
    task_hash: bytes32
    round: uint32
    chosen: Award[3]

struct Vote:
    signature: Bytes[65]
    history_index: uint256  # where the signer's weight at the stake version is in its history

BID_BOND_S: constant(uint256) = 600
HOUR_S: constant(uint256) = 3_600


@internal
@pure
def _record_hash(record: Record) -> bytes32:
    return keccak256(abi_encode(record))


@internal
@pure
def _bid_bond(max_price_uusd: uint256) -> uint256:
    """Ten minutes of the order's highest price, whatever the bid: a low price must not make breaking a bid cheap."""
    return max(1, max_price_uusd * BID_BOND_S // HOUR_S)


@internal
@pure
def _is_quorum(weight: uint256, total: uint256) -> bool:
    """Strictly more than two thirds: with a third faulty, two certificates at exactly two thirds could exist."""
    return 3 * weight > 2 * total
