"""Why this node, and why not the others: explanations of past matches, and dry runs of future ones."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from sparewatt.core.errors import MatchNotFound
from sparewatt.core.ids import MatchId, ModelId, NodeId, new_id
from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX, MATCHES_KEPT
from sparewatt.gateway.http import authenticate, json_reply, read_json
from sparewatt.gateway.openai.chat import policy_named
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord
from sparewatt.inference.dispatch.run import no_match_error
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.filters import vram_needed_bytes
from sparewatt.inference.matcher.model import Decision, MatchJob, NodeRow

_Tokens = Annotated[int, Meta(ge=1, le=1 << 24)]


class MatchQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_tokens: _Tokens = 500
    max_tokens: _Tokens | None = None
    policy: str | None = None


async def dry_run(request: web.Request) -> web.StreamResponse:
    """Who would serve it, or why nobody; nothing is sent and nothing is kept."""
    services = services_of(request)
    authenticate(request, services.ring, "inference")
    asked = await read_json(request, MatchQuestion, limit=CONTROL_BODY_BYTES_MAX)
    model = ModelId(asked.model)
    typical = services.table.typical_output_tokens(model)
    job = MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=asked.prompt_tokens,
        output_tokens=min(asked.max_tokens or typical, typical),
        prompt_tokens_floor=asked.prompt_tokens,
    )
    decision = services.dispatcher.dry_run(job, policy=policy_named(asked.policy or services.settings.policy))
    answer = _explain(decision, services) | {"match_id": None, "dry_run": True, "outcome": "none", "attempts": []}
    if decision.best is None:
        answer["why_nobody"] = no_match_error(decision, services.table).message
    return json_reply(answer | {"created_at": services.clock.unix_s()})


async def show_match(request: web.Request) -> web.StreamResponse:
    """An explanation belongs to the key that made the request, and to operators."""
    services = services_of(request)
    key = authenticate(request, services.ring, "inference")
    wanted = request.match_info["match_id"]
    record = services.dispatcher.record(MatchId(wanted))
    if record is None or (record.key_id != key.id and "admin" not in key.scopes):
        raise MatchNotFound(f"There is no match {wanted[:60]!r}. The last {MATCHES_KEPT:,} are kept.")
    return json_reply(describe_record(record, services))


def describe_record(record: MatchRecord, services: Services) -> dict[str, Any]:
    return _explain(record.decision, services) | {
        "match_id": record.id,
        "dry_run": False,
        "created_at": record.created_unix_s,
        "outcome": record.outcome.value,
        "chosen": record.attempts[-1].node_id if record.attempts else None,
        "attempts": [_describe_attempt(attempt, services) for attempt in record.attempts],
    }


def _explain(decision: Decision, services: Services) -> dict[str, Any]:
    named = [item.node_id for item in decision.ranked] + [item.node_id for item in decision.rejected]
    rows = {node_id: row for node_id in named if (row := services.table.get(node_id)) is not None}
    explained = describe(decision, rows)
    explained["job"]["vram_needed_bytes"] = _vram_needed(decision, rows)
    return explained


def _vram_needed(decision: Decision, rows: dict[NodeId, NodeRow]) -> int | None:
    """By the best candidate's copy of the model; quantizations differ."""
    row = rows.get(decision.best.node_id) if decision.best else None
    model = row.models.get(decision.job.model) if row else None
    return vram_needed_bytes(decision.job, model) if model else None


def _describe_attempt(attempt: AttemptRecord, services: Services) -> dict[str, Any]:
    row = services.table.get(attempt.node_id)
    return {
        "node": attempt.node_id,
        "name": row.specs.name if row else None,
        "outcome": attempt.outcome.value,
        "reason": attempt.reason,
        "started_ms": attempt.started_ms,
        "first_token_ms": attempt.first_token_ms,
        "ended_ms": attempt.ended_ms,
        "tokens": attempt.tokens,
    }
