"""The node agent of a simulated machine: refuses late jobs by the product's own estimate, and reports load and specs.

The estimate is `node/jobs/ttft_estimator.py`, fed with what the machine does. A node knows its own speed; a liar
believes its claim and so refuses too few jobs. Reports are made from running sums, without a walk over the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.node.jobs.ttft_estimator import BackendCapacity, TtftEstimator
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, Speed
from sparewatt.protocol.link.node_report import ModelState as ReportedState
from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.measuring import measured_speed
from sparewatt.sim.fleet.reported_facts import ReportedFacts, driver_name, reported_facts
from sparewatt.sim.scenario import Scenario, SimModel, price_table
from sparewatt.sim.traffic import SimJob

COUNT_MAX = 100_000
NANO_PER_USD_PER_MTOK = 1e6 * NANO_PER_USD
_NO_LOAD = NodeLoad()


class SimNode:
    """Decides which jobs its machine refuses."""

    __slots__ = ("_estimator", "_machine", "_reports")

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine
        self._estimator = TtftEstimator()
        self._reports: dict[tuple[int, ReportedState], ModelReport] = {}

    def late_ttft_s(self, job: SimJob, now_s: float) -> float | None:
        """The expected time to first token, if the job is refused because of it."""
        self._refresh_capacity()
        return self._estimator.late_ttft_s(
            self._report(job.model),
            job.prompt_tokens,
            promised_s=job.promised_ttft_s,
            now_s=now_s,
            cached_tokens=job.believed_tokens,
        )

    def _refresh_capacity(self) -> None:
        self._estimator.capacity = BackendCapacity(node_slots(self._machine), kv_bytes=kv_capacity_bytes(self._machine))

    def begin(self, job: SimJob, now_s: float) -> None:
        self._refresh_capacity()
        model, cached_tokens = self._report(job.model), job.believed_tokens
        self._estimator.begin(job.number, model, job.prompt_tokens, now_s=now_s, cached_tokens=cached_tokens)

    def first_token(self, job: SimJob, now_s: float) -> None:
        self._estimator.note_first_token(job.number, now_s=now_s)

    def end(self, job: SimJob, now_s: float) -> None:
        self._estimator.end(job.number, now_s=now_s)

    def restart(self) -> None:
        """The machine died: a restarted agent has no jobs."""
        self._estimator = TtftEstimator()

    def prefill_share(self, now_s: float) -> float:
        self._refresh_capacity()
        return self._estimator.prefill_share(now_s)

    def _report(self, model: SimModel) -> ModelReport:
        state: ReportedState = self._machine.states[model.number].value
        report = self._reports.get((model.number, state))
        if report is None:
            report = _model_report(
                self._machine, model, measured_speed(self._machine.site, model), usd_per_token=(0.0, 0.0)
            )
            self._reports[model.number, state] = report
        return report


class NodeReport(NamedTuple):
    load: NodeLoad
    specs: NodeSpecs


class SimReporter:
    """What all nodes report to the gateways, as the product's own messages."""

    def __init__(
        self,
        machines: Sequence[SimMachine],
        nodes: Sequence[SimNode],
        scenario: Scenario,
        *,
        reports_prefix_cache: bool,
    ) -> None:
        self._reports_prefix_cache = reports_prefix_cache
        self._machines = machines
        self._nodes = nodes
        self._models = scenario.models
        self._price = price_table(scenario)
        self.specs = [self._make_specs(machine) for machine in machines]
        self._last_loads: list[dict[int, NodeLoad]] = [{} for _ in machines]
        """By machine and gateway, what was last sent."""

    def models_changed(self, site: int) -> None:
        self.specs[site] = self._make_specs(self._machines[site])

    def report(self, gateway: int, site: int, now_s: float) -> NodeReport | None:
        """The machine's state as it is reported to one gateway; None from a dead one."""
        machine = self._machines[site]
        return NodeReport(self._load(machine, gateway, now_s), self.specs[site]) if machine.alive else None

    def outgoing_reports(self, site: int, now_s: float, *, only_changes: bool) -> Iterator[tuple[int, NodeReport]]:
        """The reports that a node sends unasked, each with its gateway."""
        last_loads = self._last_loads[site]
        for gateway in range(len(self._machines[site].gateway_totals)):
            report = self.report(gateway, site, now_s)
            if report is None:
                return
            if not only_changes or report.load.is_news_after(last_loads.get(gateway, _NO_LOAD)):
                last_loads[gateway] = report.load
                yield gateway, report

    def _load(self, machine: SimMachine, gateway: int, now_s: float) -> NodeLoad:
        machine.advance(now_s)
        own, total = machine.gateway_totals[gateway], machine.totals
        is_shared = own.jobs < total.jobs
        return NodeLoad(
            running=min(COUNT_MAX, machine.running),
            queued=min(COUNT_MAX, total.jobs - machine.running),
            foreign=min(COUNT_MAX, total.jobs - own.jobs),
            foreign_backlog_s=max(0.0, total.unread_s - own.unread_s) if is_shared else 0.0,
            foreign_kv_bytes=believed_kv_bytes(machine, total.kv_read_bytes - own.kv_read_bytes) if is_shared else 0,
            foreign_models=self._names(total.models.keys() - own.models.keys()) if is_shared else (),
            kv_capacity_bytes=kv_capacity_bytes(machine),
            prefill_share=self._nodes[machine.site.number].prefill_share(now_s),
        )

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._models[number].name for number in sorted(numbers))

    def _make_specs(self, machine: SimMachine) -> NodeSpecs:
        site = machine.site
        return NodeSpecs(
            name=f"site-{site.number}",
            region="sim",
            gpu=driver_name(site.gpu),
            gpu_count=1,
            vram_bytes=int(site.gpu.vram_gb * 1e9),
            tflops=site.gpu.tflops * site.claims,
            hourly_price_nano=int(site.usd_per_hour * NANO_PER_USD),
            slots=node_slots(machine),
            backend=site.server,
            agent_version="sim",
            models=tuple(self._public_report(machine, self._models[number]) for number in machine.states),
            bandwidth_bytes_s=_main_facts(machine).bandwidth_bytes_s,
        )

    def _public_report(self, machine: SimMachine, model: SimModel) -> ModelReport:
        at = (model.number, machine.site.number)
        prices = (self._price.prompt[at], self._price.completion[at])
        has_cache, speed = self._reports_prefix_cache, measured_speed(machine.site, model)
        return _model_report(machine, model, speed, usd_per_token=prices, has_prefix_cache=has_cache)


