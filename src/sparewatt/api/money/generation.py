"""/v1/generation, in OpenRouter's shape: one settled job, with what each node did of it."""

from __future__ import annotations

import re
from typing import Protocol

import msgspec
from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.api.money.amounts import usd_number
from sparewatt.api.money.lines import attempt_earnings_of, state_of
from sparewatt.core.errors import InvalidField, MatchNotFound
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.money import format_usd
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.usage import Generation, GenerationAttempt, GenerationReply
from sparewatt.store.statements import EarningLine, JobLine

_JOB_ID = re.compile(r"match_[0-9a-z_]{1,60}")


class SettledJobs(Protocol):
    async def find_job(self, job_id: MatchId, /) -> tuple[JobLine, list[EarningLine]] | None: ...


class NodeLookup(Protocol):
    def get(self, node_id: NodeId, /) -> NodeRow | None: ...


class GenerationEndpoints:
    def __init__(self, *, auth: Authenticator, jobs: SettledJobs, nodes: NodeLookup) -> None:
        self._auth = auth
        self._jobs = jobs
        self._nodes = nodes

    @get("/v1/generation", query=("id",))
    async def show_generation(self, request: web.Request) -> GenerationReply:
        """Show one settled job of your account; operators see those of all accounts."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        job_id = request.query.get("id", "")
        if not job_id:
            raise InvalidField(
                "Say which: ?id=match_…, as the header x-sparewatt-match-id of the answer says.", param="id"
            )
        found = await self._jobs.find_job(MatchId(job_id)) if _JOB_ID.fullmatch(job_id) else None
        if found is None or not (principal.is_operator or found[0].account_id == principal.account_id):
            raise MatchNotFound(f"There is no settled job {job_id[:60]!r}. It takes up to a second after the answer.")
        return GenerationReply(data=self._generation(*found))

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
            state=state_of(job),
            reason=job.reason,
            key_id=job.key_id,
            cost_usd=format_usd(job.cost_nano),
            cost_nano=job.cost_nano,
            promo_usd=format_usd(job.promo_nano),
            promo_nano=job.promo_nano,
            attempts=[self._attempt(attempt) for attempt in attempts],
        )

    def _attempt(self, row: EarningLine) -> GenerationAttempt:
        earnings = msgspec.structs.asdict(attempt_earnings_of(row))
        return GenerationAttempt(**earnings, node_name=self._node_name(row.node_id))

    def _node_name(self, node_id: NodeId) -> str:
        row = self._nodes.get(node_id)
        return row.specs.name if row is not None else node_id
