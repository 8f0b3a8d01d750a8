"""`/v1/matches` and `/v1/match`: why a job went to a node, and not to the others; and dry runs, which send nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt.protocol.api.feed import OutcomeName
from sparewatt.protocol.link.node_report import Capability

RejectionName = Literal[
    "no_model",
    "offline",
    "draining",
    "prompt_too_long",
    "too_little_vram",
    "not_measured",
    "full",
    "not_timed",
    "suspended",
    "already_tried",
    "not_shortlisted",
]
SortName = Literal["price", "throughput", "latency"]
_Tokens = Annotated[int, Meta(ge=1, le=1 << 24)]


class DryRunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_tokens: _Tokens = 500
    max_tokens: _Tokens | None = None
    policy: str | None = None
    """How candidates are ranked: `fast`, `balanced`, `economy` or `neuralgrid`; by default as the gateway is set."""
    provider: Annotated[
        msgspec.Raw,
        Meta(description="Who may serve it: docs/reference/policy.md.", extra_json_schema={"type": "object"}),
    ] = msgspec.field(default_factory=msgspec.Raw)
    """Which nodes may serve it, in the vocabulary of `policy/`."""
    capabilities: Annotated[list[Capability], Meta(max_length=32)] = msgspec.field(default_factory=list)
    """What a node's model must be able to do."""


class MatchPreference(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the request that differ from its ranking policy."""

    sort: SortName | None
    weights: dict[str, float]
    """Factors by part of the cost; 1 is as usual, 0 not at all."""


class JobEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The matcher's estimate of a job's size."""

    prompt_tokens: int
    output_tokens: int
    vram_needed_bytes: int | None
    """By the best candidate's copy of the model, since quantizations differ; None if there is no candidate."""


class FunnelStep(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of the matcher, or one field of the request's policy."""

    filter: str
    dropped: int
    left: int


class NodeRejection(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str | None
    """None if the node is not in the network any more."""
    reason: RejectionName
    detail: str
    """The reason as a sentence without its subject."""


class RankedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that passed all filters."""

    node: str
    name: str | None
    region: str | None
    cost_s: float | None
    """The lowest wins. None where the policy scores."""
    score: float | None
    """The highest wins. None where the policy predicts seconds."""
    parts: dict[str, float]
    """What the cost or the score is the sum of, in the same unit."""
    predicted_ttft_s: float
    """Time to the first token."""
    cached_tokens: int
    """Tokens of the prompt that are expected in the node's prefix cache."""
    price_usd: str
    quantization: str | None = None
    """Of the model on this node, as it reports it now."""
    served_as: str | None = None
    """What the node's server calls the model, if not as the network does."""


class DecisionExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The matcher's decision: the fields that a past match and a dry run share."""

    policy: str
    model: str
    preference: MatchPreference | None
    """None if the request sets no weights of its own."""
    job: JobEstimate
    candidates_total: int
    funnel: list[FunnelStep]
    """In the order in which the filters run."""
    rejected: list[NodeRejection]
    """Some of the nodes that have the model and were rejected."""
    ranked: list[RankedNode]
    """The best candidates, best first."""
    chosen: str | None
    """The best candidate; of a past match the node of its last attempt."""
    nearest_relaxations: list[str]
    """Changes that would make a node eligible, the smallest first. Empty if one was eligible."""
    is_trial: bool = False
    """Whether the first candidate got the job because this network has not timed it yet, whatever it costs."""


class ContinuationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the answer earlier nodes had written when this node took over."""

    tokens: int
    chars: int


class MatchAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One node's attempt at a job. Times are milliseconds since the request arrived."""

    node: str
    name: str | None
    outcome: OutcomeName
    reason: str | None
    started_ms: float
    first_token_ms: float | None
    """None also where the answer was not streamed: then it arrived all at once."""
    ended_ms: float | None
    tokens: int
    chars: int
    continued_from: ContinuationPoint | None
    """None if the node began the answer."""


class MatchReassignment(msgspec.Struct, frozen=True, kw_only=True):
    """Why this node took over after the one before it had failed."""

    attempt: int
    """Its index in `attempts`."""
    after_tokens: int
    """Tokens that the client had received by then."""
    chosen: str
    candidates: list[RankedNode]


class MatchExplanation(DecisionExplanation, frozen=True, kw_only=True):
    """A past match, or one whose job still runs."""

    match_id: str
    dry_run: bool = False
    created_at: float
    """Unix seconds."""
    outcome: OutcomeName
    streamed: bool
    attempts: list[MatchAttempt]
    moves: list[MatchReassignment]
    """One for each attempt after the first."""


class DryRunExplanation(DecisionExplanation, frozen=True, kw_only=True):
    """A match that was not made: no id, no attempts, nothing stored."""

    match_id: None = None
    dry_run: bool = True
    outcome: Literal["none"] = "none"
    attempts: list[MatchAttempt] = []
    """Empty, like `moves`: a reader of a `MatchExplanation` expects both."""
    moves: list[MatchReassignment] = []
    why_nobody: str | msgspec.UnsetType = msgspec.UNSET
    """The error that a request would get. Present only if no node can serve the job."""
    policy_effective: dict[str, Any]
    """The composed policy of network, account, key and request."""
    created_at: float
    """Unix seconds."""


class MatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    match_id: str
    created_at: float
    """Unix seconds."""
    model: str
    policy: str
    key_id: str
    outcome: OutcomeName
    candidates_total: int
    streamed: bool
    attempts: list[MatchAttempt]


class MatchList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[MatchSummary]
    """The latest first."""
