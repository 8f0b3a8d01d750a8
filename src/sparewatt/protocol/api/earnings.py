"""`/v1/earnings`: what an owner's nodes earned, line by line, in groups, and as a summary.

Amounts are in dollars (`…_usd`, an exact decimal string) and in nano-dollars (`…_nano`, an integer of 1e-9 $).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.protocol.api.credits import TreasuryBalance
from sparewatt.protocol.api.feed import OutcomeName


class AttemptEarnings(msgspec.Struct, frozen=True, kw_only=True):
    """What one node earned with one attempt of a job. Fee and both nets sum to what the payer paid for the attempt."""

    job_id: str
    opened_at: str
    """Of the job, ISO 8601 in UTC."""
    position: int
    """Of the attempt within the job, from 0."""
    node_id: str
    model: str
    outcome: OutcomeName
    prompt_tokens: int
    completion_tokens: int
    prompt_usd_per_mtok: str
    completion_usd_per_mtok: str
    fee_usd: str
    """The network's share."""
    fee_nano: int
    net_usd: str
    """The owner's share of what was paid with paid credits."""
    net_nano: int
    net_promo_usd: str
    """The owner's share of what was paid with free credits; the treasury makes it payable."""
    net_promo_nano: int
    first_token_ms: float | None
    duration_ms: float


class AttemptEarningsList(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    object: Literal["list"] = "list"
    data: list[AttemptEarnings]
    next: str | None
    """`after` of the next page; None on the last page."""


class EarningsGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What was earned on one day, with one model, or by one node."""

    name: str
    """A day (UTC) as YYYY-MM-DD, a model's id, or a node's id."""
    jobs: int
    prompt_tokens: int
    completion_tokens: int
    fee_usd: str
    fee_nano: int
    net_usd: str
    net_nano: int
    net_promo_usd: str
    net_promo_nano: int


class EarningsGroupList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[EarningsGroup]
    next: str | None


class NodeUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a node was, and what power it drew."""

    node_id: str
    name: str | None
    """None, like `slots`, if the gateway does not know the node any more."""
    slots: int | None
    busy_s: float
    """With at least one job."""
    work_s: float
    """Sum over its jobs; more than `busy_s` if jobs ran concurrently."""
    window_s: float
    """From its first job in the span to the end of the span, and at least `busy_s`."""
    utilisation: float
    """`busy_s` as a share of `window_s`, from 0 to 1."""
    working_watts: float | None
    """Mean power while it had jobs, as measured by the node; None if it was not measured."""
    working_watts_over_s: float | None
    """Over how much time `working_watts` was measured."""


class EarningsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's earnings by state: withheld, then pending, then batched, then settled, then claimed."""

    account: str
    fee_bps: int
    """The network's share of what a payer pays, in hundredths of a percent."""
    withheld_usd: str
    """Earned since each node's last passed check, from paid and free credits; the next that is passed releases it."""
    withheld_nano: int
    pending_usd: str
    """Earned, and in no payout batch yet."""
    pending_nano: int
    batched_usd: str
    """In batches that the chain does not have yet."""
    batched_nano: int
    settled_usd: str
    """In batches on the chain, whether claimed or not."""
    settled_nano: int
    claimed_usd: str
    claimed_nano: int
    promo_usd: str
    """Earned from free credits, and not payable yet."""
    promo_nano: int
    treasury: TreasuryBalance
    nodes: list[NodeUtilisation]


class EarningsSummaryReply(msgspec.Struct, frozen=True, kw_only=True):
    data: EarningsSummary
