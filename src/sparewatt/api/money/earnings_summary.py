"""/v1/earnings/summary: where an owner's money stands, and how busy each node was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.api.money.pages import SPAN_QUERY, read_span
from sparewatt.api.money.selection import AccountFinder, select_account, select_node
from sparewatt.api.money.treasury import treasury_balance_of
from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import STATEMENT_LINES_MAX
from sparewatt.core.money import Nano, format_usd
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.rules import INFERENCE_FEE_BPS
from sparewatt.protocol.api.earnings import EarningsSummary, EarningsSummaryReply, NodeUtilisation
from sparewatt.store.power import MeanPower
from sparewatt.store.statements import NodeBusyTime, TimeRange


class BusyTimes(Protocol):
    async def busy_times(self, owner: AccountId, *, span: TimeRange, limit: int) -> list[NodeBusyTime]: ...


class LedgerBalances(Protocol):
    async def balances(self, accounts: Sequence[str], /) -> Mapping[str, Nano]: ...


class SettledPayouts(Protocol):
    async def payout_totals(self, account_id: AccountId, /) -> tuple[int, int, int]:
        """In micro-dollars: in batches that wait, in batches that are posted, claimed of those."""
        ...


class PowerHistory(Protocol):
    async def mean_power_of(
        self, nodes: Sequence[NodeId], /, *, from_unix_s: float, to_unix_s: float
    ) -> Mapping[NodeId, MeanPower]: ...


class EarningsSummaryEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        accounts: AccountFinder,
        statements: BusyTimes,
        books: LedgerBalances,
        payouts: SettledPayouts,
        power: PowerHistory,
        credit_service: CreditService,
        nodes: NodeTable,
        clock: Clock,
    ) -> None:
        self._auth = auth
        self._accounts = accounts
        self._statements = statements
        self._books = books
        self._payouts = payouts
        self._power = power
        self._credits = credit_service
        self._nodes = nodes
        self._clock = clock

    @get("/v1/earnings/summary", query=(*SPAN_QUERY, "node", "account"))
    async def show_summary(self, request: web.Request) -> EarningsSummaryReply:
        """Show where the money of a node owner stands, and how busy each node was."""
        principal = await self._auth.authenticate(context_of(request), "node")
        now = self._clock.unix_s()
        span = read_span(request, now_unix_s=now)
        owner, node = await select_account(request, principal, self._accounts), select_node(request, self._nodes)
        busy = await self._statements.busy_times(owner, span=span, limit=STATEMENT_LINES_MAX)
        past = TimeRange(span.from_unix_s, min(span.to_unix_s, now))
        nodes = await self._utilisations([each for each in busy if node in (None, each.node_id)], span=past)
        return EarningsSummaryReply(data=await self._summary(owner, nodes))

    async def _utilisations(self, busy: Sequence[NodeBusyTime], *, span: TimeRange) -> list[NodeUtilisation]:
        power = await self._power.mean_power_of(
            [each.node_id for each in busy], from_unix_s=span.from_unix_s, to_unix_s=span.to_unix_s
        )
        return [
            utilisation_of(each, self._nodes.get(each.node_id), power.get(each.node_id), span=span) for each in busy
        ]

    async def _summary(self, owner: AccountId, nodes: list[NodeUtilisation]) -> EarningsSummary:
        earned, promo = chart.earned_by(owner), chart.promo_earned_by(owner)
        balances = await self._books.balances([earned, promo])
        batched, settled, claimed = [micro * NANO_PER_MICRO for micro in await self._payouts.payout_totals(owner)]
        return EarningsSummary(
            account=owner,
            fee_bps=INFERENCE_FEE_BPS,
            pending_usd=format_usd(balances[earned]),
            pending_nano=balances[earned],
            batched_usd=format_usd(batched),
            batched_nano=batched,
            settled_usd=format_usd(settled),
            settled_nano=settled,
            claimed_usd=format_usd(claimed),
            claimed_nano=claimed,
            promo_usd=format_usd(balances[promo]),
            promo_nano=balances[promo],
            treasury=treasury_balance_of(await self._credits.treasury()),
            nodes=nodes,
        )


def utilisation_of(
    busy: NodeBusyTime, row: NodeRow | None, power: MeanPower | None, *, span: TimeRange
) -> NodeUtilisation:
    """Utilisation: the share of the time, since the node's first job in the span, in which it had a job."""
    window_s = max(busy.busy_s, span.to_unix_s - max(span.from_unix_s, busy.first_at.timestamp()))
    return NodeUtilisation(
        node_id=busy.node_id,
        name=row.specs.name if row else None,
        slots=row.specs.slots if row else None,
        busy_s=busy.busy_s,
        work_s=busy.work_s,
        window_s=window_s,
        utilisation=busy.busy_s / window_s if window_s > 0 else 0.0,
        working_watts=round(power.watts, 2) if power else None,
        working_watts_over_s=round(power.working_s, 1) if power else None,
    )
