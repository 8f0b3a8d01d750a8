"""Checked answers at a gateway: which answers are checked, the panels that are asked, and what verdicts lead to.

`sampler` decides on the path of every job, by one draw. The rest happens later, in the background: a greedy request
runs again on a second node that its own policy allows, and on a third if these differ; for any other a prompt of the
network's own goes to the node and its witnesses. A verdict is stored with the record that it leads to, and the node's
withheld pay is released or forfeited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.core.cleanup import on_failure
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import ModelId, NodeId, new_id
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.inference.checks.answers import ReadAnswer
from sparewatt.inference.checks.check_fund import CheckFund
from sparewatt.inference.checks.check_jobs import CheckRequest
from sparewatt.inference.checks.evidence import CheckEvidence, about, evidence_of
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.sampler import AnswerSampler, PlannedCheck
from sparewatt.inference.checks.witnesses import Witnesses, group_of, owner_account
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger.withheld import WithheldEarnings
from sparewatt.store.check_counts import CheckCountStore
from sparewatt.store.check_verdicts import CheckVerdictStore, RecordChange, VerdictRow
from sparewatt.trust.checks.comparison import compare, pieces_of
from sparewatt.trust.checks.frequency import FIRST_PASSES
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.panel import TRUSTED_OWNERS, NodeVerdict, PanelAnswer, confirm, judge
from sparewatt.trust.checks.probe_prompts import SEED_BYTES, draw_probe
from sparewatt.trust.checks.standing import (
    CheckRecord,
    CheckState,
    Consequence,
    after_term,
    next_record,
    settled_result,
)
from sparewatt.trust.checks.tolerance import NO_PAIRS, HonestPairs, is_too_early

_log = Logger("sparewatt.checks")
RUNNING_MAX = 4
"""At a time, in each process."""
WITNESSES = 3
SUSPECT_PROBE_S = 5.0
"""Between two probes of a node that gets nothing else."""
NEWCOMER_PROBE_S = 20.0
"""Between two probes of a node without its first passes: paid by the network, so that it earns within the hour."""
WITHHELD_PROBE_S = 1_200.0
"""A node that has worked since its last check is checked at least so often, so that its pay does not wait longer."""
NEVER_S = 1e12
TRIES_MAX = 10


class NodeAsker(Protocol):
    """Implemented by `CheckDispatch`."""

    async def ask(self, node_id: NodeId, request: CheckRequest, /) -> ReadAnswer | None:
        """One node's answer; None if it gave none."""
        ...


class PanelRound(NamedTuple):
    """One prompt on several nodes, judged."""

    evidence: CheckEvidence
    verdicts: tuple[NodeVerdict, ...]


def _has_failure(verdicts: Sequence[NodeVerdict]) -> bool:
    return any(verdict.result is CheckResult.FAILED for verdict in verdicts)


