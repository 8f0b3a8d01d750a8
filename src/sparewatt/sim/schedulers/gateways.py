"""The shipped admission control and matcher in the simulated world: one node table per gateway.

A table is filled only by delayed reports and replies; `choose` reads nothing of the true state.
"""

from __future__ import annotations

import math

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.lessons import ENOUGH
from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S, REFUSALS_MAX
from sparewatt.core.rng import seeded
from sparewatt.inference.admission.model import AdmissionRequest
from sparewatt.inference.admission.rules import cost_tokens
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.model import Candidate, MatchContext, MatchJob
from sparewatt.inference.matcher.newcomers import TIMED_JOBS
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.trials import match_fairly
from sparewatt.sim.fleet.node import NodeReport, SimReporter, node_id
from sparewatt.sim.schedulers.checks import SimChecks
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import AttemptEnd, Refuse, Start, VirtualClock, World

USERS = 64
"""API keys that send the requests, round robin."""


class SimGateways:
    """Implements Scheduler for all gateways together."""

    def __init__(
        self,
        world: World,
        ranking: Ranking,
        *,
        heartbeat_s: float,
        seed: int,
        affinity: bool = True,
        checks: bool = False,
    ) -> None:
        self._world = world
        self._ranking = ranking
        self._seed = seed
        self._rules = HealthRules(heartbeat_s=heartbeat_s)
        self._reporter = SimReporter(world.machines, world.nodes, world.scenario, reports_prefix_cache=affinity)
        self._ids = [node_id(site) for site in range(len(world.machines))]
        self._in_flight: dict[int, Reservation] = {}
        self._is_report_due = [False] * len(self._ids)
        self._reported_at_s = [0.0] * len(self._ids)
        n = len(world.gateway_regions)
        self.tables = [NodeTable() for _ in range(n)]
        self._prefixes = [PrefixIndex() for _ in range(n)]
        clock = VirtualClock(world)
        self._admissions = [AdmissionControl(table.capacity, clock=clock, rng=seeded(seed)) for table in self.tables]
        for gateway, table in enumerate(self.tables):
            for site, name in enumerate(self._ids):
                table.connect(name, self._reporter.specs[site], now_s=0.0)
                table.set_rtt(name, world.rtt_s(gateway, site), now_s=0.0)
                if world.scenario.sites[site].is_known:
                    _restore_timings(table, name)
        self.checks = SimChecks(world, self.tables, ids=self._ids, seed=seed) if checks else None
        for site in range(len(self._ids)):
            world.call_at(heartbeat_s * (site + 1) / len(self._ids), self._send_heartbeat, site)

    # reports

    def _send_heartbeat(self, site: int) -> None:
        """To every gateway."""
        self._world.call_at(self._world.now_s + self._rules.heartbeat_s, self._send_heartbeat, site)
        self._send_reports(site, only_changes=False)

    def on_machine_change(self, site: int, now_s: float) -> None:
        """Other gateways' jobs are reported between heartbeats, too, at most every LOAD_REPORT_INTERVAL_S."""
        if len(self.tables) > 1 and not self._is_report_due[site]:
            self._is_report_due[site] = True
            due_s = max(now_s, self._reported_at_s[site] + LOAD_REPORT_INTERVAL_S)
            self._world.call_at(due_s, self._send_load_change, site)

    def _send_load_change(self, site: int) -> None:
        self._is_report_due[site] = False
        self._reported_at_s[site] = self._world.now_s
        self._send_reports(site, only_changes=True)

    def _send_reports(self, site: int, *, only_changes: bool) -> None:
        now_s = self._world.now_s
        for gateway, report in self._reporter.outgoing_reports(site, now_s, only_changes=only_changes):
            arrives_s = now_s + self._world.rtt_s(gateway, site) / 2
            self._world.call_at(arrives_s, self._receive_report, gateway, site, report)

    def _receive_report(self, gateway: int, site: int, report: NodeReport) -> None:
        table, name = self.tables[gateway], self._ids[site]
        row = table.get(name)
        if row is not None and row.specs is not report.specs:
            table.set_specs(name, report.specs, now_s=self._world.now_s)
        table.set_load(name, report.load, now_s=self._world.now_s)

    # Scheduler

    def admit(self, job: SimJob, *, start: Start, refuse: Refuse) -> None:
        def on_refusal(error: SparewattError) -> None:
            refuse(job, error.retry_after_s or 0.0)

        model = ModelId(job.model.name)
        expected = self.tables[job.gateway].typical_output_tokens(model)
        user, cost = f"user {job.number % USERS}", cost_tokens(job.prompt_tokens, expected)
        request = AdmissionRequest(account_id=AccountId(user), key_id=KeyId(user), model=model, cost_tokens=cost)
        self._admissions[job.gateway].admit(request, start=lambda: start(job), refuse=on_refusal)

    def choose(self, job: SimJob, now_s: float) -> int | None:
        table = self.tables[job.gateway]
        if job.pinned is not None:
            return self._choose_pinned(job, job.pinned, now_s)
        model = ModelId(job.model.name)
        expected = table.typical_output_tokens(model)
        wanted = MatchJob(MatchId(f"{job.number}.{len(job.tried)}"), model, job.prompt_tokens, expected)
        picked = self._pick_late(wanted, job, table, now_s, self._pick(wanted, table, self._context(job, now_s)))
        if picked is None:
            return None
        node, prediction = picked
        job.believed_tokens = 0 if prediction is None else prediction.cached_tokens
        self._in_flight[job.number] = table.reserve(node, wanted, now_s=now_s, cached_tokens=job.believed_tokens)
        site = int(node, 16)
        job.promised_ttft_s = 0.0 if prediction is None else self._promise_s(job, site, prediction)
        job.predicted_ttft_s = None if prediction is None else prediction.predicted_ttft_s
        job.predicted_cost = math.inf if prediction is None else prediction.cost
        return site

    def _choose_pinned(self, job: SimJob, site: int, now_s: float) -> int | None:
        """A check goes to one node, once."""
        table, name, model = self.tables[job.gateway], self._ids[site], ModelId(job.model.name)
        row = table.get(name)
        if job.tried or row is None or model not in row.positions:
            if self.checks is not None:
                self.checks.on_lost(job)
            return None
        wanted = MatchJob(MatchId(f"{job.number}"), model, job.prompt_tokens, job.output_tokens)
        self._in_flight[job.number] = table.reserve(name, wanted, now_s=now_s)
        return site

    def _context(self, job: SimJob, now_s: float) -> MatchContext:
        tried = frozenset(self._ids[site] for site in job.tried) if job.tried else frozenset()
        held = self._prefixes[job.gateway].tokens_by_node(job.prefix, now_s=now_s) if job.prefix else None
        return MatchContext(now_s=now_s, rules=self._rules, tried=tried, prefix_tokens=held)

    def _pick_late(
        self,
        wanted: MatchJob,
        job: SimJob,
        table: NodeTable,
        now_s: float,
        found: tuple[NodeId, Candidate | None] | None,
    ) -> tuple[NodeId, Candidate | None] | None:
        """As in dispatch: one that refused the job as late gets it if no other can, or none is better."""
        late = min(job.late, key=lambda site: job.late[site], default=None)
        best = found[1].cost if found is not None and found[1] is not None else math.inf
        if late is None or (found is not None and job.late[late] >= best):
            return found
        job.tried.discard(late)
        return self._pick(wanted, table, self._context(job, now_s))

    def _note_late(self, job: SimJob, site: int) -> None:
        """As in dispatch: what the job costs there by the node's own word."""
        job.late[site] = job.predicted_cost + max(0.0, job.late[site] - (job.predicted_ttft_s or 0.0))

    def _promise_s(self, job: SimJob, site: int, prediction: Candidate) -> float:
        """As in dispatch: no promise, and so no refusal, after REFUSALS_MAX refusals or one by the same node."""
        has_refused = job.late.pop(site, None) is not None
        return 0.0 if has_refused or job.refusals >= REFUSALS_MAX else prediction.predicted_ttft_s

    def _pick(self, job: MatchJob, table: NodeTable, at: MatchContext) -> tuple[NodeId, Candidate | None] | None:
        """A node, and the prediction for it if the ranking predicts times."""
        best = match_fairly(job, table, at, ranking=self._ranking, seed=self._seed).best
        if best is None:
            return None
        return best.node_id, best if self._ranking.unit == "s" else None

    def on_arrived(self, job: SimJob, site: int) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> NodeReport | None:
        return self._reporter.report(gateway, site, now_s)

    def on_first_token(self, job: SimJob, now_s: float) -> None:
        arrives_s = now_s + self._world.rtt_s(job.gateway, job.site or 0) / 2
        self._world.call_at(arrives_s, self._note_first_token, job, self._in_flight[job.number])

    def _note_first_token(self, job: SimJob, reservation: Reservation) -> None:
        self.tables[job.gateway].note_first_token(reservation, now_s=self._world.now_s)
        if job.prefix:
            self._note_prefix(job, reservation.node_id)

    def _note_prefix(self, job: SimJob, node_id: NodeId) -> None:
        """As in dispatch."""
        row = self.tables[job.gateway].get(node_id)
        model = row.models.get(job.model.name) if row is not None else None
        if model is not None:
            tokens, now_s = model.prefix_cache_tokens, self._world.now_s
            self._prefixes[job.gateway].add(node_id, model.id, job.prefix, capacity_tokens=tokens, now_s=now_s)

    def on_end(self, job: SimJob, now_s: float, *, end: AttemptEnd, report: NodeReport | None) -> None:
        reservation = self._in_flight.pop(job.number)
        table, name = self.tables[job.gateway], reservation.node_id
        if end is AttemptEnd.REFUSED:
            self._note_late(job, int(name, 16))
        elif end is AttemptEnd.FAILED:
            if self.checks is not None:
                self.checks.on_lost(job)
            self._prefixes[job.gateway].forget(name)  # most failures are dead machines, which lose their cache
            table.note_failure(name, model=reservation.model, now_s=now_s)
        elif end is AttemptEnd.DONE:
            if table.note_answer(reservation, steps=job.output_tokens, now_s=now_s):
                table.note_success(name, model=reservation.model, output_tokens=job.output_tokens)
            else:
                table.note_failure(name, model=reservation.model, now_s=now_s)
        table.release(reservation, now_s=now_s)
        if end is AttemptEnd.DONE and self.checks is not None:
            self.checks.on_answer(job, int(name, 16))
        if report is not None:
            self._receive_report(job.gateway, int(name, 16), report)

    def on_models_change(self, site: int, now_s: float) -> None:  # noqa: ARG002 (Scheduler)
        self._reporter.models_changed(site)


def _restore_timings(table: NodeTable, node_id: NodeId) -> None:
    """The network was there before the simulation began: it has timed the node, and found what the node says."""
    row = table.get(node_id)
    if row is not None:
        known = {"reads": ENOUGH, "writes": ENOUGH, "jobs": TIMED_JOBS}
        timings = {model: position.timing()._replace(**known) for model, position in row.positions.items()}
        table.restore(node_id, timings)
