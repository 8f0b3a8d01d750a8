"""The live feed, `GET /v1/feed`: one `FeedSnapshot`, then `FeedDelta`s, as server-sent events. Public."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.api.market import OrderStateName

NodeStateName = Literal["online", "busy", "suspect", "offline", "draining", "paused"]
OutcomeName = Literal["running", "done", "failed", "refused", "timed_out", "cancelled"]


class NetworkTotals(msgspec.Struct, frozen=True, kw_only=True):
    nodes: dict[NodeStateName, int]
    """By state; states without nodes are left out."""
    gpus: int
    vram_gb: int
    jobs: int
    """Running now."""
    tokens_per_s: int
    """To two digits, over the last ten seconds."""
    first_token_ms: int | None
    """Median of the last minutes, to two digits."""


class FeedNode(msgspec.Struct, frozen=True, array_like=True):
    """The public view of a node. An array on the wire, in this order."""

    number: int
    """Deltas and matches refer to the node by it."""
    handle: str
    region: str
    longitude: float | None
    latitude: float | None
    vram_gb: int
    gpu_class: str
    gpus: int
    state: int
    """Its index in `FeedSnapshot.states`."""


class FeedMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The public view of a match. The account that made the request, and operators, get the details by its id."""

    id: str
    at: float
    """Unix seconds."""
    model: str
    outcome: OutcomeName
    candidates: int
    eligible: int
    nodes: list[int | None]
    """Numbers of the nodes of its attempts."""
    region: str | None
    """Of the last node."""
    size: Literal["XS", "S", "M", "L", "XL"]
    first_token_ms: int | None
    moved: int
    """Attempts that were given up for another node."""


class FeedAuction(msgspec.Struct, frozen=True, kw_only=True):
    """The newest auction of a lease order, with what its accepted certificate says. All of it is on the chain."""

    id: str
    at: int
    """When the attempt was opened, in Unix seconds."""
    attempt: int
    state: OrderStateName
    """Of the order."""
    gpus: int
    commit_ms: int
    """How long a validator takes sealed bids, and then what they hide."""
    reveal_ms: int
    bids: int | None
    """None until validators have certified a result."""
    votes: int
    """In the certificate."""
    voters: int
    """Validators with weight in this attempt."""
    share: float
    """Of the weight, that the votes have. More than two thirds are a quorum."""
    certified_at: int | None


class FeedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    states: list[NodeStateName]
    nodes: list[FeedNode]
    totals: NetworkTotals
    matches: list[FeedMatch]
    """The most recent ones, the latest first."""
    auctions: list[FeedAuction] = []
    """Of lease orders, the latest first; none without a chain."""


class FeedDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Fields without changes are left out."""

    at: float
    totals: NetworkTotals
    added: list[FeedNode] | UnsetType = UNSET
    """Nodes that are new or different."""
    nodes: list[int] | UnsetType = UNSET
    """Of the other nodes that changed: number and state, alternating."""
    matches: list[FeedMatch] | UnsetType = UNSET
    more_matches: int | UnsetType = UNSET
    """How many were left out of this frame."""
    auctions: list[FeedAuction] | UnsetType = UNSET
    """All that a snapshot would have, if one of them changed."""
