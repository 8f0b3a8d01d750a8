"""The rule of an auction: which bids are eligible, how they rank, and what the winner is paid.

Pure integer arithmetic, the same as on chain in `contracts/match_rule.vy`; tests compare the two. Rounds, votes and
time are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import (
    CANDIDATES_MAX,
    NO_LEAF,
    NO_PROVIDER,
    Award,
    Bid,
    BidCommit,
    BidLeaf,
    OrderTerms,
    Profile,
    Task,
)
from sparewatt.protocol.contracts.merkle import MerkleTree, merkle_tree
from sparewatt.protocol.contracts.message_ranges import LATENCY_VALUE_END, PPM, PRICE_UUSD_END, ZONES
from sparewatt.protocol.contracts.reasons import BidStatus
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash

SECOND_SCORE = 1


@dataclass(frozen=True, slots=True)
class BidBook:
    """Every bid of an attempt as a Merkle leaf, in the order of the tree, and the ranking."""

    order_id: bytes
    leaves: tuple[BidLeaf, ...]
    tree: MerkleTree
    ranking: tuple[int, ...]
    """Indices of the eligible leaves, best first."""

    @property
    def candidates(self) -> tuple[int, int, int]:
        first, second, third, *_ = (*self.ranking[:CANDIDATES_MAX], NO_LEAF, NO_LEAF, NO_LEAF)
        return first, second, third


def bid_id_of(bid: Bid) -> bytes:
    return struct_hash(bid)


def commit_of(bid: Bid) -> BidCommit:
    return BidCommit(bid.order_id, bid.attempt, bid.provider, bid_id_of(bid))


def status_of(terms: OrderTerms, profile: Profile, *, price_uusd: int) -> BidStatus:
    for failed, status in _checks(terms, profile, price_uusd):
        if failed:
            return status
    return BidStatus.ELIGIBLE


def _checks(terms: OrderTerms, profile: Profile, price_uusd: int) -> Iterable[tuple[bool, BidStatus]]:
    yield price_uusd > terms.max_price_uusd, BidStatus.OVER_MAX_PRICE
    yield not _allows(terms.countries, profile.country), BidStatus.COUNTRY
    yield not _allows(terms.tiers, profile.tier), BidStatus.TIER
    yield not _allows(terms.gpu_models, profile.gpu_model), BidStatus.GPU_MODEL
    yield profile.gpu_class < terms.min_gpu_class, BidStatus.GPU_CLASS
    yield profile.vram_gb < terms.min_vram_gb, BidStatus.VRAM
    yield profile.gpu_units < terms.gpu_units, BidStatus.GPU_UNITS
    yield profile.compliance & terms.compliance != terms.compliance, BidStatus.COMPLIANCE
    yield profile.uptime_ppm < terms.min_uptime_ppm, BidStatus.UPTIME
    yield profile.reputation_ppm < terms.min_reputation_ppm, BidStatus.REPUTATION
    yield bool(terms.only) and not _names(terms.only, profile.provider), BidStatus.NOT_IN_ONLY
    yield _names(terms.ignore, profile.provider), BidStatus.IGNORED


def _allows(mask: int, identifier: int) -> bool:
    return mask == 0 or bool(mask >> identifier & 1)


def _names(addresses: Sequence[str], provider: str) -> bool:
    """Addresses are compared without regard to case."""
    return any(address.lower() == provider.lower() for address in addresses)


def leaf_of(terms: OrderTerms, bid: Bid, profile: Profile) -> BidLeaf:
    """Raises InvalidField if a number is out of the range in which the contract's arithmetic cannot overflow."""
    _require_ranges(terms, bid, profile)
    status = status_of(terms, profile, price_uusd=bid.price_uusd)
    rtt_ms = 2 * terms.rtt_row[profile.zone]
    cost = bid.price_uusd + terms.latency_value * rtt_ms
    score = cost * PPM // success_ppm(profile) if status is BidStatus.ELIGIBLE else 0
    return BidLeaf(
        provider=bid.provider,
        price_uusd=bid.price_uusd,
        terms_hash=bid.terms_hash,
        salt=bid.salt,
        uptime_ppm=profile.uptime_ppm,
        reputation_ppm=profile.reputation_ppm,
        rtt_ms=rtt_ms,
        status=status,
        score=score,
    )


