"""Statements: what was used and what was earned, read from settled jobs. Pages are bounded; a cursor continues one.

Nothing here changes anything. Sums over a statement are the sums of the postings behind it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

import asyncpg

from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.store.connection_pool import ConnectionPool

UsageBy = Literal["day", "model", "key"]
EarningsBy = Literal["day", "model", "node"]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From a moment up to, not including, another."""

    from_unix_s: float
    to_unix_s: float


@dataclass(frozen=True, slots=True)
class StatementCursor:
    """Behind which line a page of jobs begins. Lines go from the newest to the oldest."""

    unix_s: float
    job_id: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class UsageLine:
    """What was used of one day, model or key."""

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
    """One node's part of one job, as its owner sees it. Fee and both nets sum to what the payer paid for it."""

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
    """What was earned in one day, with one model, or by one node."""

    name: str
    jobs: int
    prompt_tokens: int
    completion_tokens: int
    fee_nano: int
    net_nano: int
    net_promo_nano: int


@dataclass(frozen=True, slots=True)
class NodeBusyTime:
    """How long a node had at least one job, and how much work that was in all (more than the time, side by side)."""

    node_id: NodeId
    busy_s: float
    work_s: float
    first_at: dt.datetime


class StatementStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def usage(
        self, account_id: AccountId, *, by: UsageBy, span: TimeRange, key_id: KeyId | None, after: str, limit: int
    ) -> list[UsageLine]:
        """Of an account, or of one key of it, in the order of names from the one after `after`."""
        values = (account_id, by, span.from_unix_s, span.to_unix_s, key_id, after, limit)
        return [UsageLine(**dict(row.items())) for row in await self._pool.rows("usage_by", *values)]

    async def jobs(
        self, account_id: AccountId, *, span: TimeRange, key_id: KeyId | None, after: StatementCursor | None, limit: int
    ) -> list[JobLine]:
        """Newest first."""
        behind = (after.unix_s, after.job_id) if after else (None, None)
        values = (account_id, span.from_unix_s, span.to_unix_s, key_id, *behind, limit)
        return [_job_line(row) for row in await self._pool.rows("jobs_of", *values)]

    async def find_job(self, job_id: MatchId) -> tuple[JobLine, list[EarningLine]] | None:
        """A settled job and what each node did of it."""
        row = await self._pool.row("find_job", job_id)
        if row is None:
            return None
        attempts = await self._pool.rows("attempts_of_job", job_id, row["opened_at"])
        return _job_line(row), [_earning_line(attempt) for attempt in attempts]

    async def earnings(
        self, owner: AccountId, *, span: TimeRange, node_id: NodeId | None, after: StatementCursor | None, limit: int
    ) -> list[EarningLine]:
        """Newest first."""
        behind = (after.unix_s, after.job_id, after.position) if after else (None, None, None)
        values = (owner, span.from_unix_s, span.to_unix_s, node_id, *behind, limit)
        return [_earning_line(row) for row in await self._pool.rows("earnings_of", *values)]

    async def earnings_by(
        self, owner: AccountId, *, by: EarningsBy, span: TimeRange, node_id: NodeId | None, after: str, limit: int
    ) -> list[EarningSum]:
        values = (owner, by, span.from_unix_s, span.to_unix_s, node_id, after, limit)
        return [EarningSum(**dict(row.items())) for row in await self._pool.rows("earnings_by", *values)]

    async def busy_times(self, owner: AccountId, *, span: TimeRange, limit: int) -> list[NodeBusyTime]:
        """Of each of an owner's nodes that worked in the span."""
        rows = await self._pool.rows("busy_of", owner, span.from_unix_s, span.to_unix_s, limit)
        return [NodeBusyTime(**dict(row.items())) for row in rows]


def _job_line(row: asyncpg.Record) -> JobLine:
    return JobLine(**dict(row.items()))


def _earning_line(row: asyncpg.Record) -> EarningLine:
    return EarningLine(**dict(row.items()))
