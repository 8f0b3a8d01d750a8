"""/v1/ledger/uptime, for operators: the fund that credits renters of leases below 99.9 %, and what it has credited."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.leases.uptime_replies import percent_text
from sparewatt.api.money.credits import amount_of, reference_of
from sparewatt.api.money.statements import amounts
from sparewatt.core.money import format_usd
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.ledger.uptime_fund import UptimeFund
from sparewatt.market.lease_uptime import UPTIME_GOAL_PPM
from sparewatt.protocol.api.credits import AmountBody
from sparewatt.protocol.api.ledger import UptimeCreditEntry, UptimeFundBalance, UptimeFundPosting, UptimeFundReply
from sparewatt.store.uptime_credits import UptimeCreditRow, UptimeCreditStore

CREDITS_LISTED_MAX = 50


@dataclass(slots=True, kw_only=True)
class UptimeFundEndpoints:
    fund: UptimeFund
    credits: UptimeCreditStore
    rng: Rng

    @endpoint("GET /v1/ledger/uptime", access="operator")
    async def show_uptime_fund(self, _: web.Request, __: Principal) -> UptimeFundReply:
        """Show the fund that credits renters for leases that were down, and its last credits. Operators only."""
        rows = await self.credits.recent(limit=CREDITS_LISTED_MAX)
        return UptimeFundReply(fund=await self._balance(), data=[_entry(row) for row in rows])

    @endpoint("POST /v1/ledger/uptime/fund", access="operator", body=AmountBody, status=201, other_statuses=(200,))
    async def fund_uptime(self, request: web.Request, _: Principal) -> Reply[UptimeFundPosting]:
        """Put money aside for leases that will be down. Operators only."""
        body = await read_json(request, AmountBody)
        reference = reference_of(body, rng=self.rng)
        posted = await self.fund.add(amount_of(body), reference=reference)
        posting = UptimeFundPosting(id=reference, posted=posted, fund=await self._balance())
        return Reply(posting, status=201 if posted else 200)

    async def _balance(self) -> UptimeFundBalance:
        status, waiting = await self.fund.status(), await self.credits.waiting()
        return UptimeFundBalance(
            **amounts(balance=status.balance, daily_limit=status.daily, credited_today=status.credited_today),
            **amounts(waiting=waiting.nano),
            waiting_leases=waiting.leases,
            goal_percent=f"{UPTIME_GOAL_PPM / 10_000:g}",
        )


def _entry(row: UptimeCreditRow) -> UptimeCreditEntry:
    return UptimeCreditEntry(
        lease=row.lease_id,
        order=row.order_id,
        account=row.account_id,
        percent=percent_text(row.ppm),
        due_usd=format_usd(row.due_nano),
        credited_usd=None if row.paid_nano is None else format_usd(row.paid_nano),
        credited_at=row.paid_unix_s,
        ended_at=row.ended_unix_s,
        reason=row.reason,
    )
