"""The HTTP API of a validator: what bidders, gateways, other validators and operators ask it, and its replies.

Messages of a match are JSON objects as `protocol.contracts.match_messages` writes them; they carry their own
signatures, so nothing here is authenticated otherwise. Ids, keys and addresses are lower-case hex, amounts are µUSD.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MESSAGES_PATH = "/v1/match/messages"
HEARTBEATS_PATH = "/v1/heartbeats"
SNAPSHOT_MESSAGES_PATH = "/v1/snapshots/messages"
OUTAGE_MESSAGES_PATH = "/v1/outages/messages"
STATUS_PATH = "/v1/validator"
WAIT_MS_MAX = 5_000
"""Of a long poll for a match's progress."""

ServiceStatus = Literal["Up", "Down", "Initializing"]
PhaseName = Literal["commit", "reveal", "vote", "certified", "over"]


def progress_path(order_id: str, attempt: int) -> str:
    return f"/v1/match/{order_id}/{attempt}"


def record_path(order_id: str, attempt: int) -> str:
    return f"/v1/match/{order_id}/{attempt}/record"


def attempts_path(order_id: str) -> str:
    return f"/v1/match/{order_id}"


def snapshot_path(epoch: int) -> str:
    return f"/v1/snapshots/{epoch}"


class MessageReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one message of a match, of a snapshot or about an outage."""

    code: int = 0
    """0 is an acknowledgement, else a reason code of the protocol."""
    reason: str | None = None
    """The code's name, such as LATE."""
    late_by_ms: int = 0
    replies: list[dict[str, Any]] = []
    """Messages to the sender, of the same kind as the one that was sent."""


class RefusedBidder(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    code: int
    late_by_ms: int = 0


class MatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A match as one validator sees it. `?have=VERSION&wait_ms=N` waits for a newer version."""

    order_id: str
    attempt: int
    version: int
    """Rises with every change, and begins anew at 1 when the validator is restarted."""
    run_id: str
    """Of this run of the validator: another one means that versions began anew."""
    phase: PhaseName
    round: int
    commit_lists: list[dict[str, Any]] = []
    """All that it holds, contradictory ones included."""
    reveal_lists: list[dict[str, Any]] = []
    declines: list[dict[str, Any]] = []
    votes: list[dict[str, Any]] = []
    certificate: dict[str, Any] | None = None
    refused: list[RefusedBidder] = []


class RecordedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one order: the attempts whose record this validator has."""

    order_id: str
    attempts: list[int]


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heartbeat: dict[str, Any]
    """As `message_json` writes it."""
    signature: str


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 0
    reason: str | None = None
    challenge: str
    """What the next heartbeat answers."""
    seq: int = 0
    """The highest that was accepted: the next one is above it."""


class EpochTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of an epoch and what it was made of: anyone can recompute both."""

    epoch: int
    height: int
    root: str
    inputs_hash: str
    profiles: list[dict[str, Any]]
    observations: list[dict[str, Any]]
    """Signed, one per validator."""


class ValidatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    vote_key: str
    registered_vote_key: str = ""
    """As it stands in the stake registry: another one has the weight until the one in use is registered."""
    chain_id: int
    genesis_hash: str
    task_manager: str
    url: str
    """As it stands in the stake registry; empty before it joined."""
    block_number: int
    is_syncing: bool
    stake_uusd: int
    pending_uusd: int
    unbonding_uusd: int
    weight: int
    """At the current stake version."""
    total_weight: int
    validators: int
    """That have weight."""
    is_jailed: bool
    snapshot_epoch: int
    open_matches: int
    votes_cast: int
    """Since it was started, as all counts below."""
    certificates_seen: int
    certificates_signed: int
    """Of those seen, how many have its vote."""
    certificates_submitted: int
    rounds_missed: int
    """Rounds of matches that ended without its vote."""
    messages_refused: int
    heard_providers: int
    peers: list[PeerStatus] = []
    run_id: str
    version: str


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    vote_key: str
    operator: str
    url: str
    weight: int
    is_reachable: bool
    queued: int
    dropped: int
    """Messages that did not fit into its queue; the match sends them again."""


class SignedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One signature of this validator, from its write-ahead file."""

    kind: Literal["commit_list", "reveal_list", "vote", "snapshot", "observations", "down"]
    signed_at: int
    """Chain time."""
    order_id: str | None = None
    attempt: int | None = None
    round: int | None = None
    epoch: int | None = None
    term: int | None = None
    """Of a lease whose provider is down."""
    hash: str
    """Of the struct that was signed."""
    items: int = 0
    """Bids that a list names, or providers that were observed."""


class EigenNode(msgspec.Struct, frozen=True, kw_only=True):
    """`/eigen/node`, as EigenLayer's AVS node API has it."""

    node_name: str
    spec_version: str
    node_version: str


class EigenService(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    status: ServiceStatus


class EigenServices(msgspec.Struct, frozen=True, kw_only=True):
    services: list[EigenService]
