"""`/v1/earnings`: what an owner's nodes earned, line by line, in groups, and as a summary.

Amounts come twice: `…_usd` is dollars as an exact decimal string, `…_nano` is the same amount as an integer of
nano-dollars (1e-9 $).
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
    """None, as `slots`, if the node is not known to the gateway now."""
    slots: int | None
    busy_s: float
    """With at least one job."""
    work_s: float
    """Sum over its jobs; more than `busy_s` where jobs ran side by side."""
    window_s: float
    """From its first job in the span to the end of the span, and at least `busy_s`."""
    utilisation: float
    """`busy_s` as a share of `window_s`, from 0 to 1."""
    working_watts: float | None
    """Mean power while it worked, as the node measured it; None if it did not."""
    working_watts_over_s: float | None
    """How long that was measured."""


class EarningsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Where an owner's money stands: pending, then batched, then settled, then claimed."""

    account: str
    fee_bps: int
    """The network's share of what a payer pays, in hundredths of a percent."""
    pending_usd: str
    """Earned, and in no payout batch yet."""
    pending_nano: int
    batched_usd: str
    """In batches that the chain does not have yet."""
    batched_nano: int
    settled_usd: str
    """In batches on the chain, with what was claimed of them."""
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
