"""Replies about one lease of the renter, with which its page is tested in states that a small network seldom has."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace
from playwright.sync_api import Page, Route

from sparewatt.protocol.api.lease_access import LeaseLogPiece
from sparewatt.protocol.api.lease_changes import (
    HistoryKindName,
    LeaseChangePlan,
    LeaseEnding,
    LeaseEvent,
    LeaseEventList,
    LeaseMoney,
)
from sparewatt.protocol.api.leases import LeaseDetails, LeaseUpdated
from tests.e2e import market_replies
from tests.e2e.market_replies import FOUND, HASH, PROVIDERS, fulfil, now_s

LEASE = "783c8cdbba1ee7fe"


def money() -> LeaseMoney:
    return LeaseMoney(
        as_of=now_s(),
        hourly_usd="1.13",
        spent_usd="0.42",
        left_usd="1.58",
        deposited_usd="2",
        compensated_usd="0",
        runway_s=5_033,
        runs_until=now_s() + 2_700,
        limit="duration",
        paused_s=0,
        grace_ends_at=None,
        warning=None,
        next_step=None,
    )


def running() -> LeaseDetails:
    own = market_replies.own_lease()
    held = replace(market_replies.lease(), state="active", running_since=now_s() - 900, ends_at=now_s() + 2_700)
    order = market_replies.order(FOUND, "matched", candidates=PROVIDERS[:2], lease=held)
    content = {"image": own.image, "command": ["python", "train.py", "--epochs", "3"], "ports": [8080]}
    fields = asdict(own) | {"order": order, "money": money(), "max_spend_usd": "2"}
    return LeaseDetails(**fields, content=content, content_hash=HASH)


def nearly_empty() -> LeaseDetails:
    low = replace(money(), spent_usd="1.7", left_usd="0.3", limit="deposit", warning="deposit_low")
    return replace(running(), money=low)


def ended() -> LeaseDetails:
    one = running()
    assert one.order is not None
    assert one.order.lease is not None
    over = replace(one.order.lease, state="closed", close_reason="EMPTY", closed_at=now_s() - 10)
    order = replace(one.order, state="closed", lease=over, deposit_usd="0", charged_usd="2", refunded_usd="0")
    ending = LeaseEnding(
        reason="EMPTY",
        who="network",
        why="the deposit was used up and nobody added to it within the grace",
        at=now_s() - 10,
        paid_usd="1.9",
        refunded_usd="0.1",
        compensation_usd="0.05",
    )
    return replace(one, phase="closed", order=order, ending=ending)


def event(kind: HistoryKindName, ago_s: int, text: str, **changes: str) -> LeaseEvent:
    plain = LeaseEvent(
        at=now_s() - ago_s,
        kind=kind,
        who="network",
        text=text,
        reason=None,
        provider=None,
        hourly_usd=None,
        duration_s=None,
        amount_usd=None,
        paid_usd=None,
        refunded_usd=None,
        compensation_usd=None,
        tx=None,
    )
    return replace(plain, **changes)


def events() -> LeaseEventList:
    return LeaseEventList(
        data=[
            event("ordered", 960, "ordered; its auction opened", who="renter"),
            event("matched", 950, "the validators certified a winner", who="validators", hourly_usd="1.13"),
            event("placed", 950, "placed with the winner", provider=PROVIDERS[0]),
            event("started", 900, "the provider confirmed the start", who="provider"),
            event("deposit_added", 300, "added to the deposit", who="renter", amount_usd="0.5"),
        ]
    )


def extension() -> LeaseUpdated:
    plan = LeaseChangePlan(
        hourly_usd="1.13", duration_s=6_300, ends_at=now_s() + 6_300, cost_usd="1.98", top_up_usd="0.42"
    )
    return LeaseUpdated(plan=plan, update=None, top_up=None, accepted=False, lease=market_replies.own_lease())


def serve_lease(page: Page, lease: LeaseDetails) -> None:
    """Answer the page's questions about this lease; its log has a line of each stream, and one that is long."""
    written = [LeaseLogPiece(text=f"epoch {number}: loss 0.{90 - number}\n") for number in range(1, 60)]
    written += [
        LeaseLogPiece(stream="stderr", text="warning: \x1b[33mslow disk\x1b[0m\n"),
        LeaseLogPiece(text="x" * 900),
    ]
    body = b"".join(msgspec.json.encode(piece) + b"\n" for piece in written)

    def logs(route: Route) -> None:
        route.fulfill(content_type="application/x-ndjson", body=body)

    page.route(f"**/v1/leases/{LEASE}", lambda route: fulfil(route, lease))
    page.route(f"**/v1/leases/{LEASE}/events", lambda route: fulfil(route, events()))
    page.route(f"**/v1/leases/{LEASE}/logs?*", logs)
    page.route(f"**/v1/leases/{LEASE}/extend", lambda route: fulfil(route, extension()))
