"""`/v1/usage`: what an account used, in groups or job by job; `/v1/generation`: one job, in OpenRouter's shape.

Amounts are in dollars (`…_usd`, an exact decimal string) and in nano-dollars (`…_nano`, an integer of 1e-9 $).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.protocol.api.credits import UsdNumber
from sparewatt.protocol.api.earnings import AttemptEarnings

JobStateName = Literal["done", "failed", "cancelled"]


class UsageGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one day, model or key."""

    name: str
    """A day (UTC) as YYYY-MM-DD, a model's id, or a key's id."""
    jobs: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: str
    cost_nano: int
    promo_usd: str
    """How much of the cost was paid with free credits."""
    promo_nano: int


class UsageGroupList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[UsageGroup]
    next: str | None
    """`after` of the next page; None on the last page."""


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One settled job. Times are ISO 8601, in UTC."""

    id: str
    opened_at: str
    closed_at: str
    account_id: str
    key_id: str
    model: str
    state: JobStateName
    reason: str | None
    """Why it failed."""
    finish_reason: str | None
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cost_usd: str
    cost_nano: int
    promo_usd: str
    promo_nano: int


class JobUsageList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[JobUsage]
    next: str | None


class GenerationAttempt(AttemptEarnings, frozen=True, kw_only=True):
    node_name: str
    """The node's id if the gateway does not know the node any more."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One settled job: OpenRouter's fields as far as they apply here, and ours from `state` on."""

    id: str
    upstream_id: None = None
    model: str
    created_at: str
    """ISO 8601, in UTC."""
    streamed: bool
    cancelled: bool
    finish_reason: str | None
    total_cost: UsdNumber
    """In dollars, like `usage`."""
    usage: UsdNumber
    cache_discount: None = None
    is_byok: bool = False
    provider_name: str | None
    """The node of the last attempt; None if the job reached no node."""
    latency: float | None
    """Milliseconds to the first token."""
    generation_time: float | None
    """Milliseconds, over all attempts."""
    tokens_prompt: int
    tokens_completion: int
    native_tokens_prompt: int
    native_tokens_completion: int
    state: JobStateName
    reason: str | None
    key_id: str
    cost_usd: str
    cost_nano: int
    promo_usd: str
    """How much of the cost was paid with free credits."""
    promo_nano: int
    attempts: list[GenerationAttempt]


class GenerationReply(msgspec.Struct, frozen=True, kw_only=True):
    data: Generation
