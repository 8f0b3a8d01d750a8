"""/v1/earnings: what an account's nodes earned, line by line and summed; what is pending, settled, and promo."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparewatt.core.errors import NotFound
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import STATEMENT_LINES_MAX
from sparewatt.gateway.feeds.why import find_node
from sparewatt.gateway.http import authenticate, json_reply
from sparewatt.gateway.money.amounts import shown
from sparewatt.gateway.money.credits import account_asked, describe_treasury
from sparewatt.gateway.money.pages import choice, cursor_of, read_page, read_span, statement
from sparewatt.gateway.services import Services, services_of
from sparewatt.ledger import chart
from sparewatt.ledger.fees import INFERENCE_BPS
from sparewatt.ledger.settlement import NANO_PER_MICRO
from sparewatt.store.power import MeanPower
from sparewatt.store.statements import EarningLine, EarningsBy, EarningSum, NodeBusy, Span

GROUPS: dict[str, EarningsBy] = {"day": "day", "model": "model", "node": "node"}


async def show_earnings(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "node")
    by = choice(request, "by", ["job", *GROUPS])
    page = read_page(request, now_unix_s=services.clock.unix_s())
    owner, node = await account_asked(request, who), _node_asked(request)
    statements = services.database.statements
    if by == "job":
        found = await statements.earnings(owner, span=page.span, node_id=node, after=page.cursor, limit=page.limit)
        full = len(found) == page.limit
        following = cursor_of(found[-1].opened_at, found[-1].job_id, found[-1].position) if full else None
        return statement(page, found, EarningLine, following=following, name="earnings")
    sums = await statements.earnings_by(
        owner, by=GROUPS[by], span=page.span, node_id=node, after=page.after, limit=page.limit
    )
    following = sums[-1].name if len(sums) == page.limit else None
    return statement(page, sums, EarningSum, following=following, name="earnings")


def _node_asked(request: web.Request) -> NodeId | None:
    """By address, also of a node that is gone, or by the name of one that is there."""
    wanted = request.query.get("node")
    if wanted is None:
        return None
    try:
        return find_node(services_of(request).table, wanted).id
    except NotFound:
        if wanted.startswith("0x") and len(wanted) == 42 and wanted.isascii():
            return NodeId(wanted.lower())
        raise


async def show_summary(request: web.Request) -> web.StreamResponse:
    """Where an owner's money stands, and how busy each node was."""
    services = services_of(request)
    who = await authenticate(request, "node")
    now = services.clock.unix_s()
    span = read_span(request.query.get("from"), request.query.get("to"), now_unix_s=now)
    owner, node = await account_asked(request, who), _node_asked(request)
    busy = await services.database.statements.busy(owner, span=span, limit=STATEMENT_LINES_MAX)
    past = Span(span.from_unix_s, min(span.to_unix_s, now))
    wanted = [each for each in busy if node in (None, each.node_id)]
    power = await services.database.power.of(
        [each.node_id for each in wanted], from_unix_s=past.from_unix_s, to_unix_s=past.to_unix_s
    )
    nodes = [_describe_busy(each, services, span=past) | _describe_power(power.get(each.node_id)) for each in wanted]
    return json_reply({"data": await _standing(owner, services) | {"nodes": nodes}})


async def _standing(owner: AccountId, services: Services) -> dict[str, Any]:
    earned, promo = chart.earned_by(owner), chart.promo_earned_by(owner)
    held = await services.database.books.balances([earned, promo])
    waiting, posted, claimed = await services.database.payouts.settled(owner)
    return {
        "account": owner,
        "fee_bps": INFERENCE_BPS,
        **shown("pending", held[earned]),
        **shown("batched", waiting * NANO_PER_MICRO),
        **shown("settled", posted * NANO_PER_MICRO),
        **shown("claimed", claimed * NANO_PER_MICRO),
        **shown("promo", held[promo]),
        "treasury": await describe_treasury(services),
    }


def _describe_power(power: MeanPower | None) -> dict[str, Any]:
    """What it drew while it worked, as it measured itself, over the days of the span."""
    return {
        "working_watts": round(power.watts, 2) if power else None,
        "working_watts_over_s": round(power.working_s, 1) if power else None,
    }


def _describe_busy(node: NodeBusy, services: Services, *, span: Span) -> dict[str, Any]:
    """Utilisation: the share of the time, since the node's first job in it, in which it had one."""
    row = services.table.get(node.node_id)
    window_s = max(node.busy_s, span.to_unix_s - max(span.from_unix_s, node.first_at.timestamp()))
    return {
        "node_id": node.node_id,
        "name": row.specs.name if row else None,
        "slots": row.specs.slots if row else None,
        "busy_s": node.busy_s,
        "work_s": node.work_s,
        "window_s": window_s,
        "utilisation": node.busy_s / window_s if window_s > 0 else 0.0,
    }
