"""/v1/usage: what an account used, by day, model, key or job. /v1/generation: one job, in OpenRouter's shape.

A job is in both once it is settled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.money.credits import usd_number
from sparewatt.api.money.earnings import attempt_earnings_of
from sparewatt.api.money.statements import (
    STATEMENT_QUERY,
    AccountFinder,
    amounts,
    cursor_of,
    read_page,
    select_account,
    statement_reply,
    utc_iso,
)
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, MatchNotFound
from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.usage import (
    Generation,
    GenerationAttempt,
    GenerationReply,
    JobStateName,
    JobUsage,
    JobUsageList,
    UsageGroup,
    UsageGroupList,
)
from sparewatt.store.statements import EarningLine, JobLine, StatementStore, UsageBy, UsageLine

_BY: tuple[UsageBy | Literal["job"], ...] = ("day", "model", "key", "job")
_KEY_ID = re.compile(r"[a-z]{3}_[0-9a-z_]{1,40}")
_JOB_ID = re.compile(r"match_[0-9a-z_]{1,60}")


class NodeLookup(Protocol):
    """Implemented by `NodeTable`."""

    def get(self, node_id: NodeId, /) -> NodeRow | None: ...


@dataclass(slots=True, kw_only=True)
class UsageEndpoints:
    accounts: AccountFinder
    statements: StatementStore
    nodes: NodeLookup
    clock: Clock

    @endpoint("GET /v1/usage", access="inference", query=(*STATEMENT_QUERY, "by", "key", "account"), csv=True)
    async def show_usage(
        self, request: web.Request, principal: Principal
    ) -> Reply[UsageGroupList] | Reply[JobUsageList] | web.Response:
        """Show what your account used, by day, model, key or job; operators may name another account."""
        by = choice(request, "by", _BY)
        page = read_page(request, now_unix_s=self.clock.unix_s())
        account, key, span = await select_account(request, principal, self.accounts), _select_key(request), page.span
        if by == "job":
            jobs = await self.statements.jobs(account, span=span, key_id=key, after=page.cursor, limit=page.limit)
            following = page.next(jobs, lambda job: cursor_of(job.opened_at, job.id))
            listed = JobUsageList(data=[job_usage_of(job) for job in jobs], next=following)
            return statement_reply(page, listed, JobUsage, name="usage")
        rows = await self.statements.usage(account, by=by, span=span, key_id=key, after=page.after, limit=page.limit)
        groups = UsageGroupList(data=[usage_group_of(row) for row in rows], next=page.next(rows, lambda row: row.name))
        return statement_reply(page, groups, UsageGroup, name="usage")

    @endpoint("GET /v1/generation", access="inference", query=("id",))
    async def show_generation(self, request: web.Request, principal: Principal) -> GenerationReply:
        """Show one settled job of your account; operators see those of all accounts."""
        job_id = request.query.get("id", "")
        if not job_id:
            raise InvalidField(
                "Say which: ?id=match_…, the value of the header x-sparewatt-match-id of its answer.", param="id"
            )
        settled = await self.statements.find_job(MatchId(job_id)) if _JOB_ID.fullmatch(job_id) else None
        if settled is None or principal.account_filter not in (None, settled[0].account_id):
            raise MatchNotFound(f"There is no settled job {job_id[:60]!r}. It takes up to a second after the answer.")
        return GenerationReply(data=self._generation(*settled))

    def _generation(self, job: JobLine, attempts: list[EarningLine]) -> Generation:
        first_tokens_ms = (attempt.first_token_ms for attempt in attempts)
        return Generation(
            id=job.id,
            model=job.model,
            created_at=job.opened_at.isoformat(),
            streamed=job.stream,
            cancelled=job.state == "cancelled",
            finish_reason=job.finish_reason,
            total_cost=usd_number(job.cost_nano),
            usage=usd_number(job.cost_nano),
            provider_name=self._node_name(attempts[-1].node_id) if attempts else None,
            latency=next((ms for ms in first_tokens_ms if ms is not None), None),
            generation_time=sum(attempt.duration_ms for attempt in attempts) if attempts else None,
            tokens_prompt=job.prompt_tokens,
            tokens_completion=job.completion_tokens,
            native_tokens_prompt=job.prompt_tokens,
            native_tokens_completion=job.completion_tokens,
            state=_state_of(job),
            reason=job.reason,
            key_id=job.key_id,
            **amounts(cost=job.cost_nano, promo=job.promo_nano),
            attempts=[self._attempt(attempt) for attempt in attempts],
        )

    def _attempt(self, row: EarningLine) -> GenerationAttempt:
        earnings = msgspec.structs.asdict(attempt_earnings_of(row))
        return GenerationAttempt(**earnings, node_name=self._node_name(row.node_id))

    def _node_name(self, node_id: NodeId) -> str:
        row = self.nodes.get(node_id)
        return row.specs.name if row is not None else node_id


def _select_key(request: web.Request) -> KeyId | None:
    key = request.query.get("key")
    if key is not None and not _KEY_ID.fullmatch(key):
        raise InvalidField("A key is named by its id, e.g. key_5k0wq2.", param="key")
    return KeyId(key) if key is not None else None


def usage_group_of(row: UsageLine) -> UsageGroup:
    return UsageGroup(
        name=row.name,
        jobs=row.jobs,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        **amounts(cost=row.cost_nano, promo=row.promo_nano),
    )


def job_usage_of(row: JobLine) -> JobUsage:
    return JobUsage(
        id=row.id,
        opened_at=utc_iso(row.opened_at),
        closed_at=utc_iso(row.closed_at),
        account_id=row.account_id,
        key_id=row.key_id,
        model=row.model,
        state=_state_of(row),
        reason=row.reason,
        finish_reason=row.finish_reason,
        stream=row.stream,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        **amounts(cost=row.cost_nano, promo=row.promo_nano),
    )


def _state_of(row: JobLine) -> JobStateName:
    return cast("JobStateName", row.state)  # the table has a CHECK
