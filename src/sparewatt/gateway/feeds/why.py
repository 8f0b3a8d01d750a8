"""GET /v1/nodes/{node_id}/why: how a node fared in the last matches, for its owner."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from aiohttp import web

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.core.errors import NotFound, NotOwner
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import MATCHES_LOOKED_BACK_MAX
from sparewatt.gateway.http import identify, json_reply, whole_number
from sparewatt.gateway.services import Services, services_of
from sparewatt.gateway.siblings.questions import WHY, WhyAsked, WhyTold
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.dispatch.why import Losses, Why, look_back, sentences
from sparewatt.inference.matcher.model import NodeRow, Rejection
from sparewatt.inference.matcher.table import NodeTable

LOOKED_BACK_DEFAULT = 1_000
ADDRESS_START_CHARS_MIN = 6
"""With `0x`: fewer would be anybody's."""


async def show_why(request: web.Request) -> web.StreamResponse:
    """For the node's owner, and for operators. The node goes by its address, the start of it, or its name."""
    services = services_of(request)
    who = await identify(request)
    if not who.is_operator:
        require_scope(who, "node")
    count = whole_number(request, "last", default=LOOKED_BACK_DEFAULT, most=MATCHES_LOOKED_BACK_MAX)
    row = find_node(services.table, request.match_info["node_id"])
    _refuse_others(row, who, services)
    return json_reply(await describe_why(row, services, count=count))


def _refuse_others(row: NodeRow, who: Principal, services: Services) -> None:
    if not who.is_operator and services.desk.owners.get(row.id) != who.account_id:
        raise NotOwner("This node belongs to another account. Only its owner may ask why it gets no jobs.")


def find_node(table: NodeTable, wanted: str) -> NodeRow:
    """Raises NotFound also where a name or the start of an address is not one node's alone."""
    row = table.get(NodeId(wanted.lower()))
    if row is not None:
        return row
    found = [row for row in table if row.specs.name == wanted] or _beginning_with(wanted.lower(), table)
    if len(found) > 1:
        raise NotFound(f"{len(found)} nodes are called {wanted[:60]!r}. Ask by the whole address.")
    if not found:
        raise NotFound(f"There is no node {wanted[:60]!r}. 'sparewatt nodes' shows them.")
    return found[0]


def _beginning_with(start: str, table: NodeTable) -> list[NodeRow]:
    """By the start of an address, as lists of nodes print it."""
    if not start.startswith("0x") or len(start) < ADDRESS_START_CHARS_MIN:
        return []
    return [row for row in table if row.id.startswith(start)]


async def describe_why(row: NodeRow, services: Services, *, count: int) -> dict[str, Any]:
    """Each process of this gateway looks back at its share of the matches."""
    since, share = services.desk.joined_unix_s.get(row.id, 0.0), math.ceil(count / services.place.count)
    why = look_back_here(row.id, services, count=share, since_unix_s=since)
    for told in await services.siblings.asker.ask_all(WHY, WhyAsked(row.id, share, since)):
        why.include(_why_of(told))
    return {"node": row.id, "name": row.specs.name, **_numbers(why), "sentences": sentences(why)}


def look_back_here(node_id: NodeId, services: Services, *, count: int, since_unix_s: float) -> Why:
    row = services.table.get(node_id)
    models = row.models if row is not None else ()
    return look_back(node_id, services.dispatcher.last_records(count), models=models, since_unix_s=since_unix_s)


def _why_of(told: WhyTold) -> Why:
    return Why(
        matches=told.matches,
        sent=Counter({Outcome(name): n for name, n in told.sent.items()}),
        lost=told.lost,
        rejected=Counter({Rejection(name): n for name, n in told.rejected.items()}),
        ruled_out=told.ruled_out,
        unlisted=told.unlisted,
    )


def _numbers(why: Why) -> dict[str, Any]:
    return {
        "matches": why.matches,
        "chosen": why.chosen,
        "outcomes": {outcome.value: n for outcome, n in why.sent.most_common()},
        "lost": _describe_losses(why.lost),
        "rejected": {reason.value: n for reason, n in why.rejected.most_common()},
        "ruled_out": why.ruled_out,
        "unlisted": why.unlisted,
    }


def _describe_losses(lost: Losses) -> dict[str, Any]:
    gap_s = lost.mean_gap_s
    return {
        "count": lost.count,
        "mean_gap_s": None if gap_s is None else round(gap_s, 6),
        "worst_parts_s": {name: round(mean_s, 6) for name, mean_s in lost.worst_parts()},
    }
