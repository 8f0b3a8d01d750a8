"""The questions that the processes of one gateway ask each other. JSON over loopback, bounded, each with a deadline.

READY      by the parent: does the process accept links, and clients? It also gives the permission to
NEWS       to all, twice a second: their load, the nodes they have links to, matches for the live feed
MATCH      to all, for a match that is not in memory here  MATCHES   to all, for a list of matches
WHY        to all, for a node's owner                      WORK      to all, for the jobs of nodes
COUNTS     to all, for an operator's pulse
GIVE_BACK  to all, if an account's credits do not suffice here: release unused ones there
SYNC       to all, after a key or an account was changed here: read the database now
CANCEL     to all, for a response that another process writes
REDEEM     to the process that made a ticket for a lease's socket
CLAIM      to the owner of an Idempotency-Key              SETTLE    to the same one, when the answer is complete
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import JOB_TIMEOUT_S, MIB
from sparewatt.edge.idempotency import CachedAnswer
from sparewatt.inference.dispatch.why import LossSummary
from sparewatt.inference.fleet.unmet_demand import WantedModel
from sparewatt.protocol.api.feed import FeedMatch
from sparewatt.protocol.api.matches import MatchSummary

PEER_REPLY_S = 1.0
"""For a reply on loopback: each is a millisecond's work."""
PEER_BODY_BYTES_MAX = 16 * MIB
"""One message: a list of a hundred thousand nodes takes five."""
A = TypeVar("A")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PeerQuestion(Generic[A, T_co]):
    name: str
    request: type[A]
    reply: type[T_co]
    within_s: float = PEER_REPLY_S


class EmptyMessage(msgspec.Struct, frozen=True):
    pass


class YesReply(msgspec.Struct, frozen=True):
    yes: bool


class ReadyRequest(msgspec.Struct, frozen=True):
    may_open: bool
    """Whether the process may accept clients: at the start not before all processes accept links."""


class ReadyReply(msgspec.Struct, frozen=True):
    is_in: bool
    """It accepts links, and answers the others."""
    is_open: bool
    """It accepts clients as well."""


class NewsRequest(msgspec.Struct, frozen=True):
    number: int
    """Of the process that asks."""
    known: str = ""
    """The version of the list of nodes that it has."""
    watching: bool = False
    """Whether its live feed has viewers."""


class SharedMatch(msgspec.Struct, frozen=True):
    """A match for another process's live feed: its public part, and the ids of its nodes."""

    public: FeedMatch
    nodes: list[str]


class NewsReply(msgspec.Struct, frozen=True):
    run: str
    """Changes with a restart."""
    version: str
    nodes: list[str] | None
    """Those with a link to it; None if the list is the known one."""
    jobs: int
    tokens_per_s: float
    first_token_ms: float | None
    """The median of the last `first_tokens`."""
    first_tokens: int
    held: dict[KeyId, int]
    """What keys with a budget have on hold there, or have spent and is not posted yet."""
    matches: list[SharedMatch]


class MatchRequest(msgspec.Struct, frozen=True):
    id: str


class MatchReply(msgspec.Struct, frozen=True):
    key_id: str = ""
    explanation: msgspec.Raw = msgspec.Raw()
    """Empty if the match is not in memory there."""


class MatchesRequest(msgspec.Struct, frozen=True):
    account: str | None
    """None: of all accounts."""
    limit: int


class MatchesReply(msgspec.Struct, frozen=True):
    matches: list[MatchSummary]


class WhyRequest(msgspec.Struct, frozen=True):
    node: str
    count: int
    since_unix_s: float


class WhyReply(msgspec.Struct, frozen=True):
    matches: int
    sent: dict[str, int]
    rejected: dict[str, int]
    lost: LossSummary
    ruled_out: int
    unlisted: int
    wanted: list[WantedModel] = []
    overclaimed: int = 0


class NodeWork(msgspec.Struct, frozen=True):
    in_flight: int
    done: int
    failed: int


class WorkReply(msgspec.Struct, frozen=True):
    nodes: dict[str, NodeWork]
    """Only nodes that had jobs."""


class CountsRequest(msgspec.Struct, frozen=True):
    nodes: list[str]
    """Those to be shown."""


class ModelCounts(msgspec.Struct, frozen=True):
    running: int
    waiting: int
    requests: dict[str, int]
    """By how the job ended."""
    prompt_tokens: int
    completion_tokens: int
    first_token_counts: list[int]
    """By bucket."""


class NodeCounts(msgspec.Struct, frozen=True):
    tokens: int
    done: int
    failed: int


class Counts(msgspec.Struct, frozen=True):
    instance: str
    """Changes with a restart, after which counts begin at zero."""
    running: int
    waiting: int
    tokens_written: int
    errors: dict[str, int]
    models: dict[str, ModelCounts]
    """Models that were requested."""
    nodes: dict[str, NodeCounts]


class GiveBackRequest(msgspec.Struct, frozen=True):
    account: str


class CancelRequest(msgspec.Struct, frozen=True):
    response_id: str
    key_id: str


class CancelReply(msgspec.Struct, frozen=True):
    response: dict[str, Any] | None = None
    """After the cancellation; None if the process does not write it."""


class RedeemRequest(msgspec.Struct, frozen=True):
    ticket: str


class RedeemReply(msgspec.Struct, frozen=True):
    account: str | None = None
    """Whose ticket it was; None if it is unknown, used or too old."""
    lease: str = ""


class ClaimRequest(msgspec.Struct, frozen=True):
    """`key` and `name`: the API key and the Idempotency-Key. `token`: identifies this claim."""

    number: int
    token: str
    key: str
    name: str
    digest: bytes


class ClaimReply(msgspec.Struct, frozen=True):
    state: str
    """`new`: produce the answer, then settle. `answered`: see `answer`. Else one of the errors of `Idempotency`."""
    answer: CachedAnswer | None = None


class SettleRequest(msgspec.Struct, frozen=True):
    token: str
    key: str
    name: str
    answer: CachedAnswer | None
    keep: bool


READY = PeerQuestion("ready", ReadyRequest, ReadyReply)
NEWS = PeerQuestion("news", NewsRequest, NewsReply)
MATCH = PeerQuestion("match", MatchRequest, MatchReply)
MATCHES = PeerQuestion("matches", MatchesRequest, MatchesReply)
WHY = PeerQuestion("why", WhyRequest, WhyReply)
WORK = PeerQuestion("work", EmptyMessage, WorkReply)
COUNTS = PeerQuestion("counts", CountsRequest, Counts)
GIVE_BACK = PeerQuestion("give_back", GiveBackRequest, YesReply)
SYNC = PeerQuestion("sync", EmptyMessage, YesReply)
CANCEL = PeerQuestion("cancel", CancelRequest, CancelReply, within_s=15.0)
REDEEM = PeerQuestion("redeem", RedeemRequest, RedeemReply)
CLAIM = PeerQuestion("claim", ClaimRequest, ClaimReply, within_s=JOB_TIMEOUT_S)
SETTLE = PeerQuestion("settle", SettleRequest, YesReply)
