"""Everything that a gateway shows its operator, at this moment, read from what it keeps anyway.

It asks nobody and waits for nothing, but lets others have their turn between two handfuls of nodes: with very many of
them a scrape takes longer than a request may be held up. Of several processes, each collects its own.
"""

from __future__ import annotations

import asyncio
from itertools import chain

from sparewatt.core.money import NANO_PER_USD
from sparewatt.gateway.metrics import names
from sparewatt.gateway.metrics.exposition import as_page, lines_of
from sparewatt.gateway.metrics.model import Family, Metric, Sample, Samples, family, one
from sparewatt.gateway.metrics.of_jobs import collect_jobs
from sparewatt.gateway.metrics.of_network import Survey
from sparewatt.gateway.metrics.of_nodes import Roll, chosen
from sparewatt.gateway.metrics.of_process import collect_process
from sparewatt.gateway.metrics.turns import in_turns
from sparewatt.gateway.services import Services
from sparewatt.ledger.model import Amount

LINES_AT_ONCE = 250
"""Lines written in one turn of the event loop: about a millisecond."""
_NANO_PER_MICRO = NANO_PER_USD // 1_000_000


async def collect(services: Services) -> Samples:
    rows = list(services.table)
    survey, roll = Survey(services), Roll(services)
    await in_turns(rows, survey.add)
    await in_turns(chosen(rows) if services.settings.metrics_by_node else (), roll.add)
    return [
        *collect_jobs(services),
        *survey.families(),
        *roll.families(),
        *_collect_money(services),
        *collect_process(services),
    ]


async def page_of(families: Samples) -> bytes:
    """Rendered, likewise in turns."""
    lines: list[str] = []
    for line in chain.from_iterable(map(lines_of, families)):
        lines.append(line)
        if len(lines) % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return as_page(lines)


def _collect_money(services: Services) -> Samples:
    """Nothing on a network without books."""
    accounting = services.accounting
    if accounting is None:
        return []
    return [
        _micro(names.SPENT, accounting.ledger.spent),
        _micro(names.EARNED, accounting.ledger.earned),
        one(names.UNPOSTED, accounting.ledger.unposted),
        one(names.RECEIPTS_REFUSED, accounting.metering.receipts.refused),
    ]


def _micro(metric: Metric, amount: Amount) -> Family:
    classes = (("paid", amount.paid), ("promo", amount.promo))
    return family(metric, *(Sample(nano / _NANO_PER_MICRO, (("class", name),)) for name, nano in classes))
