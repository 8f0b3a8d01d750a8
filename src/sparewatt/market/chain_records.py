"""What the chain's events say of the market: orders, leases, providers, validators and snapshots, as frozen records.

Ids, hashes and addresses are lower-case hex text, times are Unix seconds of the chain, amounts are µUSD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparewatt.market.accrual import PaymentStream
from sparewatt.market.lease_uptime import UptimeTally
from sparewatt.protocol.contracts.match import NO_PROVIDER, CertificateRecord, OrderTerms
from sparewatt.protocol.contracts.reasons import OrderOutcome
from sparewatt.trust.lease_record import EndedTerm
from sparewatt.trust.renter_record import RenterRecord


class OrderState(Enum):
    """As the order contract numbers them."""

    OPEN = 1
    MATCHED = 2
    UNMATCHED = 3
    CLOSED = 4
    EXPIRED = 5


class LeaseState(Enum):
    PENDING = 1
    ACTIVE = 2
    PAUSED = 3
    UNPLACED = 4
    CLOSED = 5
    VACANT = 6


class RegistryStatus(Enum):
    """A provider's status, as the registry numbers them."""

    REGISTERED = 1
    ACTIVE = 2
    MAINTENANCE = 3
    SUSPENDED = 4
    LEFT = 5


ENDED_ORDER_STATES = frozenset({OrderState.CLOSED, OrderState.EXPIRED})


@dataclass(frozen=True, slots=True)
class AcceptedCertificate:
    """What later calls have to present again, and who signed it. If nobody was eligible, it names no provider."""

    attempt: int
    record: CertificateRecord
    bid_count: int
    signers: tuple[str, ...]
    accepted_at: int

    @property
    def has_winner(self) -> bool:
        return self.record.chosen[0].provider != NO_PROVIDER


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    order_id: str
    renter: str
    state: OrderState
    attempt: int
    terms: OrderTerms
    spec_hash: str
    """What is to run; an accepted update changes it."""
    stake_version: int
    snapshot_epoch: int
    expires_at: int
    max_attempts: int
    created_at: int
    opened_at: Mapping[int, int]
    """By attempt; only of the newest attempts."""
    ordered_spec_hash: str = ""
    """As it was ordered: the order's id covers it."""
    reason: int | None = None
    """Why it is unmatched, as the contract says: `outcome` has the protocol's code."""
    certificate: AcceptedCertificate | None = None
    failed: frozenset[str] = frozenset()
    """Providers that paid compensation in this order or were skipped for want of a bond: they may not bid again."""

    @property
    def outcome(self) -> int | None:
        """Why it is unmatched. The contract does not tell no bids from none that is eligible; its certificate does."""
        nobody_bid = self.certificate is not None and self.certificate.bid_count == 0
        is_no_match = self.reason == OrderOutcome.NONE_ELIGIBLE
        return OrderOutcome.NO_BIDS if is_no_match and nobody_bid else self.reason


@dataclass(frozen=True, slots=True)
class UpdateTerms:
    """Of a lease that runs. Both sides have to sign them."""

    spec_hash: str
    rate_uusd: int
    duration_s: int
    seq: int


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """The time in which one provider had a lease."""

    provider: str
    placed_at: int
    left_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    lease_id: str
    renter: str
    state: LeaseState
    provider: str | None
    term: int
    position: int
    rate_uusd: int
    locked_uusd: int
    confirm_by: int
    """Of a vacant lease: when the stand-ins' time is over."""
    created_at: int
    resumed: bool = False
    running_since: int = 0
    paused_at: int = 0
    pause_reason: int = 0
    notice_at: int = 0
    may_close_at: int = 0
    """When the provider's notice is over; 0 without a notice."""
    vacated_at: int = 0
    hand_over_reason: int | None = None
    """Of the last hand-over."""
    details_hash: str | None = None
    update_seq: int = 0
    proposed: UpdateTerms | None = None
    """What the renter wants to change, until the provider accepts it or another one replaces it."""
    ran_s: int = 0
    """In this term, up to the last time that it stood still."""
    earned_uusd: int = 0
    """By the rate, for these seconds."""
    paused_s: int = 0
    """Of all pauses that have ended, over all its providers."""
    uptime: UptimeTally = field(default_factory=UptimeTally)
    """Over all its providers, up to the last event that changed it."""
    terms: tuple[LeaseTerm, ...] = ()
    """Of all providers that ever had it, the oldest first."""
    closed_at: int | None = None
    close_reason: int | None = None

    @property
    def held_by(self) -> frozenset[str]:
        """All providers that ever had it."""
        return frozenset(term.provider for term in self.terms)


@dataclass(frozen=True, slots=True)
class RegisteredClaims:
    """What a provider says of itself; nobody has checked it."""

    country: int
    zone: int
    tier: int
    gpu_model: int
    vram_gb: int
    """Of each GPU; 0 if it is not known."""
    gpu_units: int
    price_hint_uusd: int
    metadata_hash: str


@dataclass(frozen=True, slots=True)
class NodeKeyChange:
    """A key counts for orders that were opened after `since`, until the next change."""

    node_key: str
    since: int


