"""`/v1/nodes/{node_id}/checks` and `/v1/verdicts/{verdict_id}`: where a node stands after the checks of its answers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

CheckStateName = Literal["unchecked", "passing", "suspect", "barred"]
VerdictKindName = Literal["rerun", "probe"]
VerdictResultName = Literal["passed", "failed"]


class CheckedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node's answer, as far as it is kept."""

    node: str
    owner: str
    """Who is one witness together: an account, a node that the operator vouches for, or a digest of either."""
    trusted: bool
    digest: str
    """SHA-256 of its pieces."""
    pieces: int
    text: list[str] | None
    """Its pieces, of a prompt of the network's own; of a customer's request nothing is kept."""


class CheckVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found of one node."""

    id: str
    check: str
    """The same for all nodes that were asked at once."""
    at_unix_s: float
    node: str
    kind: VerdictKindName
    result: VerdictResultName
    state: CheckStateName
    """Where it left the node."""
    model: str
    witness: str | None
    """Whose answer the node's was held against."""
    agreed: int | None
    """Pieces before the first difference, or all."""
    differs: bool | None
    difference: list[str] | None
    """Both answers around the first difference: the node's, then the witness's. None where no text is kept."""
    hazard: float
    """The chance of a piece to differ that an honest node was granted."""
    seed: str | None
    """Of the prompt, in hex, and the limits that its own was drawn from; None of a customer's request."""
    limits: list[int]
    prompt: list[dict[str, str]] | None
    answers: list[CheckedAnswer]
    before: list[CheckedAnswer]
    """The answers to the prompt before, which this one was to confirm; empty if there was none."""
    is_drift: bool
    """Whether it failed because the node's latest answers together differ too often, not by this one alone."""
    retrial_of: str | None
    retried: bool
    """Whether it had its one re-trial."""


class NodeChecks(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node stands, why, and what would change it."""

    object: Literal["node_checks"] = "node_checks"
    node: str
    name: str
    state: CheckStateName
    passed: int
    """Since its last failure."""
    failed_probes: int
    """In a row, on prompts of the network's own."""
    trusted: bool
    checked_share: float
    """Of its next jobs, how many are checked."""
    barred_until_unix_s: float | None
    sentences: list[str]
    verdicts: list[CheckVerdict]
    """The latest first. Others see those on prompts of the network's own."""
    withheld_nano: int | UnsetType = UNSET
    """Earned since its last passed check; for its owner and operators."""
    withheld_promo_nano: int | UnsetType = UNSET