@dataclass(slots=True, kw_only=True)
class AnswerChecks:
    sampler: AnswerSampler
    records: CheckRecords
    witnesses: Witnesses
    jobs: NodeAsker
    table: NodeTable
    verdicts: CheckVerdictStore
    counts: CheckCountStore
    withheld: WithheldEarnings | None
    """None on a network without books."""
    fund: CheckFund | None
    """Likewise."""
    clock: Clock
    rng: Rng
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _checked_at_s: dict[NodeId, float] = field(default_factory=dict, init=False)
    _tries: dict[NodeId, int] = field(default_factory=dict, init=False)
    """Probes since the last verdict: of a node that nobody can be held against there will be ever fewer."""
    _pairs: Mapping[str, HonestPairs] = field(default_factory=dict, init=False)

    # in the background

    async def run_due(self) -> None:
        """Start what is due, as far as there is room."""
        now_s = self.clock.now_s()
        planned = self.sampler.planned
        for _ in range(len(planned)):
            if len(self._running) >= RUNNING_MAX:
                return
            plan = planned.popleft()
            if plan.due_s > now_s:
                planned.append(plan)
                continue
            task = asyncio.get_running_loop().create_task(self._run(plan))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def sync(self) -> None:
        """Store counts, and read what other gateways judged and learned."""
        if self.fund is not None:
            await self.fund.fund()
        self.sampler.forget_shares()
        counts = self.sampler.take_counts()
        with on_failure(self.sampler.give_back, counts):
            if counts:
                await self.counts.add(counts)
        self.records.load(await self.verdicts.records_since(self.records.version))
        self._pairs = await self.verdicts.pairs()
        for row in self.table:  # also nodes that have joined since their record was read
            self.table.set_suspended(row.id, is_suspended=self.records.of(row.id).is_suspended)

    async def plan_probes(self) -> None:
        """Nodes that must not wait for a job to be checked: suspects, newcomers, and those whose pay is withheld."""
        now_s = self.clock.now_s()
        owners: set[str] = set()
        for row in self.table:
            if not row.connected or row.load.draining or self.records.is_own(row.owner):
                continue
            record = await self._current_record(row.id)
            if now_s < self._checked_at_s.get(row.id, -NEVER_S) + self._probe_every_s(row.id, record):
                continue
            model = next((name for name, report in row.models.items() if report.state == "warm"), None)
            owner = self.witnesses.owner_of(row)
            if model is None or (owner in owners and not record.is_suspended):
                continue  # one newcomer of an owner at a time: a hundred identities earn like one
            owners.add(owner)
            self._checked_at_s[row.id] = now_s
            self.sampler.plan_probe(row.id, ModelId(model))

    def _probe_every_s(self, node_id: NodeId, record: CheckRecord) -> float:
        if record.state is CheckState.BARRED:
            return 2 * NEVER_S
        longer = 2.0 ** min(TRIES_MAX, self._tries.get(node_id, 0))
        if record.is_suspended:
            return SUSPECT_PROBE_S * longer
        if record.passed < FIRST_PASSES:
            return NEWCOMER_PROBE_S * longer
        return WITHHELD_PROBE_S * longer if self.sampler.unchecked_jobs.get(node_id) else 2 * NEVER_S

    async def _current_record(self, node_id: NodeId) -> CheckRecord:
        record = self.records.of(node_id)
        if record.state is CheckState.BARRED and after_term(record, unix_s=self.clock.unix_s()) is not record:
            unix_s = self.clock.unix_s()
            record = await self.verdicts.change_record(node_id, lambda before: after_term(before, unix_s=unix_s))
            self.records.set(node_id, record)
        return record

    async def release_overdue(self) -> None:
        """Pay what nobody could check for a day, and take what barred nodes earned after their verdict."""
        if self.withheld is not None:
            await self.withheld.release_overdue(lambda node_id: not self.records.of(node_id).is_suspended)

    async def _run(self, plan: PlannedCheck) -> None:
        row = self.table.get(plan.node_id)
        try:
            if row is not None and plan.request is not None:
                await self._rerun(row, plan, plan.request)
            elif row is not None:
                await self.probe(row, plan.model)
        except StoreUnavailable:
            _log.warning("check_lost", node=plan.node_id)

    async def _rerun(self, row: NodeRow, plan: PlannedCheck, request: CheckRequest) -> None:
        """The customer's request on a second node, and on a third if the two differ."""
        answers = [self._answer(row, plan.pieces)]
        for witness in self.witnesses.pick(row, plan.model, count=2, allowed=plan.allowed):
            answer = await self.jobs.ask(witness.id, request)
            if answer is not None:
                answers.append(self._answer(witness, pieces_of(answer.text)))
            if self._agree(answers, self._hazard(row, plan.model)):
                break
        if len(answers) == 1:
            await self.probe(row, plan.model)  # no node that the request's policy allows
            return
        await self._settle_all(await self._judge(row, plan.model, answers, kind="rerun"))

    async def probe(self, row: NodeRow, model: ModelId) -> None:
        """A prompt of the network's own on the node and its witnesses, and a second one if anybody fails it."""
        self._checked_at_s[row.id] = self.clock.now_s()
        self._tries[row.id] = self._tries.get(row.id, 0) + 1
        chosen = self.witnesses.pick(row, model, count=WITNESSES)
        if sum(map(self.witnesses.is_trusted, chosen)) >= TRUSTED_OWNERS:
            chosen = chosen[:TRUSTED_OWNERS]
        first = await self._ask_panel([row, *chosen], model) if chosen else None
        if first is None:
            return
        second = await self._ask_panel([row, *chosen], model, before=first) if _has_failure(first.verdicts) else first
        if second is not None:
            await self._settle_all(second)

    async def _ask_panel(
        self, panel: Sequence[NodeRow], model: ModelId, *, before: PanelRound | None = None
    ) -> PanelRound | None:
        """None if the node itself, or everybody else, did not answer."""
        seed, limits = self.rng.randbytes(SEED_BYTES), tuple(self.sampler.limits.get(model, ()))
        request = CheckRequest.of_probe(draw_probe(seed, limits=limits), model)
        replies = await asyncio.gather(*(self.jobs.ask(each.id, request) for each in panel))
        answers = [
            self._answer(each, pieces_of(reply.text))
            for each, reply in zip(panel, replies, strict=True)
            if reply is not None
        ]
        if replies[0] is None or len(answers) == 1:
            return None
        return await self._judge(panel[0], model, answers, kind="probe", seed=seed, limits=limits, before=before)

    # verdicts

    def _answer(self, row: NodeRow, pieces: tuple[str, ...]) -> PanelAnswer:
        return PanelAnswer(row.id, self.witnesses.owner_of(row), self.witnesses.is_trusted(row), pieces)

    def _hazard(self, row: NodeRow, model: ModelId) -> float:
        return self._pairs.get(group_of(row, model), NO_PAIRS).hazard

    def _agree(self, answers: Sequence[PanelAnswer], hazard: float) -> bool:
        first, *others = answers
        return any(not is_too_early(compare(first.pieces, each.pieces), hazard=hazard) for each in others)

    async def _judge(
        self,
        row: NodeRow,
        model: ModelId,
        answers: Sequence[PanelAnswer],
        *,
        kind: CheckKind,
        seed: bytes | None = None,
        limits: Sequence[int] = (),
        before: PanelRound | None = None,
    ) -> PanelRound:
        group, hazard = group_of(row, model), self._hazard(row, model)
        check = before.evidence.check if before is not None else new_id("check", rng=self.rng)
        evidence = evidence_of(
            check,
            kind,
            model,
            group,
            answers,
            hazard=hazard,
            seed=seed,
            limits=limits,
            before=before.evidence if before is not None else None,
        )
        await self._learn(group, answers)
        verdicts = judge(answers, kind=kind, hazard=hazard)
        return PanelRound(evidence, verdicts if before is None else confirm(before.verdicts, verdicts))

    async def _settle_all(self, judged: PanelRound) -> None:
        for verdict in judged.verdicts:
            await self._settle(verdict, judged.evidence)

    async def _learn(self, group: str, answers: Sequence[PanelAnswer]) -> None:
        """From those whose word is not doubted, whether they agree or not."""
        trusted = [answer for answer in answers if answer.is_trusted]
        pairs = NO_PAIRS
        for one, other in pairwise(trusted):
            pairs = pairs.plus(compare(one.pieces, other.pieces))
        if pairs != NO_PAIRS:
            await self.verdicts.add_pairs(group, pairs)

    async def _settle(self, verdict: NodeVerdict, evidence: CheckEvidence) -> None:
        node_id, unix_s = NodeId(verdict.node), self.clock.unix_s()
        row = self.table.get(node_id)
        if verdict.result is CheckResult.UNDECIDED or row is None or self.records.is_own(row.owner):
            return
        self._checked_at_s[node_id] = self.clock.now_s()
        self._tries.pop(node_id, None)
        self.sampler.unchecked_jobs.pop(node_id, None)

        def change(before: CheckRecord) -> RecordChange:
            result = settled_result(before, verdict.result, verdict.comparison, hazard=evidence.hazard)
            record, consequence = next_record(before, evidence.kind, result, verdict.comparison, unix_s=unix_s)
            return RecordChange(record, result.value, consequence)

        verdict_id = new_id("verdict", rng=self.rng)
        text = msgspec.json.encode(about(evidence, verdict)).decode()
        row_to_store = VerdictRow(verdict_id, unix_s, node_id, evidence.kind, verdict.result.value, "", text)
        changed = await self.verdicts.add(row_to_store, change)
        self.records.set(node_id, changed.record)
        self.sampler.count(node_id, evidence.kind, CheckResult(changed.result))
        _log.info("answer_checked", node=node_id, kind=evidence.kind, result=changed.result, state=changed.record.state)
        await self._pay(row, changed.consequence, verdict_id)

    async def _pay(self, row: NodeRow, consequence: Consequence, verdict_id: str) -> None:
        if self.withheld is None:
            return
        if consequence is Consequence.RELEASE:
            await self.withheld.release(owner_account(row), row.id, cause=verdict_id)
        elif consequence is Consequence.FORFEIT:
            await self.withheld.forfeit(owner_account(row), row.id, cause=verdict_id)
