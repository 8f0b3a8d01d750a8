"""/v1/credits, in OpenRouter's shape: the balance of an account, grants by operators, and deposits."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from sparewatt.api.endpoint import Reply, get, post
from sparewatt.api.money.amounts import amount_of, reference_of, usd_number
from sparewatt.api.money.selection import AccountFinder, select_account
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.core.money import format_usd
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.credits import Balance, CreditService
from sparewatt.ledger.deposit_adapters import DepositAdapter, adapter_named
from sparewatt.protocol.api.credits import CreditBalance, CreditBalanceReply, CreditPosting, DepositBody, GrantBody


class CreditEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        accounts: AccountFinder,
        credit_service: CreditService,
        adapters: Mapping[str, DepositAdapter],
        rng: Rng,
    ) -> None:
        """`adapters`: the rails by which deposits come in, by name. `rng` makes ids for requests without one."""
        self._auth = auth
        self._accounts = accounts
        self._credits = credit_service
        self._adapters = adapters
        self._rng = rng

    @get("/v1/credits", query=("account",))
    async def show_credits(self, request: web.Request) -> CreditBalanceReply:
        """Show the credits of your account; operators may name another."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        account = await select_account(request, principal, self._accounts)
        return CreditBalanceReply(data=balance_of(await self._credits.balance(account)))

    @post("/v1/credits/grant", body=GrantBody, status=201, other_statuses=(200,))
    async def grant_credits(self, request: web.Request) -> Reply[CreditPosting]:
        """Give an account free credits. Operators only."""
        await self._auth.authenticate_operator(context_of(request))
        body = await read_json(request, GrantBody)
        nano, reference = amount_of(body), reference_of(body, rng=self._rng)
        account = await self._find_open(body.account)
        posted = await self._credits.grant(account, nano, reference=reference, days=body.days, memo=body.memo)
        return await self._posting(account, reference=reference, posted=posted)

    @post("/v1/credits/deposit", body=DepositBody, status=201, other_statuses=(200,))
    async def deposit_credits(self, request: web.Request) -> Reply[CreditPosting]:
        """Add paid credits to your account. The amount that counts is the one that the adapter confirms."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        body = await read_json(request, DepositBody)
        adapter = adapter_named(body.adapter, self._adapters)
        nano, reference = amount_of(body), reference_of(body, rng=self._rng)
        arrival = await adapter.confirm(principal.account_id, reference=reference, nano=nano)
        posted = arrival.posted
        if posted is None:
            posted = await self._credits.deposit(principal.account_id, arrival, adapter=body.adapter)
        return await self._posting(principal.account_id, reference=reference, posted=posted)

    async def _find_open(self, id_or_email: str) -> AccountId:
        """Raises AccountNotFound, or InvalidField for a closed account, which could not spend what it gets."""
        row = await self._accounts.get(id_or_email)
        if row.closed_at is not None:
            raise InvalidField(f"The account {row.id} is closed: nobody could spend the credits.", param="account")
        return row.id

    async def _posting(self, account: AccountId, *, reference: str, posted: bool) -> Reply[CreditPosting]:
        """201, or 200 for a repeated request that changed nothing."""
        balance = balance_of(await self._credits.balance(account))
        posting = CreditPosting(id=reference, account=account, posted=posted, credits=balance)
        return Reply(posting, status=201 if posted else 200)


def balance_of(balance: Balance) -> CreditBalance:
    return CreditBalance(
        total_credits=usd_number(balance.received),
        total_usage=usd_number(balance.spent),
        balance_usd=format_usd(balance.total),
        balance_nano=balance.total,
        promo_usd=format_usd(balance.promo),
        promo_nano=balance.promo,
        promo_expires_at=balance.promo_ends_unix_s,
        paid_usd=format_usd(balance.paid),
        paid_nano=balance.paid,
        reserved_usd=format_usd(balance.reserved),
        reserved_nano=balance.reserved,
        granted_usd=format_usd(balance.granted),
        granted_nano=balance.granted,
        deposited_usd=format_usd(balance.deposited),
        deposited_nano=balance.deposited,
        expired_usd=format_usd(balance.expired),
        expired_nano=balance.expired,
    )
