"""Checks of answers and what policies know of nodes, put together for one gateway process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.gateway.accounting import read_usd
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.checks.check_fund import CheckFund
from sparewatt.inference.checks.check_jobs import CheckDispatch
from sparewatt.inference.checks.sampler import AnswerSampler
from sparewatt.inference.checks.service import AnswerChecks
from sparewatt.inference.checks.witnesses import Witnesses
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.metering.service import Metering
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.model import TokenPrice
from sparewatt.ledger.withheld import WithheldEarnings
from sparewatt.store.database import Database


def make_checks(
    settings: GatewaySettings,
    database: Database,
    *,
    sampler: AnswerSampler,
    dispatcher: Dispatcher,
    metering: Metering | None,
    credits_: CreditService,
    price_cap: Callable[[ModelId], TokenPrice],
    new_match_id: Callable[[], MatchId],
) -> AnswerChecks:
    """`metering`: None on a network without books, where nobody is paid for checks, nor for anything else."""
    records, table, clock, rng = sampler.records, sampler.table, sampler.clock, sampler.rng
    daily, has_books = read_usd(settings.checks_daily_usd, "checks_daily_usd"), metering is not None
    return AnswerChecks(
        sampler=sampler,
        records=records,
        witnesses=Witnesses(table, records, rng),
        jobs=CheckDispatch(
            dispatcher=dispatcher,
            table=table,
            metering=metering,
            daily_nano=daily,
            price_cap=price_cap,
            new_match_id=new_match_id,
        ),
        table=table,
        verdicts=database.check_verdicts,
        counts=database.check_counts,
        withheld=WithheldEarnings(database.ledger, clock) if has_books else None,
        fund=CheckFund(credits_, daily_nano=daily, clock=clock) if has_books else None,
        clock=clock,
        rng=rng,
    )


def tiers_in(database: Database) -> Callable[[], Awaitable[Mapping[NodeId, str]]]:
    async def read() -> Mapping[NodeId, str]:
        return {node_id: each.tier.value for node_id, each in (await database.node_tiers.all()).items()}

    return read
