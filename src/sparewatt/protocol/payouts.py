"""A leaf of a payout batch, as the settlement contract hashes it: what an address earned and spent in all."""

from __future__ import annotations

from sparewatt.protocol.signing import Field, hash_struct


def leaf_hash(address: str, *, earned_micro: int, spent_micro: int) -> bytes:
    """The contract's `Entry`. Amounts have six decimals. Raises ValueError for what is no address or no amount."""
    fields = [
        Field("address", "account", address),
        Field("uint256", "earned", earned_micro),
        Field("uint256", "spent", spent_micro),
    ]
    return hash_struct("Entry", fields)
