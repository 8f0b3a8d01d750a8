"""The shipped matcher in the simulated world: one table per gateway, filled by delayed reports only."""

from __future__ import annotations

import math

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.filters import Situation
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, HealthRules, MatchJob
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.protocol.node import ModelReport, NodeLoad, NodeSpecs, Speed
from sparewatt.sim.oracle import nominal_decode_tps, prices
from sparewatt.sim.physics import Machine, ModelState, SimJob
from sparewatt.sim.scenario import PREFILL_FLOPS_SHARE, STEP_PER_JOB_S, Site
from sparewatt.sim.world import World

STRAIN_S = 1.0
SHARE_S = 15.0


def node_id(site: int) -> NodeId:
    return NodeId(f"0x{site:040x}")


class Gateways:
    """Implements Chooser for all gateways at once."""

    def __init__(self, world: World, policy: Policy, *, heartbeat_s: float, seed: int) -> None:
        self._world = world
        self._policy = policy
        self._seed = seed
        self._rules = HealthRules(heartbeat_s=heartbeat_s)
        n = len(world.gateway_regions)
        self.tables = [NodeTable(gateways=n) for _ in range(n)]
        self._price = prices(world.scenario)
        self._held: dict[int, tuple[Reservation, Candidate, float]] = {}
        self._picked: dict[int, Candidate] = {}
        self._share = [(0.0, 0.0, 0.0)] * len(world.machines)
        self._specs = [self._make_specs(machine) for machine in world.machines]
        self._dirty = [False] * len(world.machines)
        for g, table in enumerate(self.tables):
            for site in range(len(world.machines)):
                table.connect(node_id(site), self._specs[site], now_s=0.0)
                table.set_rtt(node_id(site), world.rtt_s(g, site), now_s=0.0)
        for site in range(len(world.machines)):
            first = heartbeat_s * (site + 1) / len(world.machines)
            world.at(first, lambda site=site: self._beat(site))  # type: ignore[misc]
        world.at(STRAIN_S, self._refresh)

    # reports

    def _make_specs(self, machine: Machine) -> NodeSpecs:
        site = machine.site
        return NodeSpecs(
            name=f"site-{site.number}",
            region="sim",
            gpu=site.gpu.name,
            gpu_count=1,
            vram_bytes=int(site.gpu.vram_gb * 1e9),
            tflops=site.gpu.tflops,
            hourly_price_nano=int(site.usd_per_hour * NANO_PER_USD),
            slots=256,
            backend="sim",
            agent_version="sim",
            models=tuple(self._report(machine, number) for number in machine.states),
            bandwidth_bytes_s=site.bandwidth / site.speed,
        )

    def _report(self, machine: Machine, number: int) -> ModelReport:
        site, model = machine.site, self._world.scenario.models[number]
        price = int(self._price[number][site.number] * 1e6 * NANO_PER_USD)
        return ModelReport(
            id=model.name,
            state=machine.states[number].value,
            weights_bytes=int(model.weights_bytes),
            kv_bytes_per_token=int(model.kv_bytes_per_token),
            prompt_price_nano=price,
            completion_price_nano=price,
            measured=claimed_speed(site, model.weights_bytes, model.active_params),
        )

    def _load(self, machine: Machine, gateway: int, now_s: float) -> NodeLoad:
        machine.advance(now_s)
        mine = {job.number for job in machine.all_jobs() if job.gateway == gateway}
        foreign = [job for job in machine.all_jobs() if job.number not in mine]
        own_models = {job.model.number for job in machine.all_jobs() if job.gateway == gateway}
        active = {job.model.number: job.model.weights_bytes for job in foreign if job.model.number not in own_models}
        unread = [job for job in foreign if job.first_token_s is None]
        return NodeLoad(
            running=min(100_000, machine.running),
            foreign=len(foreign),
            foreign_backlog_s=sum(2 * j.model.active_params * j.prompt_tokens / machine.site.flops for j in unread),
            foreign_kv_bytes=int(sum(job.kv_read_bytes for job in foreign)),
            foreign_active_bytes=int(sum(active.values())),
            kv_capacity_bytes=int(max(0.0, machine.kv_capacity)),
            prefill_share=self._prefill_share(machine, now_s),
        )

    def _prefill_share(self, machine: Machine, now_s: float) -> float:
        at_s, busy_s, share = self._share[machine.site.number]
        passed_s = now_s - at_s
        if passed_s > 0.5:
            fresh = (machine.busy_prefill_s - busy_s) / passed_s
            weight = 1.0 - math.exp(-passed_s / SHARE_S)
            share = min(1.0, max(0.0, share + weight * (fresh - share)))
            self._share[machine.site.number] = (now_s, machine.busy_prefill_s, share)
        return share

    def _beat(self, site: int) -> None:
        """A heartbeat to every gateway; specs go along when models changed."""
        now_s, machine = self._world.now_s, self._world.machines[site]
        self._world.at(now_s + self._rules.heartbeat_s, lambda: self._beat(site))
        if machine.alive:
            for gateway in range(len(self.tables)):
                self._tell(gateway, site, now_s)

    def _tell(self, gateway: int, site: int, now_s: float) -> None:
        machine = self._world.machines[site]
        load, specs = self._load(machine, gateway, now_s), self._specs[site]
        self._world.at(now_s + self._world.rtt_s(gateway, site) / 2, lambda: self._hear(gateway, site, load, specs))

    def _hear(self, gateway: int, site: int, load: NodeLoad, specs: NodeSpecs) -> None:
        table, name = self.tables[gateway], node_id(site)
        row = table.get(name)
        if row is not None and row.specs is not specs:
            table.set_specs(name, specs)
        table.set_load(name, load, now_s=self._world.now_s)

    def _refresh(self) -> None:
        for table in self.tables:
            table.refresh_strain()
        self._world.at(self._world.now_s + STRAIN_S, self._refresh)

    # Chooser

    def choose(self, job: SimJob, now_s: float) -> int | None:
        table = self.tables[job.gateway]
        model = ModelId(job.model.name)
        job.expected_output = table.typical_output_tokens(model)
        asked = MatchJob(MatchId(f"{job.number}.{job.attempts}"), model, job.prompt_tokens, job.expected_output)
        tried = frozenset(node_id(site) for site in job.tried)
        at = Situation(now_s=now_s, rules=self._rules, tried=tried)
        best = match(asked, table, at, policy=self._policy, seed=self._seed).best
        if best is None:
            job.tried.clear()
            return None
        held = table.reserve(best.node_id, asked, now_s=now_s)
        row = table.get(best.node_id)
        speed = math.exp(-max(0.0, row.slowness)) if row else 1.0
        self._held[job.number] = (held, best, speed)
        job.promised_ttft_s = best.predicted_ttft_s
        return int(best.node_id, 16)

    def sent(self, job: SimJob, site: int, now_s: float) -> None: ...

    def arrived(self, job: SimJob, site: int) -> None: ...

    def first_token(self, job: SimJob, now_s: float) -> None:
        held, _, _ = self._held[job.number]
        site = job.site or 0
        self._world.at(
            now_s + self._world.rtt_s(job.gateway, site) / 2, lambda: self.tables[job.gateway].prompt_read(held)
        )

    def over(self, job: SimJob, now_s: float, *, done: bool) -> None:
        held, best, speed = self._held.pop(job.number)
        table, name = self.tables[job.gateway], held.node_id
        table.release(held)
        if not done:
            table.note_failure(name, now_s=now_s)
            return
        table.note_success(name, model=held.model, output_tokens=job.output_tokens)
        if job.first_token_s is not None and job.finished_s is not None:
            decode_part = best.parts[5] / max(1, job.expected_output) * speed
            table.note_speed(
                name, predicted_s=decode_part * job.output_tokens, observed_s=job.finished_s - job.first_token_s
            )
        site = int(name, 16)
        if self._world.machines[site].alive:
            self._tell(job.gateway, site, now_s)

    def touched(self, site: int, now_s: float) -> None:
        machine = self._world.machines[site]
        states = tuple(state.value for state in machine.states.values())
        if states != tuple(model.state for model in self._specs[site].models):
            self._specs[site] = self._make_specs(machine)


def claimed_speed(site: Site, weights_bytes: float, active_params: float) -> Speed:
    """What the card's table says: the node's own word."""
    flops = PREFILL_FLOPS_SHARE * site.gpu.tflops * 1e12
    return Speed(
        prefill_tps=flops / (2 * active_params),
        decode_tps=nominal_decode_tps(site, weights_bytes, 1),
        step_per_job_s=STEP_PER_JOB_S,
    )


__all__ = ["Gateways", "ModelState"]
