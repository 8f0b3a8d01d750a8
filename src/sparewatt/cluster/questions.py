"""What the processes of one gateway ask each other: the whole table. JSON over loopback, bounded, with a deadline each.

READY      by the parent: does it take links, does it take clients? And whether it may
NEWS       to all, twice a second: their load, which nodes they have links to, what the live feed shows
MATCH      to all, for a match that is not here            MATCHES   to all, for a list of matches
WHY        to all, for a node's owner                      WORK      to all, for what nodes do
COUNTS     to all, for an operator's pulse
GIVE_BACK  to all, when an account's credits do not suffice here: release what is free of them there
SYNC       to all, when a key or an account was changed here: read the database now
CANCEL     to all, for a response that is not written here
CLAIM      to the owner of an Idempotency-Key              SETTLE    to the same one, when the answer is there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import JOB_TIMEOUT_S, SIBLING_ASK_S
from sparewatt.inference.dispatch.why import LossSummary
from sparewatt.protocol.api.feed import FeedMatch
from sparewatt.protocol.api.matches import MatchSummary

A = TypeVar("A")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PeerQuestion(Generic[A, T_co]):
    name: str
    request: type[A]
    reply: type[T_co]
    within_s: float = SIBLING_ASK_S


class EmptyMessage(msgspec.Struct, frozen=True):
    pass


class YesReply(msgspec.Struct, frozen=True):
    yes: bool


class ReadyRequest(msgspec.Struct, frozen=True):
    may_open: bool
    """Whether it may take clients: at the start not before all processes take links."""


class ReadyReply(msgspec.Struct, frozen=True):
    is_in: bool
    """It takes links, and answers the others."""
    is_open: bool
    """It takes clients as well."""


class NewsRequest(msgspec.Struct, frozen=True):
    number: int
    """Who asks."""
    known: str = ""
    """The version of the list of nodes that the asker has."""
    watching: bool = False
    """Somebody watches the live feed at the asker."""


class SharedMatch(msgspec.Struct, frozen=True):
    """A match for another process's live feed: what a stranger may see, and which nodes it means."""

    public: FeedMatch
    nodes: list[str]


class NewsReply(msgspec.Struct, frozen=True):
    run: str
    """Another one after a restart."""
    version: str
    nodes: list[str] | None
    """Those that have a link to it; None if the asker knows."""
    jobs: int
    tokens_per_s: float
    first_token_ms: float | None
    """The median of the last `first_tokens`."""
    first_tokens: int
    held: dict[KeyId, int]
    """What keys with a budget hold there, or have spent and not yet in the books."""
    matches: list[SharedMatch]


class MatchRequest(msgspec.Struct, frozen=True):
    id: str


class MatchReply(msgspec.Struct, frozen=True):
    key_id: str = ""
    explanation: msgspec.Raw = msgspec.Raw()
    """Empty: it is not there."""


class MatchesRequest(msgspec.Struct, frozen=True):
    account: str | None
    """Whose; None for everybody's."""
    limit: int


class MatchesReply(msgspec.Struct, frozen=True):
    matches: list[MatchSummary]


class WhyRequest(msgspec.Struct, frozen=True):
    node: str
    count: int
    since_unix_s: float


class WhyReply(msgspec.Struct, frozen=True):
    """A `Why` as it travels."""

    matches: int
    sent: dict[str, int]
    rejected: dict[str, int]
    lost: LossSummary
    ruled_out: int
    unlisted: int


class NodeWork(msgspec.Struct, frozen=True):
    in_flight: int
    done: int
    failed: int


class WorkReply(msgspec.Struct, frozen=True):
    nodes: dict[str, NodeWork]
    """Those that did something for it."""


class CountsRequest(msgspec.Struct, frozen=True):
    nodes: list[str]
    """Those that will be shown."""


class ModelCounts(msgspec.Struct, frozen=True):
    running: int
    waiting: int
    requests: dict[str, int]
    """By how they ended."""
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
    """Another one after a restart: counts began anew."""
    running: int
    waiting: int
    tokens_written: int
    errors: dict[str, int]
    models: dict[str, ModelCounts]
    """Those that were asked for."""
    nodes: dict[str, NodeCounts]


class GiveBackRequest(msgspec.Struct, frozen=True):
    account: str


class CancelRequest(msgspec.Struct, frozen=True):
    response_id: str
    key_id: str


class CancelReply(msgspec.Struct, frozen=True):
    response: dict[str, Any] | None = None
    """As it stands then; None: it is not there."""


class IdempotentAnswer(msgspec.Struct, frozen=True):
    body: bytes
    headers: dict[str, str]


class ClaimRequest(msgspec.Struct, frozen=True):
    """Names the request by its API key and its Idempotency-Key, and itself by a token that nobody else has."""

    number: int
    token: str
    key: str
    name: str
    digest: bytes


class ClaimReply(msgspec.Struct, frozen=True):
    state: str
    """`new`: produce it, and settle. `answered`: here it is. `conflict`, `mismatch`, `busy`: as the errors of these
    names.
    """
    answer: IdempotentAnswer | None = None


class SettleRequest(msgspec.Struct, frozen=True):
    token: str
    key: str
    name: str
    answer: IdempotentAnswer | None
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
CLAIM = PeerQuestion("claim", ClaimRequest, ClaimReply, within_s=JOB_TIMEOUT_S)
SETTLE = PeerQuestion("settle", SettleRequest, YesReply)