def success_ppm(record: Profile | BidLeaf) -> int:
    """Probability that the lease succeeds, in millionths; never 0, because scores divide by it."""
    return max(1, record.uptime_ppm * record.reputation_ppm // PPM)


def _require_ranges(terms: OrderTerms, bid: Bid, profile: Profile) -> None:
    if bid.provider.lower() != profile.provider.lower():
        raise InvalidField("The profile belongs to another provider than the bid.", param="provider")
    for name, number, low, end in (
        ("price_uusd", bid.price_uusd, 1, PRICE_UUSD_END),
        ("latency_value", terms.latency_value, 0, LATENCY_VALUE_END),
        ("zone", profile.zone, 0, ZONES),
        ("uptime_ppm", profile.uptime_ppm, 0, PPM + 1),
        ("reputation_ppm", profile.reputation_ppm, 0, PPM + 1),
    ):
        if not low <= number < end:
            raise InvalidField(f"{name} is {number}; it must be from {low} to {end - 1}.", param=name)


def book_of(order_id: bytes, leaves: Iterable[BidLeaf]) -> BidBook:
    """Does not depend on the order of `leaves`. Raises InvalidField if a provider has two bids."""
    ordered = tuple(sorted(leaves, key=lambda leaf: int(leaf.provider, 16)))
    providers = [int(leaf.provider, 16) for leaf in ordered]
    if len(set(providers)) != len(providers):
        raise InvalidField("A provider has two bids in one attempt.", param="provider")
    tree = merkle_tree([struct_hash(leaf) for leaf in ordered])
    seed = keccak256(order_id + tree.root)
    eligible = [i for i, leaf in enumerate(ordered) if leaf.status == BidStatus.ELIGIBLE]
    ranking = sorted(eligible, key=lambda i: (ordered[i].score, tie_break(seed, ordered[i].provider)))
    return BidBook(order_id=order_id, leaves=ordered, tree=tree, ranking=tuple(ranking))


def tie_break(seed: bytes, provider: str) -> bytes:
    """Orders equal scores. No bidder can choose it: the seed includes the root, and that every bid's salt."""
    return keccak256(seed + int(provider, 16).to_bytes(32, "big"))


def awards_of(terms: OrderTerms, book: BidBook) -> tuple[Award, Award, Award]:
    """What each candidate is paid: the winner by the order's payment rule, a runner-up its own price."""
    awards = candidate_awards(terms, [book.leaves[i] for i in book.ranking[:CANDIDATES_MAX]])
    first, second, third, *_ = [*awards, *[Award(NO_PROVIDER, 0)] * CANDIDATES_MAX]
    return first, second, third


def candidate_awards(terms: OrderTerms, leaves: Sequence[BidLeaf]) -> list[Award]:
    """The same of the candidates alone, best first, as a certificate has them."""
    awards = [Award(leaf.provider, leaf.price_uusd) for leaf in leaves]
    if terms.payment_rule == SECOND_SCORE and len(leaves) > 1:
        awards[0] = Award(leaves[0].provider, _second_score_pay(terms, leaves[0], leaves[1]))
    return awards


def _second_score_pay(terms: OrderTerms, first: BidLeaf, second: BidLeaf) -> int:
    """The price at which the winner's score would equal the runner-up's."""
    lead = second.score - first.score
    return min(terms.max_price_uusd, first.price_uusd + lead * success_ppm(first) // PPM)


def task_of(
    book: BidBook, *, attempt: int, policy_hash: bytes, snapshot_epoch: int, snapshot_root: bytes, stake_version: int
) -> Task:
    """What validators vote on."""
    first, second, third = book.candidates
    return Task(
        order_id=book.order_id,
        attempt=attempt,
        policy_hash=policy_hash,
        snapshot_epoch=snapshot_epoch,
        snapshot_root=snapshot_root,
        stake_version=stake_version,
        bid_root=book.tree.root,
        bid_count=len(book.leaves),
        first=first,
        second=second,
        third=third,
    )


def snapshot_tree(profiles: Iterable[Profile]) -> tuple[tuple[Profile, ...], MerkleTree]:
    """The profiles of an epoch, in the order of their Merkle tree."""
    ordered = tuple(sorted(profiles, key=lambda profile: int(profile.provider, 16)))
    return ordered, merkle_tree([struct_hash(profile) for profile in ordered])
