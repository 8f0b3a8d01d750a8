"""/v1/treasury: the money that pays node owners for serving free credits."""

from __future__ import annotations

from aiohttp import web

from sparewatt.api.endpoint import Reply, get, post
from sparewatt.api.money.amounts import amount_of, reference_of
from sparewatt.core.money import format_usd
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.credits import CreditService, TreasuryStatus
from sparewatt.protocol.api.credits import AmountBody, TreasuryBalance, TreasuryPosting, TreasuryReply


class TreasuryEndpoints:
    def __init__(self, *, auth: Authenticator, credit_service: CreditService, rng: Rng) -> None:
        """`rng` makes ids for requests without one."""
        self._auth = auth
        self._credits = credit_service
        self._rng = rng

    @get("/v1/treasury")
    async def show_treasury(self, request: web.Request) -> TreasuryReply:
        """Show what the treasury holds, and how much of it becomes payable per day."""
        await self._auth.authenticate(context_of(request), "node")
        return TreasuryReply(data=treasury_balance_of(await self._credits.treasury()))

    @post("/v1/treasury/fund", body=AmountBody, status=201, other_statuses=(200,))
    async def fund_treasury(self, request: web.Request) -> Reply[TreasuryPosting]:
        """Add money to the treasury. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        body = await read_json(request, AmountBody)
        reference = reference_of(body, rng=self._rng)
        posted = await self._credits.fund_treasury(amount_of(body), reference=reference)
        treasury = treasury_balance_of(await self._credits.treasury())
        posting = TreasuryPosting(id=reference, posted=posted, treasury=treasury)
        return Reply(posting, status=201 if posted else 200)


def treasury_balance_of(treasury: TreasuryStatus) -> TreasuryBalance:
    return TreasuryBalance(
        balance_usd=format_usd(treasury.balance),
        balance_nano=treasury.balance,
        daily_budget_usd=format_usd(treasury.daily),
        daily_budget_nano=treasury.daily,
        redeemed_today_usd=format_usd(treasury.redeemed_today),
        redeemed_today_nano=treasury.redeemed_today,
    )
