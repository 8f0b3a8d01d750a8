"""Why this node, and why not the others: explanations of past matches, and dry runs of future ones."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web
from msgspec import Meta

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import MatchNotFound
from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId, new_id
from sparewatt.core.limits import (
    CONTROL_BODY_BYTES_MAX,
    MATCHES_KEPT,
    MATCHES_LOOKED_BACK_MAX,
    MATCHES_STORED_AT_ONCE,
    MATCHES_STORED_DAYS,
)
from sparewatt.gateway.http import ASKED, authenticate, json_reply, listing, read_json, whole_number
from sparewatt.gateway.openai.paying import gate_for, price_of, promo_payer
from sparewatt.gateway.openai.serving import policy_named, route_of
from sparewatt.gateway.services import Services, services_of
from sparewatt.gateway.siblings.questions import MATCH, MATCHES, MatchAsked, MatchesAsked
from sparewatt.inference.capabilities import Needs
from sparewatt.inference.dispatch.choosing import no_match_error
from sparewatt.inference.dispatch.keeping import ONE_IN
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Move
from sparewatt.inference.matcher.explain import describe, describe_ranked
from sparewatt.inference.matcher.model import Decision, MatchJob, NodeRow
from sparewatt.inference.matcher.situation import vram_needed_bytes
from sparewatt.policy.words import to_object
from sparewatt.protocol.node import Capability
from sparewatt.store.database import StoredMatch

LISTED_DEFAULT, LISTED_MAX = 50, 500
_MATCH_ID = re.compile(r"match_[0-9a-z_]{1,60}")
_Tokens = Annotated[int, Meta(ge=1, le=1 << 24)]


class MatchQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_tokens: _Tokens = 500
    max_tokens: _Tokens | None = None
    policy: str | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Who may serve it, in the words of `policy/`."""
    capabilities: Annotated[list[Capability], Meta(max_length=32)] = msgspec.field(default_factory=list)
    """What a node's model must be able to do."""


async def dry_run(request: web.Request) -> web.StreamResponse:
    """Who would serve it, or why nobody; nothing is sent and nothing is kept."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    asked = await read_json(request, MatchQuestion, limit=CONTROL_BODY_BYTES_MAX)
    routing = route_of(asked.model, bytes(asked.provider), asked=request[ASKED], who=who)
    model = ModelId(routing.model)
    typical = services.table.typical_output_tokens(model)
    job = MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=asked.prompt_tokens,
        output_tokens=min(asked.max_tokens or typical, typical),
        prompt_tokens_floor=asked.prompt_tokens,
        preference=routing.preference,
    )
    price = price_of(routing.policy, model, services)
    payer = await promo_payer(who, services)
    needs = Needs(frozenset(asked.capabilities), declared=bool(routing.policy.require_parameters))
    gate = gate_for(routing, model, price=price, payer=payer, services=services, needs=needs)
    policy = policy_named(asked.policy or services.settings.policy)
    decision = services.dispatcher.dry_run(job, policy=policy, gate=gate)
    answer = _explain(decision, services) | {
        "match_id": None,
        "dry_run": True,
        "outcome": "none",
        "attempts": [],
        "moves": [],
    }
    if decision.best is None:
        answer["nearest_relaxations"] += gate.relaxations() if gate is not None else []
        answer["why_nobody"] = no_match_error(decision, services.table, gate).message
    effective = {"policy_effective": to_object(routing.policy), "created_at": services.clock.unix_s()}
    return json_reply(answer | effective, headers=routing.headers())


async def show_match(request: web.Request) -> web.StreamResponse:
    """An explanation belongs to the account that made the request, and to operators."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    wanted = request.match_info["match_id"]
    found = await _find(wanted, services)
    if found is None or not _is_theirs(found, who, services):
        raise MatchNotFound(
            f"Your account has no match {wanted[:60]!r}. The last {MATCHES_KEPT:,} are kept; "
            f"failures, and one in {ONE_IN}, for {MATCHES_STORED_DAYS} days. Others' are shown to their own keys."
        )
    return web.Response(body=found.explanation, content_type="application/json")


