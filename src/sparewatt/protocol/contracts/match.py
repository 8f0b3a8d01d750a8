"""The signed and hashed messages of matching a lease: what is ordered, providers' bids and validators' votes.

Field order, names and widths are the protocol: a change needs a new version of the EIP-712 domain. Prices are µUSD per
hour for the whole lease. Masks have bit i for id i of the published tables; 0 means any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

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
    struct_hash,
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


class Specification(TypedMessage):
    """What is ordered. The content document (image, command, ports) is in it by its hash."""

    content_hash: Bytes32
    gpus: Uint16
    cpu_milli: Uint32
    memory_mib: Uint32
    disk_mib: Uint32
    egress: Uint8
    secrets: Uint16


class BidTerms(TypedMessage):
    """The capacity that a bid promises. `down_mbps` and `up_mbps` are as last measured, 0 for unknown."""

    struct_name = "Terms"

    gpus: Uint16
    gpu_model: Uint8
    vram_gb: Uint16
    cpu_milli: Uint32
    memory_mib: Uint32
    disk_mib: Uint32
    disk_kind: Uint8
    egress: Uint8
    down_mbps: Uint32
    up_mbps: Uint32
    reclaim_s: Uint32


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


class Decline(TypedMessage):
    """A provider does not bid: a code of `DeclineReason`. Signed, because an early close counts on it."""

    order_id: Bytes32
    attempt: Uint32
    provider: Address
    code: Uint8


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


class RoundReached(TypedMessage):
    """The round that a validator is in, signed so that nobody else can hurry the others. Two of them are no fault."""

    order_id: Bytes32
    attempt: Uint32
    round: Uint32


class Heartbeat(TypedMessage):
    """A node tells one validator that it lives, and which terms of leases it holds: `held_term` of each, ascending."""

    provider: Address
    validator: Address
    challenge: Bytes32
    seq: Uint64
    block_number: Uint64
    held: Bytes32s


class Observation(TypedMessage):
    """What one validator saw of one provider. Zone 255: as claimed."""

    provider: Address
    uptime_ppm: Uint32
    reputation_ppm: Uint32
    zone: Uint8


class Observations(TypedMessage):
    """All observations of one validator in one epoch, ascending by provider."""

    epoch: Uint32
    height: Uint64
    rows: Annotated[tuple[Observation, ...], "Observation[]"]


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


def held_term(lease_id: bytes, term: int) -> bytes:
    """How a heartbeat names a lease that the node holds."""
    return keccak256(lease_id + term.to_bytes(4, "big"))


def inputs_hash_of(height: int, observations: Iterable[Observations]) -> bytes:
    """What a snapshot was computed from: its block, and the observations in any order."""
    return keccak256(height.to_bytes(8, "big") + b"".join(sorted(map(struct_hash, observations))))


def uint256_word(number: int) -> bytes:
    return number.to_bytes(32, "big")
