"""What goes into the match of one order and attempt, and what comes out of it. Pure data.

Times are milliseconds of the machine's own monotonic clock: no message carries one, so skew makes nobody guilty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeAlias

from sparewatt.protocol.contracts.match import BidLeaf, OrderTerms, Profile, Task
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.signing import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionContext:
    """What the chain says of an attempt. Every validator with the same chain has the same context.

    Addresses are in lower case.
    """

    domain: Domain
    """Of `task_manager`."""
    order_id: bytes
    attempt: int
    terms: OrderTerms
    policy_hash: bytes
    spec_hash: bytes
    snapshot_epoch: int
    snapshot_root: bytes
    stake_version: int
    weights: Mapping[str, int]
    """By vote key, at `stake_version`."""
    profiles: Mapping[str, Profile]
    """By provider, of the snapshot's table."""
    node_keys: Mapping[str, str]
    """By provider: the key that counts for an order opened at this time. Absent: not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidderContext:
    """What a provider has to know of an attempt to bid in it."""

    domain: Domain
    """Of `task_manager`."""
    order_id: bytes
    attempt: int
    weights: Mapping[str, int]
    """By vote key, in lower case, at the attempt's stake version."""


class BidderStanding(IntEnum):
    """What the chain says of a bidder now; asked when its commit comes. The values are reason codes."""

    GOOD = 0
    NOT_REGISTERED = 37
    NOT_ACTIVE = 38
    UNBONDED = 40
    FAILED_BEFORE = 47


StandingOf: TypeAlias = Callable[[str], BidderStanding]
"""By provider. A list of another validator brings the commits of many providers, so it is asked for each."""


class MatchStage(Enum):
    COMMIT = "commit"
    REVEAL = "reveal"
    VOTE = "vote"
    CERTIFIED = "certified"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchTiming:
    """Of a validator; commit and reveal windows are in the order's terms."""

    gather_ms: int = 80
    round_ms: int = 300
    """Of round 0; doubled in each of the next four."""
    resend_ms: int = 150
    submit_step_ms: int = 100
    """Between two ranks."""
    early_close: bool = True


PUBLIC_TIMING = MatchTiming(gather_ms=500, round_ms=2_000, resend_ms=1_000, submit_step_ms=2_000)

SignedRecord: TypeAlias = SignedCommitList | SignedRevealList | SignedVote
"""One write-ahead entry: what a validator signed, with the commits and bids that a list names.

There is one per kind, order, attempt (and round for votes). The bodies are stored as well because a list that nobody
could complete after a crash would keep its signer from ever voting. `encode_message` and `decode_message` write it.
"""


@dataclass(frozen=True, slots=True)
class QuorumCertificate:
    """What `task_manager` accepts. `leaves`, `paths` and `commits` are the candidates', best first, or none."""

    task: Task
    round: int
    terms: OrderTerms
    leaves: tuple[BidLeaf, ...]
    paths: tuple[tuple[bytes, ...], ...]
    commits: tuple[SignedCommit, ...]
    votes: tuple[SignedVote, ...]
    """Of a quorum, ascending by signer."""
    signers: tuple[str, ...]
    """Vote keys of `votes`, in their order."""


@dataclass(frozen=True, slots=True)
class MatchNote:
    """An entry of the log that a replay shows: a message that was refused, a phase that closed, a vote not given."""

    at_ms: int
    """Since the lookup was seen here."""
    what: str
    code: int = 0
    """A reason code of the protocol, or 0."""
    subject: str = ""
    """Provider or vote key, or empty."""
    late_by_ms: int = 0


@dataclass(slots=True)
class MatchOutput:
    """What one step wants done, in this order: make `records` durable, then send, then submit.

    Nothing of the same step may leave the machine before its records are on disk.
    """

    records: list[SignedRecord] = field(default_factory=list)
    broadcast: list[MatchMessage] = field(default_factory=list)
    """To every other validator; bidders and gateways fetch the lists."""
    replies: list[MatchMessage] = field(default_factory=list)
    """To the sender of the message that this step received."""
    code: int = 0
    """Of a message that was refused (its reply is this code); 0 is an acknowledgement."""
    late_by_ms: int = 0
    certificate: QuorumCertificate | None = None
    """Ready to be submitted now: by the leader at once, by others when their rank's time has come. Given once."""
    notes: list[MatchNote] = field(default_factory=list)


@dataclass(slots=True)
class BidderOutput:
    """What a bidder sends in one step."""

    send: list[tuple[str, MatchMessage]] = field(default_factory=list)
    """To the validator with this vote key."""


class BidState(Enum):
    """How far a bid has come, as its provider knows it."""

    SENT = "sent"
    COMMITTED = "committed"
    """A validator's list names it."""
    CERTIFIED = "certified"
    """A quorum of lists names it."""
    REVEALED = "revealed"
    """Reveal lists worth more than a third of the stake name it."""
    WON = "won"
    STANDBY = "standby"
    LOST = "lost"