@dataclass(frozen=True, slots=True)
class Attestation:
    auditor: str
    topic: int
    detail: str
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRecord:
    provider: str
    status: RegistryStatus
    registered_at: int
    status_reason: str | None = None
    claims: RegisteredClaims | None = None
    node_keys: tuple[NodeKeyChange, ...] = ()
    """Oldest first; only the newest."""
    attestations: Mapping[tuple[str, int], Attestation] = field(default_factory=dict)
    """By auditor and topic."""

    @property
    def node_key(self) -> str | None:
        return self.node_keys[-1].node_key if self.node_keys else None

    def node_key_at(self, opened_at: int) -> str | None:
        """The key that counts for an order opened at this time."""
        older = [change.node_key for change in self.node_keys if change.since < opened_at]
        return older[-1] if older else None


@dataclass(frozen=True, slots=True)
class BondRecord:
    """A provider's bond: what is free, locked for leases, and on its way out."""

    free_uusd: int = 0
    locked_uusd: int = 0
    unbonding_uusd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorRecord:
    operator: str
    vote_key: str
    url: str = ""
    stake_uusd: int = 0
    pending_uusd: int = 0
    pending_since: int = 0
    unbonding_uusd: int = 0
    ready_at: int = 0
    slashed_uusd: int = 0

    @property
    def is_jailed(self) -> bool:
        """A proven fault jails for good."""
        return self.slashed_uusd > 0


@dataclass(frozen=True, slots=True)
class WeightChange:
    version: int
    weight: int


@dataclass(frozen=True, slots=True)
class WeightHistory:
    """A vote key's changes of weight, oldest first. `dropped` old ones are forgotten: they count in the index."""

    operator: str
    changes: tuple[WeightChange, ...] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class VoteWeight:
    """A vote key's weight at a stake version, and where that stands in its history: contracts ask for both."""

    vote_key: str
    operator: str
    weight: int
    history_index: int


@dataclass(frozen=True, slots=True)
class VotingRecord:
    """What the accepted certificates say of one validator."""

    certificates: int = 0
    """Of attempts in which it had weight."""
    votes: int = 0
    """Those of them that carry its vote."""
    last_vote_at: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    epoch: int
    root: str
    count: int
    inputs_hash: str
    posted_at: int


@dataclass(slots=True)
class MarketState:
    """Everything that the events up to some block say. The records are frozen, so a copy is cheap."""

    orders: dict[str, OrderRecord] = field(default_factory=dict)
    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    """By the id of the order."""
    streams: dict[str, PaymentStream] = field(default_factory=dict)
    """Deposit and payments, by the id of the order."""
    ended_orders: dict[str, None] = field(default_factory=dict)
    """In the order in which they ended."""
    providers: dict[str, ProviderRecord] = field(default_factory=dict)
    bonds: dict[str, BondRecord] = field(default_factory=dict)
    ended_terms: dict[str, tuple[EndedTerm, ...]] = field(default_factory=dict)
    """By provider: its terms of leases that are over, oldest first; only the newest."""
    renters: dict[str, RenterRecord] = field(default_factory=dict)
    """By address; only those with the newest orders."""
    validators: dict[str, ValidatorRecord] = field(default_factory=dict)
    """By operator, also those without weight."""
    histories: dict[str, WeightHistory] = field(default_factory=dict)
    """By vote key, old keys included."""
    totals: dict[int, int] = field(default_factory=dict)
    """All weight at a stake version; only of the newest versions."""
    stake_version: int = 0
    voting: dict[str, VotingRecord] = field(default_factory=dict)
    """By operator."""
    snapshots: dict[int, SnapshotRecord] = field(default_factory=dict)
    """By epoch; only the newest."""

    def copy(self) -> MarketState:
        return MarketState(
            orders=dict(self.orders),
            leases=dict(self.leases),
            streams=dict(self.streams),
            ended_orders=dict(self.ended_orders),
            providers=dict(self.providers),
            bonds=dict(self.bonds),
            ended_terms=dict(self.ended_terms),
            renters=dict(self.renters),
            validators=dict(self.validators),
            histories=dict(self.histories),
            totals=dict(self.totals),
            stake_version=self.stake_version,
            voting=dict(self.voting),
            snapshots=dict(self.snapshots),
        )

    @property
    def latest_snapshot(self) -> SnapshotRecord | None:
        return next(reversed(self.snapshots.values()), None)

    def total_at(self, version: int) -> int:
        """Raises KeyError for a version that is not there, or too old to be kept."""
        return 0 if version == 0 else self.totals[version]

    def weights_at(self, version: int) -> list[VoteWeight]:
        """The vote keys with weight at a version, in ascending order of their addresses. Raises KeyError."""
        self.total_at(version)
        found = (self.weight_of(vote_key, version) for vote_key in sorted(self.histories))
        return [weight for weight in found if weight is not None and weight.weight > 0]

    def weight_of(self, vote_key: str, version: int) -> VoteWeight | None:
        """None if the key had not come by then."""
        history = self.histories.get(vote_key, WeightHistory(operator=""))
        older = [index for index, change in enumerate(history.changes) if change.version <= version]
        if not older:
            return None
        index = older[-1]
        return VoteWeight(vote_key, history.operator, history.changes[index].weight, history.dropped + index)
