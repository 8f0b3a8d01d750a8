"""/v1/earnings/leases: what an owner's providers earn by leases, by the chain's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.market.replies import LEASE_STATES, usd
from sparewatt.api.money.statements import AccountFinder, select_account
from sparewatt.api.paging import take_turns
from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.market.chain_view import ChainView
from sparewatt.market.lease_income import TermIncome, income_of
from sparewatt.protocol.api.lease_income import LeaseIncome, LeaseIncomeList
from sparewatt.store.providers import ProviderRow

LEASES_LISTED_MAX = 200


class OwnedProviders(Protocol):
    """Implemented by ProviderStore."""

    async def list_of(self, account_id: AccountId, /) -> list[ProviderRow]: ...


class LeaseMarket(Protocol):
    """Implemented by MarketIndex."""

    def view(self) -> ChainView: ...


@dataclass(slots=True, kw_only=True)
class LeaseIncomeEndpoints:
    accounts: AccountFinder
    providers: OwnedProviders
    market: LeaseMarket
    clock: Clock

    @endpoint("GET /v1/earnings/leases", access="node", query=("account",))
    async def show_lease_income(self, request: web.Request, principal: Principal) -> LeaseIncomeList:
        """Show what your providers earned by leases, and what is booked; operators may name another account."""
        view = self.market.view()
        rows = await self.providers.list_of(await select_account(request, principal, self.accounts))
        nodes = {row.address: str(row.node_id) for row in rows}
        now, found = max(int(self.clock.unix_s()), view.latest_unix_s), list[TermIncome]()

        def visit(lease: LeaseRecord) -> int:
            stream = view.latest.streams.get(lease.lease_id, PaymentStream(0))
            found.extend(income_of(lease, stream, nodes, at=now))
            return 1

        if nodes:
            await take_turns(list(view.latest.leases.values()), visit)
        return write_lease_income(found, nodes)


def write_lease_income(found: list[TermIncome], nodes: dict[str, str]) -> LeaseIncomeList:
    newest = sorted(found, key=lambda each: (-each.term.placed_at, each.lease.lease_id))
    running = [each for each in found if each.is_current and each.lease.state is LeaseState.ACTIVE]
    return LeaseIncomeList(
        data=[_line(each, nodes) for each in newest[:LEASES_LISTED_MAX]],
        earned_usd=usd(sum(each.earned_uusd for each in found)),
        due_usd=usd(sum(each.due_uusd for each in found)),
        hourly_usd=usd(sum(each.lease.rate_uusd for each in running)),
        leases=len(found),
    )


def _line(income: TermIncome, nodes: dict[str, str]) -> LeaseIncome:
    lease, term = income.lease, income.term
    has_it = income.is_current or (lease.state is LeaseState.CLOSED and lease.terms[-1] == term)
    return LeaseIncome(
        id=lease.lease_id,
        provider=term.provider,
        node=nodes[term.provider],
        state=LEASE_STATES[lease.state] if has_it else "left",
        hourly_usd=usd(lease.rate_uusd),
        placed_at=term.placed_at,
        left_at=term.left_at,
        ends_at=income.ends_at,
        earned_usd=usd(income.earned_uusd),
        due_usd=usd(income.due_uusd),
    )
