"""The shipped matcher in the simulated world: one table per gateway, filled by delayed reports and replies only.

`reports.py` is the machine's side and may look at it; nothing here does, and least of all `choose`.
"""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.inference.dispatch.learning import STEPS_MIN, predicted_step_s
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, HealthRules, MatchJob
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.sim.physics import NEVER, SimJob
from sparewatt.sim.reports import Report, Reporter, node_id
from sparewatt.sim.world import End, World

STRAIN_S = 1.0


class Held(NamedTuple):
    """A job under way, as its gateway remembers it."""

    reservation: Reservation
    step_s: float | None
    """What a token was expected to take, where the policy predicts."""


class Gateways:
    """Implements Chooser for all gateways at once."""

    def __init__(self, world: World, policy: Policy, *, heartbeat_s: float, seed: int) -> None:
        self._world = world
        self._policy = policy
        self._seed = seed
        self._rules = HealthRules(heartbeat_s=heartbeat_s)
        self._reporter = Reporter(world)
        self._ids = [node_id(site) for site in range(len(world.machines))]
        self._held: dict[int, Held] = {}
        n = len(world.gateway_regions)
        self.tables = [NodeTable(gateways=n) for _ in range(n)]
        for gateway, table in enumerate(self.tables):
            for site, name in enumerate(self._ids):
                table.connect(name, self._reporter.specs(site), now_s=0.0)
                table.set_rtt(name, world.rtt_s(gateway, site), now_s=0.0)
        for site in range(len(self._ids)):
            world.at(heartbeat_s * (site + 1) / len(self._ids), self._beat, site)
        world.at(STRAIN_S, self._refresh)

    # reports

    def _beat(self, site: int) -> None:
        """A heartbeat to every gateway."""
        now_s = self._world.now_s
        self._world.at(now_s + self._rules.heartbeat_s, self._beat, site)
        for gateway in range(len(self.tables)):
            report = self._reporter.report(gateway, site, now_s)
            if report is not None:
                self._world.at(now_s + self._world.rtt_s(gateway, site) / 2, self._hear, gateway, site, report)

    def _hear(self, gateway: int, site: int, report: Report) -> None:
        table, name = self.tables[gateway], self._ids[site]
        row = table.get(name)
        if row is not None and row.specs is not report.specs:
            table.set_specs(name, report.specs)
        table.set_load(name, report.load, now_s=self._world.now_s)

    def _refresh(self) -> None:
        for table in self.tables:
            table.refresh_strain()
        self._world.at(self._world.now_s + STRAIN_S, self._refresh)

    # Chooser

    def choose(self, job: SimJob, now_s: float) -> int | None:
        table = self.tables[job.gateway]
        model = ModelId(job.model.name)
        job.expected_output = table.typical_output_tokens(model)
        asked = MatchJob(MatchId(f"{job.number}.{len(job.tried)}"), model, job.prompt_tokens, job.expected_output)
        tried = frozenset(self._ids[site] for site in job.tried) if job.tried else frozenset()
        at = Situation(now_s=now_s, rules=self._rules, tried=tried)
        found = self._pick(asked, table, at)
        if found is None:
            job.tried.clear()
            return None
        chosen, best = found
        step_s = None if best is None else predicted_step_s(best, asked, table.get(chosen))
        self._held[job.number] = Held(table.reserve(chosen, asked, now_s=now_s), step_s)
        job.promised_ttft_s = NEVER if best is None else best.predicted_ttft_s
        return int(chosen, 16)

    def _pick(self, job: MatchJob, table: NodeTable, at: Situation) -> tuple[NodeId, Candidate | None] | None:
        """A node and what it promises; a policy that predicts nothing promises nothing."""
        best = match(job, table, at, policy=self._policy, seed=self._seed).best
        if best is None:
            return None
        return best.node_id, best if self._policy.unit == "s" else None

    def sent(self, job: SimJob, site: int, now_s: float) -> None: ...

    def arrived(self, job: SimJob, site: int) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> Report | None:
        return self._reporter.report(gateway, site, now_s)

    def first_token(self, job: SimJob, now_s: float) -> None:
        held = self._held[job.number].reservation
        there_s = now_s + self._world.rtt_s(job.gateway, job.site or 0) / 2
        self._world.at(there_s, self.tables[job.gateway].prompt_read, held)

    def over(self, job: SimJob, now_s: float, *, end: End, report: Report | None) -> None:
        held = self._held.pop(job.number)
        table, name = self.tables[job.gateway], held.reservation.node_id
        table.release(held.reservation)
        if end is End.FAILED:
            table.note_failure(name, now_s=now_s)
        elif end is End.DONE:
            table.note_success(name, model=held.reservation.model, output_tokens=job.output_tokens)
            self._learn_speed(job, held, table)
        if report is not None:
            self._hear(job.gateway, int(name, 16), report)

    def _learn_speed(self, job: SimJob, held: Held, table: NodeTable) -> None:
        if held.step_s is None or job.first_token_s is None or job.finished_s is None:
            return
        steps = job.output_tokens - 1
        if steps >= STEPS_MIN:
            observed_s = job.finished_s - job.first_token_s
            table.note_speed(held.reservation.node_id, predicted_s=held.step_s * steps, observed_s=observed_s)

    def touched(self, site: int, now_s: float) -> None: ...

    def models_changed(self, site: int, now_s: float) -> None:  # noqa: ARG002 (Chooser)
        self._reporter.models_changed(site)
