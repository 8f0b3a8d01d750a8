"""The reply of `GET /v1/leases/{id}/match`: one attempt of an order, from its lookup to the certificate.

The chain's part (order, phase, certificate's transaction) is read from its events. The rest was collected from
validators: a signature is checked before anything is shown under a name, and what nobody signed (refusals, times) is
shown with the validator that said it. Ids, hashes and addresses are lower-case hex, times Unix seconds, prices dollars
per hour for the whole lease as exact decimal strings.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MatchPhaseName = Literal["commit", "reveal", "vote", "certified", "matched", "unmatched", "over"]
"""`certified`: a quorum has signed, and the chain does not have it yet. `over`: the order ended without one."""
MatchBidState = Literal[
    "refused",
    "committed",
    "uncertified",
    "certified",
    "unrevealed",
    "rejected",
    "eligible",
    "won",
    "standby",
    "lost",
]


class AuctionPhase(msgspec.Struct, frozen=True, kw_only=True):
    name: MatchPhaseName
    round: int
    """The highest that a validator reports."""
    ends_in_ms: int | None
    """Of commit and reveal: the order's window less what has gone by since this gateway saw the lookup; an estimate,
    since each validator has its own clock. Of `vote` and `certified`: until the attempt times out on the chain."""


class MatchCounts(msgspec.Struct, frozen=True, kw_only=True):
    asked: int
    """Nodes that this gateway sent the lookup to."""
    bids: int
    """Commits with a valid signature."""
    declines: int
    certified: int
    """Named by commit lists of a quorum."""
    revealed: int
    eligible: int
    by_reason: dict[str, int]
    """Why bids and providers got no further: names of the reason codes, of bids, refusals and declines."""


class MatchScore(msgspec.Struct, frozen=True, kw_only=True):
    """score = (price + latency value * round trip) * 1,000,000 / p_ok; the lowest wins."""

    score: str
    """A decimal integer: it does not fit a double."""
    price_uusd: int
    latency_uusd: int
    """Latency value * round trip."""
    rtt_ms: int
    p_ok_ppm: int
    """Uptime * reputation."""
    uptime_ppm: int
    reputation_ppm: int


class MatchBid(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    bid_id: str | None
    """None of one that was refused before its commit was read."""
    state: MatchBidState
    status: int
    """A code of `reasons`; 0 while nothing speaks against it."""
    reason: str | None
    """The code's name; None with status 0."""
    price_usd: str | None
    """None until it is revealed."""
    score: MatchScore | None
    """None until it is revealed, and if it is not eligible."""
    rank: int | None
    """Among the eligible, from 1."""
    committed_at: list[str]
    """Vote keys whose signed commit lists name it."""
    revealed_at: list[str]
    """Vote keys whose signed reveal lists name it."""


class MatchDecline(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    code: int
    reason: str
    """Signed by the provider's node key."""


class MatchRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a validator did not take. Its own word: nobody signs it."""

    validator: str
    provider: str
    code: int
    reason: str
    late_by_ms: int


class MatchListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A signed list: the inclusion receipt of every bid that it names."""

    kind: Literal["commit", "reveal"]
    validator: str
    bid_ids: list[str]


class MatchVote(msgspec.Struct, frozen=True, kw_only=True):
    validator: str
    round: int
    task_digest: str
    agrees: bool | None
    """With the accepted certificate; None while there is none."""


class MatchVoter(msgspec.Struct, frozen=True, kw_only=True):
    """A validator with weight at the order's stake version."""

    vote_key: str
    operator: str
    weight_usd: str
    leads: list[int]
    """Rounds that it leads, of those up to the one reached."""
    heard: bool
    """Whether this gateway got an answer from it about this attempt."""
    problem: str | None
    """Why not, or what was wrong with what it served."""


class MatchCandidate(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    position: int
    """0 is the winner, others are stand-ins."""
    price_usd: str
    pay_usd: str
    """What it is paid if it has the lease: of the winner by the payment rule, of a stand-in its own price."""


class MatchCertificate(msgspec.Struct, frozen=True, kw_only=True):
    task_digest: str
    round: int
    bid_count: int
    bid_root: str
    candidates: list[MatchCandidate]
    pay_usd: str | None
    """None if nobody was eligible."""
    signers: list[str]
    """Vote keys, ascending."""
    tx: str | None
    """None until the chain has accepted one."""
    accepted_at: int | None


class MatchRelaxation(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change of one field that would have admitted a provider."""

    field: str
    value: str
    providers: int
    """How many more it would admit."""


class MatchOrderSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    renter: str
    state: str
    reason: str | None
    attempt: int
    max_attempts: int
    opened_at: int
    expires_at: int
    max_hourly_usd: str
    gpu_units: int
    duration_s: int
    commit_ms: int
    reveal_ms: int
    stake_version: int
    snapshot_epoch: int
    refunded: bool
    """Whether an ended order's deposit has left the escrow contract for good."""


class LeaseMatch(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["lease_match"] = "lease_match"
    order: MatchOrderSummary
    attempt: int
    """The one shown; `?attempt=` chooses an earlier one."""
    attempts: list[int]
    """Those that this gateway has something about."""
    version: int
    """Grows with every change: `?have=N&wait_ms=M` answers when there is more than N, after M at the latest."""
    phase: AuctionPhase
    counts: MatchCounts
    why: str | None
    """One sentence on an attempt without a winner: '0 bids because …'."""
    relaxations: list[MatchRelaxation]
    """Nearest first; only of an attempt without a winner."""
    bids: list[MatchBid]
    """By rank, then those that were not eligible."""
    declines: list[MatchDecline]
    refusals: list[MatchRefusal]
    lists: list[MatchListEntry]
    votes: list[MatchVote]
    """By round, then vote key."""
    voters: list[MatchVoter]
    certificate: MatchCertificate | None
    record: bool
    """Whether a validator's whole record is kept: `/match/record` has it, for `validator replay`."""


class LeaseMatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    order_id: str
    attempt: int
    validator: str
    """The vote key of the validator whose record it is. Everything in it but its notes is signed."""
    record: msgspec.Raw
