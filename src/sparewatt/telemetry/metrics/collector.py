"""All metrics of this process at this moment, read from what it stores anyway. Of several processes each has its own.

Collecting waits for nothing, but yields to the event loop every few nodes and lines: with very many of them a scrape
takes longer than a request may be blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from itertools import chain

import psutil

from sparewatt import __version__
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
from sparewatt.telemetry.job_counter import JobCounter, ModelTotals
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.node_metrics import NetworkSurvey, NodeSurvey, in_batches, largest, shown_nodes
from sparewatt.telemetry.metrics.prometheus import Family, Histogram, Metric, Sample, as_page, labelled, lines_of, one

LINES_PER_TICK = 250
"""Lines written in one tick of the event loop: about a millisecond."""
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
LAG_PROBE_S = 0.25
_NANO_PER_MICRO = NANO_PER_USD // 1_000_000


class LoopLag:
    """How late the event loop runs its timers: a request waits as long before it is read."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram(LAG_S)

    def watch(self) -> None:
        """From now on, set four timers a second and observe how late each is."""
        due_s = self._clock.now_s() + LAG_PROBE_S

        def ring() -> None:
            self.histogram.observe(max(0.0, self._clock.now_s() - due_s))
            self.watch()

        self._clock.call_later(LAG_PROBE_S, ring)


@dataclass(slots=True, kw_only=True)
class MetricsCollector:
    table: NodeTable
    health: HealthRules
    dispatcher: Dispatcher
    admission: AdmissionControl
    counter: JobCounter
    live: LiveFeed
    loop_lag: LoopLag
    limits: RateLimiter
    power: PowerReadings
    servers: Mapping[NodeId, ServerMetrics]
    """What model servers report of themselves."""
    links: Sized
    ledger: Ledger | None
    metering: Metering | None
    drain: DrainState
    by_node: bool
    """Whether nodes have metrics of their own."""
    clock: Clock

    async def collect(self) -> list[Family]:
        rows, now_s = list(self.table), self.clock.now_s()
        network = NetworkSurvey(self.power, now_s=now_s, rules=self.health)
        await in_batches(rows, network.add)
        tokens = self.counter.totals.node_tokens
        nodes = NodeSurvey(power=self.power, servers=self.servers, tokens=tokens, now_s=now_s, rules=self.health)
        await in_batches(shown_nodes(rows) if self.by_node else (), nodes.add)
        return [
            *self._collect_jobs(),
            one(names.FEED_VIEWERS, self.live.viewers),
            one(names.RATE_METERS, len(self.limits)),
            *network.families(),
            *nodes.families(),
            *self._collect_money(),
            *_collect_process(self.loop_lag, is_ready=not self.drain.is_draining, links=len(self.links)),
        ]

    async def page(self) -> bytes:
        lines: list[str] = []
        for line in chain.from_iterable(map(lines_of, await self.collect())):
            lines.append(line)
            if len(lines) % LINES_PER_TICK == 0:
                await asyncio.sleep(0)
        return as_page(lines)

    def _collect_jobs(self) -> list[Family]:
        jobs, waiting = self.counter.totals, self.admission.waiting_by_model()
        jobs.tidy()
        running = {model: self.table.in_flight(model) for model in self.table.model_ids()}
        return [
            *_model_families(sorted(jobs.models.items())),
            labelled(names.REQUEST_ERRORS, "code", self.counter.errors),
            Family(names.MATCH_DURATION, jobs.match.samples()),
            Family(names.MATCH_CANDIDATES, jobs.candidates.samples()),
            labelled(names.CASCADE, "reason", jobs.cascades),
            one(names.SEAMS, jobs.seams),
            Family(names.QUEUE_WAIT, jobs.queue_wait.samples()),
            one(names.RUNNING, self.dispatcher.running),
            labelled(names.MODEL_RUNNING, "model", largest(running)),
            one(names.WAITING, sum(waiting.values())),
            labelled(names.MODEL_WAITING, "model", largest(waiting)),
        ]

    def _collect_money(self) -> list[Family]:
        """Nothing on a network without books."""
        if self.ledger is None or self.metering is None:
            return []
        return [
            _micro_usd(names.SPENT, self.ledger.spent),
            _micro_usd(names.EARNED, self.ledger.earned),
            one(names.UNPOSTED, self.ledger.unposted),
            one(names.RECEIPTS_REFUSED, self.metering.receipts.refused),
        ]


def _model_families(models: Iterable[tuple[str, ModelTotals]]) -> list[Family]:
    requests: list[Sample] = []
    tokens: list[Sample] = []
    first_token: list[Sample] = []
    per_token: list[Sample] = []
    duration: list[Sample] = []
    for name, totals in models:
        model = ("model", name)
        requests += [Sample(count, (model, ("outcome", end))) for end, count in totals.ends.items()]
        tokens.append(Sample(totals.prompt_tokens, (model, ("direction", "prompt"))))
        tokens.append(Sample(totals.completion_tokens, (model, ("direction", "completion"))))
        first_token += totals.first_token.samples((model,))
        per_token += totals.per_token.samples((model,))
        duration += totals.duration.samples((model,))
    return [
        Family(names.REQUESTS, requests),
        Family(names.TOKENS, tokens),
        Family(names.FIRST_TOKEN, first_token),
        Family(names.PER_TOKEN, per_token),
        Family(names.DURATION, duration),
    ]


def _micro_usd(metric: Metric, amount: Amount) -> Family:
    classes = (("paid", amount.paid), ("promo", amount.promo))
    return Family(metric, [Sample(nano / _NANO_PER_MICRO, (("class", name),)) for name, nano in classes])


def _collect_process(loop_lag: LoopLag, *, is_ready: bool, links: int) -> list[Family]:
    return [
        Family(names.BUILD, [Sample(1, (("version", __version__),))]),
        one(names.READY, float(is_ready)),
        one(names.LINKS, links),
        one(names.TASKS, len(asyncio.all_tasks())),
        Family(names.LOOP_LAG, loop_lag.histogram.samples()),
        *_usage(psutil.Process()),
        *_collections(),
    ]


def _usage(process: psutil.Process) -> list[Family]:
    with process.oneshot():
        cpu = process.cpu_times()
        families = [
            one(names.CPU, cpu.user + cpu.system),
            one(names.RESIDENT, process.memory_info().rss),
            one(names.STARTED, process.create_time()),
        ]
    with contextlib.suppress(AttributeError):  # Windows counts handles, which are something else
        families.append(one(names.FDS, process.num_fds()))
        families.append(one(names.FDS_MAX, process.rlimit(psutil.RLIMIT_NOFILE)[0]))
    return families


def _collections() -> list[Family]:
    generations = list(enumerate(gc.get_stats()))
    return [
        Family(metric, [Sample(stats[what], (("generation", str(at)),)) for at, stats in generations])
        for metric, what in ((names.COLLECTIONS, "collections"), (names.COLLECTED, "collected"))
    ]
