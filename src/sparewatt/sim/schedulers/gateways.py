"""The shipped matcher in the simulated world: one table per gateway, filled by delayed reports and replies only.

`reports.py` is the machine's side and may look at it; nothing here does, and least of all `choose`.
"""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import KeyId, MatchId, ModelId, NodeId
from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S, REFUSALS_MAX
from sparewatt.core.rng import seeded
from sparewatt.inference.admission.model import AdmissionRequest
from sparewatt.inference.admission.rules import cost_tokens
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.node_selection import STEPS_MIN, predicted_step_s
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, MatchContext, MatchJob
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.fleet.reporter import NodeReport, SimReporter, node_id
from sparewatt.sim.virtual_clock import VirtualClock
from sparewatt.sim.world import AttemptEnd, Refuse, Start, World

STRAIN_S = 1.0
USERS = 64
"""Keys that the requests come from, each in its turn."""


class InFlightJob(NamedTuple):
    """A job under way, as its gateway remembers it."""

    reservation: Reservation
    step_s: float | None
    """What a token was expected to take, where the policy predicts."""


class SimGateways:
    """Implements Chooser for all gateways at once."""

    def __init__(self, world: World, ranking: Ranking, *, heartbeat_s: float, seed: int, affinity: bool = True) -> None:
        self._world = world
        self._ranking = ranking
        self._seed = seed
        self._rules = HealthRules(heartbeat_s=heartbeat_s)
        self._reporter = SimReporter(world, keeps_prefixes=affinity)
        self._ids = [node_id(site) for site in range(len(world.machines))]
        self._in_flight: dict[int, InFlightJob] = {}
        self._is_report_due = [False] * len(self._ids)
        self._reported_at_s = [0.0] * len(self._ids)
        n = len(world.gateway_regions)
        self.tables = [NodeTable(gateways=n) for _ in range(n)]
        self._prefixes = [PrefixIndex() for _ in range(n)]
        self._admissions = [self._admission(table, seed) for table in self.tables]
        for gateway, table in enumerate(self.tables):
            for site, name in enumerate(self._ids):
                table.connect(name, self._reporter.specs(site), now_s=0.0)
                table.set_rtt(name, world.rtt_s(gateway, site), now_s=0.0)
        for site in range(len(self._ids)):
            world.call_at(heartbeat_s * (site + 1) / len(self._ids), self._send_heartbeat, site)
        world.call_at(STRAIN_S, self._refresh)

    def _admission(self, table: NodeTable, seed: int) -> AdmissionControl:
        """Wired as in a gateway: places that come free move the line."""
        return AdmissionControl(table.capacity, clock=VirtualClock(self._world), rng=seeded(seed))

    # reports

    def _send_heartbeat(self, site: int) -> None:
        """A heartbeat to every gateway."""
        self._world.call_at(self._world.now_s + self._rules.heartbeat_s, self._send_heartbeat, site)
        self._send_reports(site, only_news=False)

    def on_machine_change(self, site: int, now_s: float) -> None:
        """Something happened on a machine: of work from elsewhere a gateway hears between heartbeats, too."""
        if len(self.tables) > 1 and not self._is_report_due[site]:
            self._is_report_due[site] = True
            self._world.call_at(
                max(now_s, self._reported_at_s[site] + LOAD_REPORT_INTERVAL_S), self._send_load_change, site
            )

    def _send_load_change(self, site: int) -> None:
        self._is_report_due[site] = False
        self._reported_at_s[site] = self._world.now_s
        self._send_reports(site, only_news=True)

    def _send_reports(self, site: int, *, only_news: bool) -> None:
        now_s = self._world.now_s
        for gateway, report in self._reporter.outgoing_reports(site, now_s, only_news=only_news):
            self._world.call_at(
                now_s + self._world.rtt_s(gateway, site) / 2, self._receive_report, gateway, site, report
            )

    def _receive_report(self, gateway: int, site: int, report: NodeReport) -> None:
        table, name = self.tables[gateway], self._ids[site]
        row = table.get(name)
        if row is not None and row.specs is not report.specs:
            table.set_specs(name, report.specs)
        table.set_load(name, report.load, now_s=self._world.now_s)

    def _refresh(self) -> None:
        for table in self.tables:
            table.refresh_strain()
        self._world.call_at(self._world.now_s + STRAIN_S, self._refresh)

    # Chooser

    def admit(self, job: SimJob, *, start: Start, refuse: Refuse) -> None:
        def turn_away(error: SparewattError) -> None:
            refuse(job, error.retry_after_s or 0.0)

        expected = self.tables[job.gateway].typical_output_tokens(ModelId(job.model.name))
        applicant = AdmissionRequest(
            key_id=KeyId(f"user {job.number % USERS}"),
            model=ModelId(job.model.name),
            cost_tokens=cost_tokens(job.prompt_tokens, expected),
        )
        self._admissions[job.gateway].admit(applicant, start=lambda: start(job), refuse=turn_away)

    def choose(self, job: SimJob, now_s: float) -> int | None:
        table = self.tables[job.gateway]
        model = ModelId(job.model.name)
        expected = table.typical_output_tokens(model)
        asked = MatchJob(MatchId(f"{job.number}.{len(job.tried)}"), model, job.prompt_tokens, expected)
        found = self._pick(asked, table, self._situation(job, now_s)) or self._pick_late(asked, job, table, now_s)
        if found is None:
            return None
        chosen, best = found
        step_s = None if best is None else predicted_step_s(best, asked, table.get(chosen))
        job.believed_tokens = 0 if best is None else best.cached_tokens
        reservation = table.reserve(chosen, asked, now_s=now_s, cached_tokens=job.believed_tokens)
        self._in_flight[job.number] = InFlightJob(reservation, step_s)
        site = int(chosen, 16)
        job.promised_ttft_s = 0.0 if best is None else self._promise_s(job, site, best)
        return site

    def _situation(self, job: SimJob, now_s: float) -> MatchContext:
        tried = frozenset(self._ids[site] for site in job.tried) if job.tried else frozenset()
        held = self._prefixes[job.gateway].tokens_by_node(job.prefix, now_s=now_s) if job.prefix else None
        return MatchContext(now_s=now_s, rules=self._rules, tried=tried, prefix_tokens=held)

    def _pick_late(
        self, asked: MatchJob, job: SimJob, table: NodeTable, now_s: float
    ) -> tuple[NodeId, Candidate | None] | None:
        """As in dispatch: nodes that would be late may have the job if nobody else can."""
        if not job.late:
            return None
        job.tried -= job.late
        return self._pick(asked, table, self._situation(job, now_s))

    def _promise_s(self, job: SimJob, site: int, best: Candidate) -> float:
        """As in dispatch: who was refused twice, or asks again, takes what it gets."""
        is_asked_again = site in job.late
        job.late.discard(site)
        return 0.0 if is_asked_again or job.refusals >= REFUSALS_MAX else best.predicted_ttft_s

    def _pick(self, job: MatchJob, table: NodeTable, at: MatchContext) -> tuple[NodeId, Candidate | None] | None:
        """A node and what it promises; a policy that predicts nothing promises nothing."""
        best = match(job, table, at, ranking=self._ranking, seed=self._seed).best
        if best is None:
            return None
        return best.node_id, best if self._ranking.unit == "s" else None

    def on_sent(self, job: SimJob, site: int, now_s: float) -> None: ...

    def on_arrived(self, job: SimJob, site: int) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> NodeReport | None:
        return self._reporter.report(gateway, site, now_s)

    def on_first_token(self, job: SimJob, now_s: float) -> None:
        held = self._in_flight[job.number].reservation
        there_s = now_s + self._world.rtt_s(job.gateway, job.site or 0) / 2
        self._world.call_at(there_s, self.tables[job.gateway].note_prefill_done, held)
        if job.prefix:
            self._world.call_at(there_s, self._note_prefix, job, held.node_id)

    def _note_prefix(self, job: SimJob, node_id: NodeId) -> None:
        """As in dispatch."""
        row = self.tables[job.gateway].get(node_id)
        model = row.models.get(job.model.name) if row is not None else None
        if model is not None:
            tokens, now_s = model.prefix_cache_tokens, self._world.now_s
            self._prefixes[job.gateway].add(node_id, model.id, job.prefix, capacity_tokens=tokens, now_s=now_s)

    def on_end(self, job: SimJob, now_s: float, *, end: AttemptEnd, report: NodeReport | None) -> None:
        held = self._in_flight.pop(job.number)
        table, name = self.tables[job.gateway], held.reservation.node_id
        table.release(held.reservation)
        if end is AttemptEnd.FAILED:
            self._prefixes[job.gateway].forget(name)  # most often its machine is gone, and its link with it
            table.note_failure(name, now_s=now_s)
        elif end is AttemptEnd.DONE:
            table.note_success(name, model=held.reservation.model, output_tokens=job.output_tokens)
            self._learn_speed(job, held, table)
        if report is not None:
            self._receive_report(job.gateway, int(name, 16), report)

    def _learn_speed(self, job: SimJob, held: InFlightJob, table: NodeTable) -> None:
        if held.step_s is None or job.first_token_s is None or job.finished_s is None:
            return
        steps = job.output_tokens - 1
        if steps >= STEPS_MIN:
            observed_s = job.finished_s - job.first_token_s
            table.note_speed(held.reservation.node_id, predicted_s=held.step_s * steps, observed_s=observed_s)

    def on_models_change(self, site: int, now_s: float) -> None:  # noqa: ARG002 (Chooser)
        self._reporter.models_changed(site)
