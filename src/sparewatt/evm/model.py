"""Plain values of a chain: bytes are bytes, addresses are lower-case text, amounts are integers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChainIdentity:
    """Two local chains may share an id; no two share a genesis block."""

    chain_id: int
    genesis_hash: bytes


@dataclass(frozen=True, slots=True)
class BlockHeader:
    number: int
    hash: bytes
    parent_hash: bytes
    unix_s: int
    base_fee_wei: int | None
    """None on a chain without base fees (before EIP-1559)."""
    has_logs: bool = True
    """False if the block's bloom filter is empty."""


@dataclass(frozen=True, slots=True)
class ContractCall:
    """The encoded input of one contract call; nothing is sent yet."""

    to: str
    data: bytes
    gas_limit: int | None = None
    """Set where an estimate cannot be trusted."""


@dataclass(frozen=True, slots=True)
class GasFees:
    """In wei per gas: the most that is paid, and the part of it for the block's producer."""

    max_wei: int
    tip_wei: int


@dataclass(frozen=True, slots=True)
class RawLog:
    block_number: int
    log_index: int
    block_hash: bytes
    tx_hash: bytes
    address: str
    topics: tuple[bytes, ...]
    data: bytes
    unix_s: int = 0
    """The time of its block; 0 where the node did not say."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    tx_hash: bytes
    block_number: int
    block_hash: bytes
    succeeded: bool
    gas_used: int


def hex_of(data: bytes) -> str:
    return f"0x{data.hex()}"


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
