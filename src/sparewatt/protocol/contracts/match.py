"""The signed messages of matching a lease: a renter's terms, providers' bids and validators' votes.

Field order, names and widths are the protocol: a change needs a new version of the EIP-712 domain. Prices are µUSD per
hour for the whole lease. Masks have bit i for id i of the published tables; 0 means any.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import (
    Address,
    Addresses,
    Bytes32,
    Bytes32s,
    TypedMessage,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Uint256,
)

NO_LEAF = 0xFFFF
"""The index for no candidate."""

CANDIDATES_MAX = 3
NO_PROVIDER = "0x" + "0" * 40


class OrderTerms(TypedMessage):
    struct_name = "Policy"

    countries: Uint256
    tiers: Uint256
    gpu_models: Uint256
    min_gpu_class: Uint8
    min_vram_gb: Uint16
    gpu_units: Uint16
    compliance: Uint256
    min_uptime_ppm: Uint32
    min_reputation_ppm: Uint32
    max_price_uusd: Uint64
    latency_value: Uint32
    rtt_row: Bytes32
    payment_rule: Uint8
    commit_ms: Uint32
    reveal_ms: Uint32
    start_s: Uint32
    standin_s: Uint32
    down_s: Uint32
    reclaim_s: Uint32
    empty_grace_s: Uint32
    duration_s: Uint32
    only: Addresses
    ignore: Addresses


class Profile(TypedMessage):
    provider: Address
    epoch: Uint32
    country: Uint8
    zone: Uint8
    tier: Uint8
    gpu_model: Uint8
    gpu_class: Uint8
    vram_gb: Uint16
    gpu_units: Uint16
    compliance: Uint256
    uptime_ppm: Uint32
    reputation_ppm: Uint32


class Bid(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    provider: Address
    price_uusd: Uint64
    terms_hash: Bytes32
    salt: Bytes32


class BidCommit(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    provider: Address
    bid_id: Bytes32


class CommitList(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    bid_ids: Bytes32s


class RevealList(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    bid_ids: Bytes32s


class BidLeaf(TypedMessage):
    provider: Address
    price_uusd: Uint64
    terms_hash: Bytes32
    salt: Bytes32
    uptime_ppm: Uint32
    reputation_ppm: Uint32
    rtt_ms: Uint16
    status: Uint8
    score: Uint64


class Task(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    policy_hash: Bytes32
    snapshot_epoch: Uint32
    snapshot_root: Bytes32
    stake_version: Uint32
    bid_root: Bytes32
    bid_count: Uint16
    first: Uint16
    second: Uint16
    third: Uint16


class Vote(TypedMessage):
    order_id: Bytes32
    attempt: Uint32
    round: Uint32
    task_hash: Bytes32


class ReputationSnapshot(TypedMessage):
    struct_name = "Snapshot"

    epoch: Uint32
    round: Uint32
    root: Bytes32
    count: Uint32
    inputs_hash: Bytes32


class Down(TypedMessage):
    lease_id: Bytes32
    term: Uint32
    provider: Address
    down_since: Uint64


@dataclass(frozen=True, slots=True)
class Award:
    """A candidate, and its pay per hour if the lease is placed with it."""

    provider: str
    price_uusd: int


@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """What remains of a certificate. The chain stores its hash only; a later call has to present the record again."""

    task_hash: bytes
    round: int
    chosen: tuple[Award, Award, Award]

    def record_hash(self) -> bytes:
        words = [self.task_hash, uint256_word(self.round)]
        for award in self.chosen:
            words += [uint256_word(int(award.provider, 16)), uint256_word(award.price_uusd)]
        return keccak256(b"".join(words))

    def values(self) -> tuple[bytes, int, list[tuple[str, int]]]:
        """As the argument of a contract call."""
        return self.task_hash, self.round, [(award.provider, award.price_uusd) for award in self.chosen]


def order_id_of(
    *, chain_id: int, orders: str, renter: str, renter_nonce: int, policy_hash: bytes, spec_hash: bytes
) -> bytes:
    """The id of an order and of its lease: a hash over what is ordered, and by which renter."""
    numbers = [chain_id, int(orders, 16), int(renter, 16), renter_nonce]
    return keccak256(b"".join(map(uint256_word, numbers)) + policy_hash + spec_hash)


def uint256_word(number: int) -> bytes:
    return number.to_bytes(32, "big")
