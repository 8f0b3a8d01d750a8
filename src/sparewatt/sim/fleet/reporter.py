"""What simulated machines say about themselves: the product's own messages, made from running sums, never a walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, Speed
from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.node import prefix_cache_tokens
from sparewatt.sim.price_table import nominal_decode_tps, nominal_prefill_tps, price_table
from sparewatt.sim.scenario import STEP_PER_JOB_S, SimModel, Site
from sparewatt.sim.world import World

COUNT_MAX = 100_000
TOKENS_PER_PRICE = 1e6
_NOTHING = NodeLoad()


class NodeReport(NamedTuple):
    load: NodeLoad
    specs: NodeSpecs


def node_id(site: int) -> NodeId:
    return NodeId(f"0x{site:040x}")


class SimReporter:
    """The machines' side of the link."""

    def __init__(self, world: World, *, keeps_prefixes: bool) -> None:
        """`keeps_prefixes`: whether nodes tell that they keep prompts."""
        self._keeps_prefixes = keeps_prefixes
        self._machines = world.machines
        self._nodes = world.nodes
        self._models = world.scenario.models
        self._price = price_table(world.scenario)
        self._specs = [self._make_specs(machine) for machine in world.machines]
        self._last_loads: list[dict[int, NodeLoad]] = [{} for _ in world.machines]
        """What each gateway was told last, by machine."""

    def specs(self, site: int) -> NodeSpecs:
        return self._specs[site]

    def models_changed(self, site: int) -> None:
        self._specs[site] = self._make_specs(self._machines[site])

    def report(self, gateway: int, site: int, now_s: float) -> NodeReport | None:
        """The state of a machine as one gateway is told it; nothing from a dead one."""
        machine = self._machines[site]
        return NodeReport(self._load(machine, gateway, now_s), self._specs[site]) if machine.alive else None

    def outgoing_reports(self, site: int, now_s: float, *, only_news: bool) -> Iterator[tuple[int, NodeReport]]:
        """What a machine sends on its own account, and to which gateway."""
        told = self._last_loads[site]
        for gateway in range(len(self._machines[site].gateway_totals)):
            report = self.report(gateway, site, now_s)
            if report is None:
                return
            if not only_news or report.load.is_news_after(told.get(gateway, _NOTHING)):
                told[gateway] = report.load
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
            foreign_kv_bytes=max(0, int(total.kv_read_bytes - own.kv_read_bytes)) if is_shared else 0,
            foreign_models=self._names(total.models.keys() - own.models.keys()) if is_shared else (),
            kv_capacity_bytes=max(0, int(machine.kv_capacity)),
            prefill_share=self._nodes[machine.site.number].reading_share(now_s),
        )

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._models[number].name for number in sorted(numbers))

    def _make_specs(self, machine: SimMachine) -> NodeSpecs:
        site = machine.site
        return NodeSpecs(
            name=f"site-{site.number}",
            region="sim",
            gpu=site.gpu.name,
            gpu_count=1,
            vram_bytes=int(site.gpu.vram_gb * 1e9),
            tflops=site.gpu.tflops * site.claims,
            hourly_price_nano=int(site.usd_per_hour * NANO_PER_USD),
            slots=site.slots,
            backend="sim",
            agent_version="sim",
            models=tuple(self._model_report(machine, self._models[number]) for number in machine.states),
            bandwidth_bytes_s=site.bandwidth / site.speed * site.claims,
        )

    def _model_report(self, machine: SimMachine, model: SimModel) -> ModelReport:
        at, per_mtok = (model.number, machine.site.number), TOKENS_PER_PRICE * NANO_PER_USD
        return ModelReport(
            id=model.name,
            state=machine.states[model.number].value,
            weights_bytes=int(model.weights_bytes),
            kv_bytes_per_token=int(model.kv_bytes_per_token),
            prompt_price_nano=int(self._price.prompt[at] * per_mtok),
            completion_price_nano=int(self._price.completion[at] * per_mtok),
            measured=claimed_speed(machine.site, model),
            prefix_cache_tokens=prefix_cache_tokens(machine, model) if self._keeps_prefixes else 0,
        )


def claimed_speed(site: Site, model: SimModel) -> Speed:
    """What the card's table says, or several times that: the node's own word."""
    return Speed(
        prefill_tps=site.claims * nominal_prefill_tps(site, model.active_params),
        decode_tps=site.claims * nominal_decode_tps(site, model.weights_bytes, 1),
        step_per_job_s=STEP_PER_JOB_S / site.claims,
    )