def _model_report(
    machine: SimMachine,
    model: SimModel,
    speed: Speed,
    *,
    usd_per_token: tuple[float, float],
    has_prefix_cache: bool = True,
) -> ModelReport:
    prompt_usd, completion_usd = usd_per_token
    facts = reported_facts(machine.site, model)
    cache_bytes = machine.kv_capacity + machine.site.prefix_ram_bytes  # of an idle machine
    has_cache = has_prefix_cache and facts.caches_prefixes
    return ModelReport(
        id=model.name,
        state=machine.states[model.number].value,
        weights_bytes=facts.weights_bytes,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        prompt_price_nano=int(prompt_usd * NANO_PER_USD_PER_MTOK),
        completion_price_nano=int(completion_usd * NANO_PER_USD_PER_MTOK),
        context_length=facts.context_length,
        measured=speed,
        prefix_cache_tokens=max(0, int(cache_bytes / model.kv_bytes_per_token)) if has_cache else 0,
    )


def _main_facts(machine: SimMachine) -> ReportedFacts:
    """Of the first model that it has loaded, else of any."""
    return reported_facts(machine.site, machine.main_model())


def node_slots(machine: SimMachine) -> int:
    return _main_facts(machine).slots


def kv_capacity_bytes(machine: SimMachine) -> int | None:
    """None for a server that does not tell how many tokens its KV cache holds."""
    return believed_kv_bytes(machine, machine.kv_capacity) if _main_facts(machine).knows_kv_tokens else None


def believed_kv_bytes(machine: SimMachine, true_bytes: float) -> int:
    """A server tells tokens; what a token takes is the agent's belief."""
    believed, true = _main_facts(machine).kv_bytes_per_token, machine.main_model().kv_bytes_per_token
    return max(0, int(true_bytes * believed / true))


def node_id(site: int) -> NodeId:
    return NodeId(f"0x{site:040x}")
