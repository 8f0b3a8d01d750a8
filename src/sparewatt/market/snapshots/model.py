"""What goes into the vote on a snapshot, and what comes out of it. Pure data.

Times in milliseconds are of the machine's own monotonic clock, times in seconds are the chain's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.protocol.contracts.match import Observations, ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot, SnapshotBook, SnapshotMessage

EPOCHS_KEPT = 8
"""Epochs of which a validator keeps what it signed: after a reorg the vote goes on in an older one."""


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What the chain says of an ACTIVE provider. Numbers are ids of the market's tables."""

    provider: str
    country: int
    zone: int
    """As claimed."""
    tier: int
    gpu_model: int
    gpu_class: int
    vram_gb: int
    gpu_units: int
    compliance: tuple[tuple[int, int], ...] = ()
    """Masks with the time up to which each counts."""
    attested_until: int = 0
    """Up to when an auditor vouches for the specifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFacts:
    """The final state of the chain at a block, as far as a table depends on it."""

    height: int
    unix_s: int
    """The block's time."""
    weights: Mapping[str, int]
    """By vote key, in lower case, at the stake version current there: what observations weigh."""
    providers: tuple[ProviderFacts, ...]
    """ACTIVE ones, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VotingFacts:
    """What the newest block says: who votes, and what was posted."""

    weights: Mapping[str, int]
    """By vote key, in lower case, at the newest stake version: what votes weigh."""
    latest: SnapshotRecord | None
    unix_s: int
    """The newest block's time."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One write-ahead entry: what a validator signed. There is one of each kind per epoch (and round for snapshots).

    What is EPOCHS_KEPT behind the newest epoch at money's depth is not needed any more.
    """

    message: Observations | ReputationSnapshot
    signature: bytes


@dataclass(frozen=True, slots=True)
class SnapshotCertificate:
    """What `task_manager.post_snapshot` accepts, but for the history hints, which the sender adds."""

    snapshot: ReputationSnapshot
    votes: tuple[SignedSnapshot, ...]
    """Of a quorum of the newest stake version, ascending by signer."""
    signers: tuple[str, ...]
    """Of the votes, in the same order."""


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """An entry of the log: a message that was refused, a vote that was not given, an epoch that began."""

    what: str
    epoch: int
    round: int = 0
    code: int = 0
    subject: str = ""
    """A vote key, or empty."""


@dataclass(frozen=True, slots=True)
class SnapshotDoubleSign:
    """Two votes of one key for one epoch and round: what `dispute.prove_double_sign` takes."""

    signer: str
    first: SignedSnapshot
    second: SignedSnapshot


@dataclass(slots=True)
class SnapshotOutput:
    """What one step wants done, in this order: make `entries` and `books` durable, then send, then post.

    Nothing of the same step may leave the machine before its entries and books are on disk.
    """

    entries: list[SnapshotEntry] = field(default_factory=list)
    broadcast: list[SnapshotMessage] = field(default_factory=list)
    """To every other validator."""
    replies: list[SnapshotMessage] = field(default_factory=list)
    """To the sender of the message that this step received."""
    books: list[SnapshotBook] = field(default_factory=list)
    """Voted for here, or fetched; an epoch may have several, of which one is posted. Matches need the posted tables."""
    code: int = 0
    """Of a message that was refused; 0 is an acknowledgement."""
    certificate: SnapshotCertificate | None = None
    """To be posted now: by the leader at once, by others when their rank's time has come."""
    faults: list[SnapshotDoubleSign] = field(default_factory=list)
    notes: list[SnapshotNote] = field(default_factory=list)
