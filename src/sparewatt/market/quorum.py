"""Weights of validators: what a quorum is, who leads a round, and the median of what they observed.

Thresholds are strict. With exactly a third of the stake faulty, "at least two thirds" would allow two certificates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparewatt.protocol.signing import keccak256


def is_quorum(weight: int, *, total: int) -> bool:
    """More than two thirds of the stake."""
    return 3 * weight > 2 * total


def is_some(weight: int, *, total: int) -> bool:
    """More than a third of the stake: at least one honest validator."""
    return 3 * weight > total


def weight_of(signers: Iterable[str], weights: Mapping[str, int]) -> int:
    """The stake of these validators together, each counted once, strangers as nothing. Keys are in lower case."""
    return sum(weights.get(signer, 0) for signer in {signer.lower() for signer in signers})


def leader_of_match(weights: Mapping[str, int], *, order_id: bytes, attempt: int, round_: int) -> str:
    """The validator that proposes in a round of an auction. Raises ValueError if no validator has weight."""
    return _leader(weights, keccak256(order_id + attempt.to_bytes(4, "big")), round_)


def leader_of_snapshot(weights: Mapping[str, int], *, epoch: int, round_: int) -> str:
    """The validator that proposes a snapshot. Raises ValueError if no validator has weight."""
    return _leader(weights, keccak256(b"snapshot" + epoch.to_bytes(4, "big")), round_)


def _leader(weights: Mapping[str, int], start: bytes, round_: int) -> str:
    voters = sorted((address for address, weight in weights.items() if weight > 0), key=lambda a: int(a, 16))
    if not voters:
        raise ValueError("no validator has weight")
    return voters[(int.from_bytes(start, "big") + round_) % len(voters)]


def lower_median(observed: Sequence[tuple[int, int]]) -> int:
    """The smallest value such that validators with values up to it have at least half of the published weight.

    `observed` holds (value, weight) pairs. While less than half of the weight is faulty, the result lies between two
    honest values. Raises ValueError if nobody with weight published.
    """
    total = sum(weight for _, weight in observed)
    below = 0
    for value, weight in sorted(observed):
        below += weight
        if weight > 0 and 2 * below >= total:
            return value
    raise ValueError("no observation has weight")


def most_stake(observed: Sequence[tuple[int, int]]) -> int:
    """The value with most stake behind it, then the lowest: how validators agree on a zone. Raises ValueError."""
    stakes: dict[int, int] = {}
    for value, weight in observed:
        stakes[value] = stakes.get(value, 0) + weight
    if not any(stakes.values()):
        raise ValueError("no observation has weight")
    return min(stakes, key=lambda value: (-stakes[value], value))
