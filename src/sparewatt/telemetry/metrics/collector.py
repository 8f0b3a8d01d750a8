"""All metrics of this process at this moment, read from what it keeps anyway.

It asks nobody and waits for nothing, but lets others run between some nodes and the next: with very many of them a
scrape takes longer than a request may be blocked. Of several processes, each collects its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sized
from itertools import chain

from sparewatt.accounts.rate_limits import RateLimiter
from sparewatt.core.clock import Clock
from sparewatt.core.drain import DrainState
from sparewatt.core.ids import NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.service import Metering
from sparewatt.ledger.ledger import Ledger
from sparewatt.ledger.model import Amount
from sparewatt.protocol.link.node_report import ServerMetrics
from sparewatt.telemetry.feed.live_feed import LiveFeed
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.loop_lag import LoopLag
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.batches import in_batches
from sparewatt.telemetry.metrics.exposition import as_page, lines_of
from sparewatt.telemetry.metrics.job_metrics import collect_jobs
from sparewatt.telemetry.metrics.model import Family, Metric, Sample, Samples, family, one
from sparewatt.telemetry.metrics.network_metrics import NetworkSurvey
from sparewatt.telemetry.metrics.node_metrics import NodeSurvey, chosen
from sparewatt.telemetry.metrics.process_metrics import collect_process

LINES_PER_TICK = 250
"""Lines written in one tick of the event loop: about a millisecond."""
_NANO_PER_MICRO = NANO_PER_USD // 1_000_000


class MetricsCollector:
    def __init__(
        self,
        *,
        table: NodeTable,
        health: HealthRules,
        dispatcher: Dispatcher,
        admission: AdmissionControl,
        counter: JobCounter,
        live: LiveFeed,
        loop_lag: LoopLag,
        limits: RateLimiter,
        power: PowerReadings,
        servers: Mapping[NodeId, ServerMetrics],
        links: Sized,
        ledger: Ledger | None,
        metering: Metering | None,
        drain: DrainState,
        by_node: bool,
        clock: Clock,
    ) -> None:
        """`by_node`: whether nodes are shown one by one. `servers`: what model servers report of themselves."""
        self._table = table
        self._health = health
        self._dispatcher = dispatcher
        self._admission = admission
        self._counter = counter
        self._live = live
        self._loop_lag = loop_lag
        self._limits = limits
        self._power = power
        self._servers = servers
        self._links = links
        self._ledger = ledger
        self._metering = metering
        self._drain = drain
        self._by_node = by_node
        self._clock = clock

    async def collect(self) -> Samples:
        rows, now_s = list(self._table), self._clock.now_s()
        network = NetworkSurvey(self._power, now_s=now_s, rules=self._health)
        await in_batches(rows, network.add)
        tokens = self._counter.totals.node_tokens
        nodes = NodeSurvey(self._power, self._servers, tokens, now_s=now_s, rules=self._health)
        await in_batches(chosen(rows) if self._by_node else (), nodes.add)
        return [
            *collect_jobs(self._counter, self._table, self._admission, running=self._dispatcher.running),
            one(names.FEED_VIEWERS, self._live.viewers),
            one(names.RATE_METERS, len(self._limits)),
            *network.families(),
            *nodes.families(),
            *self._collect_money(),
            *collect_process(self._loop_lag, is_ready=not self._drain.is_draining, links=len(self._links)),
        ]

    async def page(self) -> bytes:
        """Rendered for a scrape, likewise some lines per tick."""
        lines: list[str] = []
        for line in chain.from_iterable(map(lines_of, await self.collect())):
            lines.append(line)
            if len(lines) % LINES_PER_TICK == 0:
                await asyncio.sleep(0)
        return as_page(lines)

    def _collect_money(self) -> Collection[Family]:
        """Nothing on a network without books."""
        if self._ledger is None or self._metering is None:
            return []
        return [
            _micro(names.SPENT, self._ledger.spent),
            _micro(names.EARNED, self._ledger.earned),
            one(names.UNPOSTED, self._ledger.unposted),
            one(names.RECEIPTS_REFUSED, self._metering.receipts.refused),
        ]


def _micro(metric: Metric, amount: Amount) -> Family:
    classes = (("paid", amount.paid), ("promo", amount.promo))
    return family(metric, *(Sample(nano / _NANO_PER_MICRO, (("class", name),)) for name, nano in classes))
