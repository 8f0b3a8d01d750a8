"""Decoded contract events and signed transactions, as the chain's follower, the outbox and the store exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ChainEvent:
    """A decoded log of one of our contracts. `args` holds JSON values only.

    `ordinal` counts the logs of our contracts within the transaction. It stays the same when a reorg puts the
    transaction into another block; `log_index`, which counts within the block, does not.
    """

    block_number: int
    log_index: int
    block_hash: bytes
    tx_hash: bytes
    ordinal: int
    contract: str
    event: str
    args: Mapping[str, Any]
    unix_s: int = 0
    """The time of its block, as its contract saw it."""


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """A raw transaction, ready to broadcast. `age_s`: how long ago it was stored."""

    tx_hash: bytes
    raw: bytes
    max_wei: int
    tip_wei: int
    age_s: float = 0.0
