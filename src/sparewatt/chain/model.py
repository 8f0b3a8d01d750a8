"""What the chain is made of, as plain values: bytes are bytes, addresses are lower-case text, amounts are integers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChainIdentity:
    """Which chain this is. Two local chains share an id; no two share a first block."""

    chain_id: int
    genesis_hash: bytes


@dataclass(frozen=True, slots=True)
class BlockHeader:
    number: int
    hash: bytes
    parent_hash: bytes
    unix_s: int
    base_fee_wei: int | None
    """None on a chain without one."""


@dataclass(frozen=True, slots=True)
class ContractCall:
    """What to say to which contract. `gas_limit` is set where an estimate cannot be trusted."""

    to: str
    data: bytes
    gas_limit: int | None = None


@dataclass(frozen=True, slots=True)
class GasFees:
    """In wei per gas: what is paid at most, and the part of it for whoever makes the block."""

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


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """What came of a transaction, in the block that holds it now."""

    tx_hash: bytes
    block_number: int
    block_hash: bytes
    succeeded: bool
    gas_used: int
    contract: str | None = None
    logs: tuple[RawLog, ...] = field(default=())


def hex_of(data: bytes) -> str:
    return f"0x{data.hex()}"


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
