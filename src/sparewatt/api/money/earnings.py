"""/v1/earnings: what the nodes of an account earned, by job, day, model or node. A job is in it once it is settled.

/v1/earnings/summary: what of it waits, is in payout batches and was claimed, and how busy each node was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.money.credits import treasury_balance_of
from sparewatt.api.money.statements import (
    SPAN_QUERY,
    STATEMENT_LINES_MAX,
    STATEMENT_QUERY,
    AccountFinder,
    amounts,
    cursor_of,
    read_page,
    read_span,
    select_account,
    select_node,
    statement_reply,
    utc_iso,
)
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import Nano, format_usd
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.rules import INFERENCE_FEE_BPS
from sparewatt.protocol.api.earnings import (
    AttemptEarnings,
    AttemptEarningsList,
    EarningsGroup,
    EarningsGroupList,
    EarningsSummary,
    EarningsSummaryReply,
    NodeUtilisation,
)
from sparewatt.protocol.api.feed import OutcomeName
from sparewatt.store.ledger import WithheldRow
from sparewatt.store.power import MeanPower
from sparewatt.store.statements import EarningLine, EarningsBy, EarningSum, NodeBusyTime, StatementStore, TimeRange

_BY: tuple[EarningsBy | Literal["job"], ...] = ("job", "day", "model", "node")


class LedgerBalances(Protocol):
    """Implemented by `LedgerStore`."""

    async def balances(self, accounts: Sequence[str], /) -> Mapping[str, Nano]: ...

    async def withheld(self, *, owner: AccountId) -> Sequence[WithheldRow]:
        """What its nodes earned since their last passed check."""
        ...


class SettledPayouts(Protocol):
    """Implemented by `PayoutStore`."""

    async def payout_totals(self, account_id: AccountId, /) -> tuple[int, int, int]:
        """In micro-dollars: in batches that wait, in batches that are posted, claimed of those."""
        ...


class PowerHistory(Protocol):
    """Implemented by `PowerStore`."""

    async def mean_power_of(
        self, nodes: Sequence[NodeId], /, *, from_unix_s: float, to_unix_s: float
    ) -> Mapping[NodeId, MeanPower]: ...


@dataclass(slots=True, kw_only=True)
class EarningsEndpoints:
    accounts: AccountFinder
    statements: StatementStore
    books: LedgerBalances
    payouts: SettledPayouts
    power: PowerHistory
    credits: CreditService
    nodes: NodeTable
    clock: Clock

    @endpoint("GET /v1/earnings", access="node", query=(*STATEMENT_QUERY, "by", "node", "account"), csv=True)
    async def show_earnings(
        self, request: web.Request, principal: Principal
    ) -> Reply[AttemptEarningsList] | Reply[EarningsGroupList] | web.Response:
        """Show what your nodes earned, by job, day, model or node; operators may name another account."""
        by = choice(request, "by", _BY)
        page = read_page(request, now_unix_s=self.clock.unix_s())
        owner, node = await select_account(request, principal, self.accounts), select_node(request, self.nodes)
        store, span, limit = self.statements, page.span, page.limit
        if by == "job":
            attempts = await store.earnings(owner, span=span, node_id=node, after=page.cursor, limit=limit)
            following = page.next(attempts, lambda row: cursor_of(row.opened_at, row.job_id, row.position))
            listed = AttemptEarningsList(data=[attempt_earnings_of(row) for row in attempts], next=following)
            return statement_reply(page, listed, AttemptEarnings, name="earnings")
        sums = await store.earnings_by(owner, by=by, span=span, node_id=node, after=page.after, limit=limit)
        following = page.next(sums, lambda row: row.name)
        groups = EarningsGroupList(data=[earnings_group_of(row) for row in sums], next=following)
        return statement_reply(page, groups, EarningsGroup, name="earnings")

    @endpoint("GET /v1/earnings/summary", access="node", query=(*SPAN_QUERY, "node", "account"))
    async def show_summary(self, request: web.Request, principal: Principal) -> EarningsSummaryReply:
        """Show where the money of a node owner stands, and how busy each node was."""
        now = self.clock.unix_s()
        span = read_span(request, now_unix_s=now)
        owner, node = await select_account(request, principal, self.accounts), select_node(request, self.nodes)
        busy = await self.statements.busy_times(owner, span=span, limit=STATEMENT_LINES_MAX)
        past = TimeRange(span.from_unix_s, min(span.to_unix_s, now))
        nodes = await self._utilisations([each for each in busy if node in (None, each.node_id)], span=past)
        return EarningsSummaryReply(data=await self._summary(owner, nodes))

    async def _utilisations(self, busy: Sequence[NodeBusyTime], *, span: TimeRange) -> list[NodeUtilisation]:
        ids = [each.node_id for each in busy]
        power = await self.power.mean_power_of(ids, from_unix_s=span.from_unix_s, to_unix_s=span.to_unix_s)
        return [utilisation_of(each, self.nodes.get(each.node_id), power.get(each.node_id), span=span) for each in busy]

    async def _summary(self, owner: AccountId, nodes: list[NodeUtilisation]) -> EarningsSummary:
        earned, promo = chart.earned_by(owner), chart.promo_earned_by(owner)
        balances = await self.books.balances([earned, promo])
        withheld = sum(row.paid + row.promo for row in await self.books.withheld(owner=owner))
        batched, settled, claimed = [micro * NANO_PER_MICRO for micro in await self.payouts.payout_totals(owner)]
        return EarningsSummary(
            account=owner,
            fee_bps=INFERENCE_FEE_BPS,
            **amounts(withheld=withheld, pending=balances[earned], promo=balances[promo]),
            **amounts(batched=batched, settled=settled, claimed=claimed),
            treasury=treasury_balance_of(await self.credits.treasury()),
            nodes=nodes,
        )


def earnings_group_of(row: EarningSum) -> EarningsGroup:
    return EarningsGroup(
        name=row.name,
        jobs=row.jobs,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        **amounts(fee=row.fee_nano, net=row.net_nano, net_promo=row.net_promo_nano),
    )


def attempt_earnings_of(row: EarningLine) -> AttemptEarnings:
    return AttemptEarnings(
        job_id=row.job_id,
        opened_at=utc_iso(row.opened_at),
        position=row.position,
        node_id=row.node_id,
        model=row.model,
        outcome=cast("OutcomeName", row.outcome),  # metering writes nothing else
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        prompt_usd_per_mtok=format_usd(row.prompt_price),
        completion_usd_per_mtok=format_usd(row.completion_price),
        **amounts(fee=row.fee_nano, net=row.net_nano, net_promo=row.net_promo_nano),
        first_token_ms=row.first_token_ms,
        duration_ms=row.duration_ms,
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
