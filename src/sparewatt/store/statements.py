"""Statements of usage and earnings, read from settled jobs, in pages with a cursor (keyset pagination). Read-only.

The sums of a statement are the sums of the postings behind it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.store.connection_pool import Store

UsageBy = Literal["day", "model", "key"]
EarningsBy = Literal["day", "model", "node"]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The end is not included."""

    from_unix_s: float
    to_unix_s: float


@dataclass(frozen=True, slots=True)
class StatementCursor:
    """The last line of the page before. Lines go from the newest to the oldest."""

    unix_s: float
    job_id: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The usage of one day, model or key."""

    name: str
    jobs: int
    prompt_tokens: int
    completion_tokens: int
    cost_nano: int
    promo_nano: int


@dataclass(frozen=True, slots=True)
class JobLine:
    """One settled job, as its payer sees it."""

    id: MatchId
    opened_at: dt.datetime
    closed_at: dt.datetime
    account_id: AccountId
    key_id: KeyId
    model: str
    state: str
    reason: str | None
    finish_reason: str | None
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cost_nano: int
    promo_nano: int


@dataclass(frozen=True, slots=True)
class EarningLine:
    """One node's part of a job, as its owner sees it. The fee and both nets are what the payer paid for it."""

    job_id: MatchId
    opened_at: dt.datetime
    position: int
    node_id: NodeId
    model: str
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    prompt_price: int
    completion_price: int
    fee_nano: int
    net_nano: int
    net_promo_nano: int
    first_token_ms: float | None
    duration_ms: float


@dataclass(frozen=True, slots=True)
class EarningSum:
    """The earnings of one day, model or node."""

    name: str
    jobs: int
    prompt_tokens: int
    completion_tokens: int
    fee_nano: int
    net_nano: int
    net_promo_nano: int


@dataclass(frozen=True, slots=True)
class NodeBusyTime:
    node_id: NodeId
    busy_s: float
    """How long it had at least one job."""
    work_s: float
    """The durations of its jobs added up: more than `busy_s` if jobs ran in parallel."""
    first_at: dt.datetime


class StatementStore(Store):
    async def usage(
        self, account_id: AccountId, *, by: UsageBy, span: TimeRange, key_id: KeyId | None, after: str, limit: int
    ) -> list[UsageLine]:
        """Of an account or one of its keys, by name, from the name after `after`."""
        values = (account_id, by, span.from_unix_s, span.to_unix_s, key_id, after, limit)
        return await self._pool.rows_as(UsageLine, "usage_by", *values)

    async def jobs(
        self, account_id: AccountId, *, span: TimeRange, key_id: KeyId | None, after: StatementCursor | None, limit: int
    ) -> list[JobLine]:
        """Newest first."""
        behind = (after.unix_s, after.job_id) if after else (None, None)
        values = (account_id, span.from_unix_s, span.to_unix_s, key_id, *behind, limit)
        return await self._pool.rows_as(JobLine, "jobs_of", *values)

    async def find_job(self, job_id: MatchId) -> tuple[JobLine, list[EarningLine]] | None:
        """A settled job and its attempts."""
        job = await self._pool.row_as(JobLine, "find_job", job_id)
        if job is None:
            return None
        return job, await self._pool.rows_as(EarningLine, "attempts_of_job", job_id, job.opened_at)

    async def earnings(
        self, owner: AccountId, *, span: TimeRange, node_id: NodeId | None, after: StatementCursor | None, limit: int
    ) -> list[EarningLine]:
        """Newest first."""
        behind = (after.unix_s, after.job_id, after.position) if after else (None, None, None)
        values = (owner, span.from_unix_s, span.to_unix_s, node_id, *behind, limit)
        return await self._pool.rows_as(EarningLine, "earnings_of", *values)

    async def earnings_by(
        self, owner: AccountId, *, by: EarningsBy, span: TimeRange, node_id: NodeId | None, after: str, limit: int
    ) -> list[EarningSum]:
        values = (owner, by, span.from_unix_s, span.to_unix_s, node_id, after, limit)
        return await self._pool.rows_as(EarningSum, "earnings_by", *values)

    async def busy_times(self, owner: AccountId, *, span: TimeRange, limit: int) -> list[NodeBusyTime]:
        """Of each of an owner's nodes that worked in the span."""
        return await self._pool.rows_as(NodeBusyTime, "busy_of", owner, span.from_unix_s, span.to_unix_s, limit)
