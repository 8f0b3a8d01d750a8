"""Checked answers in the simulated world: the shipped rules, with re-runs and probes as jobs that take machines' time.

What two answers look like follows from who wrote them and from error rates measured with real servers
(`tables/check_errors.csv`, `make bench-checks`): an honest answer differs early now and then, a worthless one nearly
always. Which nodes are suspended is known to all gateways at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparewatt.core.ids import NodeId
from sparewatt.inference.checks.service import NEWCOMER_PROBE_S, SUSPECT_PROBE_S, WITNESSES
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.sim.scenario import SimModel, Site, read_check_errors
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import World
from sparewatt.trust.checks.comparison import compare
from sparewatt.trust.checks.frequency import FIRST_PASSES, CheckHistory, check_share, speed_excess
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.panel import TRUSTED_OWNERS, NodeVerdict, PanelAnswer, confirm, judge
from sparewatt.trust.checks.standing import CheckRecord, CheckState, next_record, settled_result
from sparewatt.trust.checks.tolerance import NO_PAIRS, is_too_early

FIRST_NUMBER = 10**9
"""Of jobs that are checks."""
PROBE_TOKENS = 60
ANSWER_PIECES, LATE_PIECE = 50, 8
"""Of an answer, and where one of a dishonest node differs that does not do so at once."""
_HAZARD = NO_PAIRS.hazard


@dataclass(slots=True)
class _Panel:
    kind: CheckKind
    subject: int
    model: SimModel
    gateway: int
    tokens: tuple[int, int]
    answers: dict[int, PanelAnswer] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    before: tuple[NodeVerdict, ...] = ()


class SimChecks:
    def __init__(self, world: World, tables: Sequence[NodeTable], *, ids: Sequence[NodeId], seed: int) -> None:
        self._world, self._tables, self._ids = world, tables, ids
        self._rng = random.Random(f"checks {seed}")
        self._errors = read_check_errors()
        self._excess = [_excess_of(site, world.scenario.models) for site in world.scenario.sites]
        self._records: dict[int, CheckRecord] = {}
        self._panels: dict[int, _Panel] = {}
        self._next_number = FIRST_NUMBER
        self.begun_s: list[float] = []
        """When each check began."""
        self.false_alarms = self.forfeits = 0
        """Honest nodes that failed a check, and that were barred."""
        for site in range(len(ids)):
            world.call_at(NEWCOMER_PROBE_S * self._rng.random(), self._probe_newcomer, site)

    def on_answer(self, job: SimJob, site: int) -> None:
        panel = self._panels.pop(job.number, None)
        if panel is not None:
            panel.answers[site] = self._answer(site)
            panel.waiting.discard(site)
            if not panel.waiting:
                self._conclude(panel)
        elif job.number < FIRST_NUMBER and self._rng.random() < self._share(site):
            self._rerun(job, site)

    def on_lost(self, job: SimJob) -> None:
        """A check that failed says nothing of the answer."""
        panel = self._panels.pop(job.number, None)
        if panel is not None and job.pinned is not None:
            panel.waiting.discard(job.pinned)
            if not panel.waiting:
                self._conclude(panel)

    def _share(self, site: int) -> float:
        record = self._records.get(site, CheckRecord())
        return check_share(CheckHistory(record.passed, record.is_suspended, self._excess[site]))

    # checks

    def _rerun(self, job: SimJob, site: int) -> None:
        panel = _Panel("rerun", site, job.model, job.gateway, (job.prompt_tokens, job.output_tokens))
        panel.answers[site] = self._answer(site)
        self._begin(panel, self._witnesses(panel, 1))

    def _probe(self, site: int) -> None:
        model = self._model_of(site)
        if model is not None:
            panel = _Panel("probe", site, model, self._rng.randrange(len(self._tables)), (PROBE_TOKENS, PROBE_TOKENS))
            chosen = self._witnesses(panel, WITNESSES)
            if sum(map(self._is_trusted, chosen)) >= TRUSTED_OWNERS:
                chosen = chosen[:TRUSTED_OWNERS]
            if chosen:
                self._begin(panel, [site, *chosen])

    def _begin(self, panel: _Panel, sites: Sequence[int]) -> None:
        if not panel.before and len(panel.answers) < TRUSTED_OWNERS:
            self.begun_s.append(self._world.now_s)
        panel.waiting = set(sites)
        for site in sites:
            self._send(panel, site)
        if not sites:
            self._conclude(panel)

    def _send(self, panel: _Panel, site: int) -> None:
        prompt, output = panel.tokens
        place, gateway = self._world.scenario.sites[site], panel.gateway
        job = SimJob(self._next_number, panel.model, self._world.now_s, prompt, output, place.region, gateway)
        job.pinned = site
        self._next_number += 1
        self._panels[job.number] = panel
        self._world.open_jobs += 1
        self._world.call_at(self._world.now_s, self._world.dispatch, job)

    def _conclude(self, panel: _Panel) -> None:
        answers = list(panel.answers.values())
        if panel.kind == "rerun" and len(answers) == TRUSTED_OWNERS and not _agree(*answers):
            third = self._witnesses(panel, 1)
            if third:
                self._begin(_rest(panel), third)
                return
        verdicts = judge(answers, kind=panel.kind, hazard=_HAZARD)
        if panel.kind == "probe" and not panel.before and any(each.result is CheckResult.FAILED for each in verdicts):
            again = _Panel("probe", panel.subject, panel.model, panel.gateway, panel.tokens, before=verdicts)
            self._begin(again, list(panel.answers))
            return
        for verdict in confirm(panel.before, verdicts) if panel.before else verdicts:
            self._settle(int(verdict.node), verdict, panel.kind)

    def _settle(self, site: int, verdict: NodeVerdict, kind: CheckKind) -> None:
        before = self._records.get(site, CheckRecord())
        result = settled_result(before, verdict.result, verdict.comparison, hazard=_HAZARD)
        record, _ = next_record(before, kind, result, verdict.comparison, unix_s=self._world.now_s)
        self._records[site] = record
        if not self._world.scenario.sites[site].is_garbage:
            self.false_alarms += result is CheckResult.FAILED
            self.forfeits += record.state is CheckState.BARRED and before.state is not CheckState.BARRED
        for table in self._tables:
            table.set_suspended(self._ids[site], is_suspended=record.is_suspended)
        if record.state is CheckState.SUSPECT:
            self._world.call_at(self._world.now_s + SUSPECT_PROBE_S, self._probe_suspect, site)

    def _probe_suspect(self, site: int) -> None:
        if self._records[site].state is CheckState.SUSPECT:
            self._probe(site)

    def _probe_newcomer(self, site: int) -> None:
        record = self._records.get(site, CheckRecord())
        if record.passed < FIRST_PASSES and not record.is_suspended:
            self._probe(site)
            self._world.call_at(self._world.now_s + NEWCOMER_PROBE_S, self._probe_newcomer, site)

    # who and what

    def _is_trusted(self, site: int) -> bool:
        return self._records.get(site, CheckRecord()).is_trusted

    def _model_of(self, site: int) -> SimModel | None:
        warm = self._world.scenario.sites[site].warm
        return self._world.scenario.models[warm[0]] if warm and self._world.machines[site].alive else None

    def _witnesses(self, panel: _Panel, count: int) -> list[int]:
        columns = self._tables[panel.gateway].columns_of(panel.model.name)
        nodes = list(columns.nodes) if columns is not None else []
        self._rng.shuffle(nodes)
        sites = [int(node, 16) for node in nodes]
        fit = [site for site in sites if site != panel.subject and site not in panel.answers and self._can(site, panel)]
        return sorted(fit, key=lambda site: not self._is_trusted(site))[:count]

    def _can(self, site: int, panel: _Panel) -> bool:
        row = self._tables[panel.gateway].get(self._ids[site])
        report = row.models.get(panel.model.name) if row is not None else None
        return row is not None and not row.is_suspended and report is not None and report.state == "warm"

    def _answer(self, site: int) -> PanelAnswer:
        return PanelAnswer(str(site), str(site), self._is_trusted(site), self._pieces(site))

    def _pieces(self, site: int) -> tuple[str, ...]:
        is_garbage = self._world.scenario.sites[site].is_garbage
        early = self._errors.other_early if is_garbage else self._errors.honest_early
        true = tuple(f" w{number}" for number in range(ANSWER_PIECES))
        if self._rng.random() < early:
            return (f" of {site}", *true[1:])
        return (*true[:LATE_PIECE], f" of {site}") if is_garbage else true


def _excess_of(site: Site, models: Sequence[SimModel]) -> float:
    """As the gateway sees it: how fast it writes, for what the card's data sheet allows."""
    found = (
        speed_excess(
            decode_tps=1 / site.alone_step_s(models[number]),
            weights_bytes=models[number].weights_bytes,
            bandwidth_bytes_s=site.gpu.bandwidth_gb_s * 1e9,
        )
        for number in site.warm
    )
    return max(found, default=1.0)


def _agree(one: PanelAnswer, other: PanelAnswer) -> bool:
    return not is_too_early(compare(one.pieces, other.pieces), hazard=_HAZARD)


def _rest(panel: _Panel) -> _Panel:
    """The same check, to be continued by another witness."""
    return _Panel(panel.kind, panel.subject, panel.model, panel.gateway, panel.tokens, panel.answers)
