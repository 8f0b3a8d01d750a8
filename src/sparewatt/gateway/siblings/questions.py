"""What the processes of one gateway ask each other: the whole table. JSON over loopback, bounded, with a deadline each.

READY      asked by the parent: does it take links, does it take clients? And whether it may
NEWS       of all, twice a second: how they are, whom they have links to, what the live feed shows
MATCH      of all, for a match that is not here            MATCHES   of all, for a list of matches
WHY        of all, for a node's owner                      WORK      of all, for what nodes do
COUNTS     of all, for an operator's pulse
GIVE_BACK  of all, when an account's money does not suffice here: let go of what is free of it there
SYNC       of all, when a key or an account was changed here: look now
CANCEL     of all, for an answer that is not written here
CLAIM      of the one that keeps this Idempotency-Key      SETTLE    of the same one, when the answer is there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import JOB_TIMEOUT_S, SIBLING_ASK_S
from sparewatt.inference.dispatch.why import Losses

A = TypeVar("A")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Question(Generic[A, T_co]):
    name: str
    asked: type[A]
    told: type[T_co]
    within_s: float = SIBLING_ASK_S


class Nothing(msgspec.Struct, frozen=True):
    pass


class Yes(msgspec.Struct, frozen=True):
    yes: bool


class ReadyAsked(msgspec.Struct, frozen=True):
    may_open: bool
    """Whether it may take clients: at the start not before all processes take links."""


class ReadyTold(msgspec.Struct, frozen=True):
    is_in: bool
    """It takes links, and answers the others."""
    is_open: bool
    """It takes clients as well."""


class NewsAsked(msgspec.Struct, frozen=True):
    number: int
    """Who asks."""
    known: str = ""
    """The version of the list of nodes that the asker has."""
    watching: bool = False
    """Somebody watches the live feed at the asker."""


class Passed(msgspec.Struct, frozen=True):
    """A match for another process's live feed: what a stranger may see, and which nodes it means."""

    public: dict[str, Any]
    nodes: list[str]


class News(msgspec.Struct, frozen=True):
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
    matches: list[Passed]


class MatchAsked(msgspec.Struct, frozen=True):
    id: str


class MatchTold(msgspec.Struct, frozen=True):
    key_id: str = ""
    explanation: msgspec.Raw = msgspec.Raw()
    """Empty: it is not there."""


class MatchesAsked(msgspec.Struct, frozen=True):
    account: str | None
    """Whose; None for everybody's."""
    limit: int


class MatchesTold(msgspec.Struct, frozen=True):
    matches: list[dict[str, Any]]


class WhyAsked(msgspec.Struct, frozen=True):
    node: str
    count: int
    since_unix_s: float


class WhyTold(msgspec.Struct, frozen=True):
    """A `Why` as it travels."""

    matches: int
    sent: dict[str, int]
    rejected: dict[str, int]
    lost: Losses
    ruled_out: int
    unlisted: int


class NodeWork(msgspec.Struct, frozen=True):
    in_flight: int
    done: int
    failed: int


class WorkTold(msgspec.Struct, frozen=True):
    nodes: dict[str, NodeWork]
    """Those that did something for it."""


class CountsAsked(msgspec.Struct, frozen=True):
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


class GiveBackAsked(msgspec.Struct, frozen=True):
    account: str


class CancelAsked(msgspec.Struct, frozen=True):
    response_id: str
    key_id: str


class CancelTold(msgspec.Struct, frozen=True):
    response: dict[str, Any] | None = None
    """As it stands then; None: it is not there."""


class KeptAnswer(msgspec.Struct, frozen=True):
    body: bytes
    headers: dict[str, str]


class ClaimAsked(msgspec.Struct, frozen=True):
    """Names the request by its API key and its Idempotency-Key, and itself by a token that nobody else has."""

    number: int
    token: str
    key: str
    name: str
    digest: bytes


class ClaimTold(msgspec.Struct, frozen=True):
    state: str
    """`new`: produce it, and settle. `answered`: here it is. `conflict`, `mismatch`: as the errors of these names."""
    answer: KeptAnswer | None = None


class SettleAsked(msgspec.Struct, frozen=True):
    token: str
    key: str
    name: str
    answer: KeptAnswer | None
    keep: bool


READY = Question("ready", ReadyAsked, ReadyTold)
NEWS = Question("news", NewsAsked, News)
MATCH = Question("match", MatchAsked, MatchTold)
MATCHES = Question("matches", MatchesAsked, MatchesTold)
WHY = Question("why", WhyAsked, WhyTold)
WORK = Question("work", Nothing, WorkTold)
COUNTS = Question("counts", CountsAsked, Counts)
GIVE_BACK = Question("give_back", GiveBackAsked, Yes)
SYNC = Question("sync", Nothing, Yes)
CANCEL = Question("cancel", CancelAsked, CancelTold, within_s=15.0)
CLAIM = Question("claim", ClaimAsked, ClaimTold, within_s=JOB_TIMEOUT_S)
SETTLE = Question("settle", SettleAsked, Yes)
