"""/v1/usage and /v1/generation: what an account used, and one job of it. A job is here once it is settled."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from sparewatt.core.errors import InvalidField, MatchNotFound
from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.gateway.http import authenticate, json_reply
from sparewatt.gateway.money.amounts import number, shown
from sparewatt.gateway.money.credits import account_asked
from sparewatt.gateway.money.pages import choice, cursor_of, line_of, read_page, statement
from sparewatt.gateway.services import Services, services_of
from sparewatt.store.statements import EarningLine, JobLine, UsageBy, UsageLine

GROUPS: dict[str, UsageBy] = {"day": "day", "model": "model", "key": "key"}
_KEY_ID = re.compile(r"[a-z]{3}_[0-9a-z_]{1,40}")
_JOB_ID = re.compile(r"match_[0-9a-z_]{1,60}")


async def show_usage(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "inference")
    by = choice(request, "by", [*GROUPS, "job"])
    page = read_page(request, now_unix_s=services.clock.unix_s())
    account, key = await account_asked(request, who), _key_asked(request)
    statements = services.database.statements
    if by == "job":
        jobs = await statements.jobs(account, span=page.span, key_id=key, after=page.cursor, limit=page.limit)
        following = cursor_of(jobs[-1].opened_at, jobs[-1].id) if len(jobs) == page.limit else None
        return statement(page, jobs, JobLine, following=following, name="usage")
    rows = await statements.usage(
        account, by=GROUPS[by], span=page.span, key_id=key, after=page.after, limit=page.limit
    )
    following = rows[-1].name if len(rows) == page.limit else None
    return statement(page, rows, UsageLine, following=following, name="usage")


def _key_asked(request: web.Request) -> KeyId | None:
    wanted = request.query.get("key")
    if wanted is not None and not _KEY_ID.fullmatch(wanted):
        raise InvalidField("A key is named by its id, e.g. key_5k0wq2.", param="key")
    return KeyId(wanted) if wanted is not None else None


async def show_generation(request: web.Request) -> web.StreamResponse:
    """A job belongs to the account that pays for it, and to operators."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    wanted = request.query.get("id", "")
    if not wanted:
        raise InvalidField("Say which: ?id=match_…, as the header x-sparewatt-match-id of the answer says.", param="id")
    found = await services.database.statements.find_job(MatchId(wanted)) if _JOB_ID.fullmatch(wanted) else None
    if found is None or not (who.is_operator or found[0].account_id == who.account_id):
        raise MatchNotFound(f"There is no settled job {wanted[:60]!r}. It takes up to a second after the answer.")
    return json_reply({"data": describe_generation(*found, services=services)})


def describe_generation(job: JobLine, attempts: list[EarningLine], *, services: Services) -> dict[str, Any]:
    """OpenRouter's fields, as far as they mean something here, and ours."""
    first = next((attempt.first_token_ms for attempt in attempts if attempt.first_token_ms is not None), None)
    return {
        "id": job.id,
        "upstream_id": None,
        "model": job.model,
        "created_at": job.opened_at.isoformat(),
        "streamed": job.stream,
        "cancelled": job.state == "cancelled",
        "finish_reason": job.finish_reason,
        "total_cost": number(job.cost_nano),
        "usage": number(job.cost_nano),
        "cache_discount": None,
        "is_byok": False,
        "provider_name": _node_name(attempts[-1].node_id, services) if attempts else None,
        "latency": first,
        "generation_time": sum(attempt.duration_ms for attempt in attempts) if attempts else None,
        "tokens_prompt": job.prompt_tokens,
        "tokens_completion": job.completion_tokens,
        "native_tokens_prompt": job.prompt_tokens,
        "native_tokens_completion": job.completion_tokens,
        "state": job.state,
        "reason": job.reason,
        "key_id": job.key_id,
        **shown("cost", job.cost_nano),
        **shown("promo", job.promo_nano),
        "attempts": [_describe_attempt(attempt, services) for attempt in attempts],
    }


def _describe_attempt(attempt: EarningLine, services: Services) -> dict[str, Any]:
    return line_of(attempt) | {"node_name": _node_name(attempt.node_id, services)}


def _node_name(node_id: NodeId, services: Services) -> str:
    row = services.table.get(node_id)
    return row.specs.name if row is not None else node_id
