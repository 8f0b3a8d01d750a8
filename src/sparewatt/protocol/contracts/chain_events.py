"""What the chain's reader, the outbox and the store hand each other: an event in words, a transaction in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ChainEvent:
    """A log of one of our contracts, in words. `args` holds only what JSON can.

    `ordinal` counts the transaction's logs of our contracts. Unlike `log_index`, which counts the block's, it stays the
    same when the chain puts the transaction into another block.
    """

    block_number: int
    log_index: int
    block_hash: bytes
    tx_hash: bytes
    ordinal: int
    contract: str
    event: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """A transaction as it goes over the wire; nobody can change it. `age_s` is how long ago it was stored."""

    tx_hash: bytes
    raw: bytes
    max_wei: int
    tip_wei: int
    age_s: float = 0.0
