"""Replies of health, version, pulse, downloads and the chain; and the JSON-RPC calls that a gateway forwards."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.api.feed import NodeStateName

# health and version


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


class ReadinessCause(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    """`disk_full`, `journal_unwritable`, `database_unavailable` or `process_hung`."""
    message: str


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ready", "not_ready"] = "ready"
    """`not_ready` comes with status 503."""
    nodes_serving: int
    """Connected nodes with at least one measured model."""
    causes: list[ReadinessCause] = []
    """Why it is not ready; what explains the others comes first."""


class VersionInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    """Of the program."""
    api: Literal["v1"] = "v1"
    link_protocol: int
    """Of the WebSocket between gateway and nodes."""


# pulse


class PulseTotals(msgspec.Struct, frozen=True, kw_only=True):
    nodes: dict[NodeStateName, int]
    """By state; states without nodes are left out."""
    gpus: int
    """Of nodes that are not offline."""
    vram_gb: int
    """Of nodes that are not offline."""


class PulseModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is served or was requested. Requests and tokens are counted since the gateway started."""

    id: str
    nodes: int
    """Nodes that have it and are not offline."""
    warm: int
    """Those of them that have it loaded."""
    running: int
    waiting: int
    requests: dict[str, int]
    """Finished ones by outcome: done, failed, rejected, cancelled."""
    prompt_tokens: int
    completion_tokens: int
    """Including running jobs."""
    first_token_counts: list[int]
    """Histogram of the time until the first token: one count per bound of `first_token_bounds_s`, and one above."""


class PulseNode(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    region: str
    gpu: str
    state: NodeStateName
    paused: str | None
    """Why its owner's rules pause it; None if they do not."""
    running: int
    queued: int
    slots: int
    tokens: int
    """Written since the gateway started, including running jobs."""
    jobs_done: int
    jobs_failed: int
    rtt_ms: float
    """Round trip of a ping on its link."""
    power_watts: float | None
    temperature_c: float | None
    """Of its hottest GPU."""
    utilisation: float | None
    """Mean of its GPUs, from 0 to 1."""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """Counts only grow, so that a client computes rates from two replies with the same `instance`."""

    object: Literal["pulse"] = "pulse"
    at: float
    """Unix seconds."""
    started_at: float
    """Unix seconds."""
    instance: str
    """Changes with a restart, which resets all counts to zero."""
    totals: PulseTotals
    running: int
    waiting: int
    tokens_written: int
    errors: dict[str, int]
    """By code."""
    first_token_bounds_s: list[float]
    """Upper bounds of the buckets of `PulseModel.first_token_counts`."""
    models: list[PulseModel]
    busiest: list[PulseNode]
    """With the most running jobs first."""
    troubled: list[PulseNode]
    """Neither online nor busy, or disconnected for less than an hour; with the most failed jobs first."""


# downloads


class WheelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's own release as a Python wheel."""

    version: str
    name: str
    """File name; it is served at `/dl/{name}`."""
    url: str
    """With the hash as its fragment, which pip verifies."""
    sha256: str
    bytes: int
    """Size of the file."""
    install: str
    """A shell command that installs it."""


# chain


class ChainStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Fields about the index are None until the gateway follows a chain."""

    object: Literal["chain"] = "chain"
    rpc: str | None
    """Path of the JSON-RPC proxy; None if this network has no chain."""
    chain_id: int | None
    contracts: dict[str, str]
    """Addresses by name."""
    start_block: int | None
    """The first block that is indexed."""
    indexed_block: int | None
    head_block: int | None
    """The latest block that the follower has seen."""
    events: int
    """In the index."""
    outbox: dict[str, int]
    """Transactions of the gateway by state."""
    senders: dict[str, int] = {}
    """How many of them are under way, by the address of the key that sends and pays them."""
    payout_roots: str | None = None
    """What payout roots wait for: their delay, or a person; None if for nothing."""
    note: str | None
    """Why there is no chain; None if there is one."""


class JsonRpcCall(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    # A factory, because msgspec cannot write a default of this type into a JSON schema.
    params: Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": ["array", "object"]})] = msgspec.field(
        default_factory=lambda: msgspec.Raw(b"[]")
    )
    id: int | str | None = None
    jsonrpc: str = "2.0"


class JsonRpcError(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str
    data: msgspec.Raw | UnsetType = UNSET


class JsonRpcReply(msgspec.Struct, frozen=True, kw_only=True):
    """Has either a result or an error."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: int | str | None
    result: msgspec.Raw | UnsetType = UNSET
    error: JsonRpcError | UnsetType = UNSET