async def list_matches(request: web.Request) -> web.StreamResponse:
    """The last of who asks, of all to an operator: the latest first."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    limit = whole_number(request, "limit", default=LISTED_DEFAULT, most=LISTED_MAX)
    account = None if who.is_operator else who.account_id
    found = last_matches(services, account=account, limit=limit)
    for told in await services.siblings.asker.ask_all(MATCHES, MatchesAsked(account, limit)):
        found += told.matches
    found.sort(key=lambda match: -match["created_at"])
    return json_reply(listing(found[:limit]))


def last_matches(services: Services, *, account: AccountId | None, limit: int) -> list[dict[str, Any]]:
    """Of this process, the latest first; None asks for everybody's."""
    account_of = services.ring.account_of
    records = services.dispatcher.last_records(MATCHES_LOOKED_BACK_MAX)
    theirs = (record for record in records if account is None or account_of(record.key_id) == account)
    return [_in_short(record, services) for record in islice(theirs, limit)]


def _in_short(record: MatchRecord, services: Services) -> dict[str, Any]:
    return {
        "match_id": record.id,
        "created_at": record.created_unix_s,
        "model": record.decision.job.model,
        "policy": record.decision.policy,
        "key_id": record.key_id,
        "outcome": record.outcome.value,
        "candidates_total": record.decision.total,
        "streamed": record.streamed,
        "attempts": _describe_attempts(record, services),
    }


def _is_theirs(found: Found, who: Principal, services: Services) -> bool:
    return who.is_operator or services.ring.account_of(found.key_id) == who.account_id


class Found(NamedTuple):
    key_id: KeyId
    explanation: bytes


async def _find(wanted: str, services: Services) -> Found | None:
    """In memory, else in another process's, else in Postgres, which has some for longer."""
    record = services.dispatcher.record(MatchId(wanted))
    if record is not None:
        return Found(record.key_id, explanation_of(record, services))
    if not _MATCH_ID.fullmatch(wanted):
        return None
    for told in await services.siblings.asker.ask_all(MATCH, MatchAsked(wanted)):
        if bytes(told.explanation):
            return Found(KeyId(told.key_id), bytes(told.explanation))
    stored = await services.database.find_match(MatchId(wanted))
    return Found(*stored) if stored else None


def explanation_of(record: MatchRecord, services: Services) -> bytes:
    return msgspec.json.encode(describe_record(record, services))


async def store_matches(services: Services) -> None:
    """Put some of what waits into words and into Postgres. What cannot be stored now is stored the next time."""
    waiting = services.dispatcher.to_store
    records = waiting.take(MATCHES_STORED_AT_ONCE)
    if not records:
        return
    try:
        await services.database.save_matches([_stored(record, services) for record in records])
    except BaseException:
        waiting.give_back(records)
        raise


def _stored(record: MatchRecord, services: Services) -> StoredMatch:
    return StoredMatch(
        id=record.id,
        key_id=record.key_id,
        created_unix_s=record.created_unix_s,
        outcome=record.outcome.value,
        explanation=explanation_of(record, services),
    )


def describe_record(record: MatchRecord, services: Services) -> dict[str, Any]:
    return _explain(record.decision, services) | {
        "match_id": record.id,
        "dry_run": False,
        "created_at": record.created_unix_s,
        "outcome": record.outcome.value,
        "chosen": record.attempts[-1].node_id if record.attempts else None,
        "streamed": record.streamed,
        "attempts": _describe_attempts(record, services),
        "moves": [_describe_move(move, record, services) for move in record.moves],
    }


def _describe_move(move: Move, record: MatchRecord, services: Services) -> dict[str, Any]:
    """Why this node was next, when the one before it had failed."""
    attempt = record.attempts[move.attempt]
    rows = {item.node_id: row for item in move.ranked if (row := services.table.get(item.node_id)) is not None}
    return {
        "attempt": move.attempt,
        "after_tokens": attempt.carried_tokens,
        "chosen": attempt.node_id,
        "candidates": describe_ranked(move.ranked, record.decision.policy, rows),
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


def _describe_attempts(record: MatchRecord, services: Services) -> list[dict[str, Any]]:
    """Of an answer in one piece nobody here saw the first token; when it came is when it ended."""
    told = [_describe_attempt(attempt, services) for attempt in record.attempts]
    return told if record.streamed else [attempt | {"first_token_ms": None} for attempt in told]


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
        "chars": attempt.chars,
        "continued_from": _seam(attempt),
    }


def _seam(attempt: AttemptRecord) -> dict[str, int] | None:
    """How much of the answer others had written before it; None for one who started it."""
    if not attempt.carried_chars:
        return None
    return {"tokens": attempt.carried_tokens, "chars": attempt.carried_chars}
