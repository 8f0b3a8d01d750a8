"""A re-trial: an owner doubts a verdict, and a node that had no part in it decides. One for each failed verdict.

Of a prompt of the network's own the third node answers it as well, and whoever it agrees with was right. Of a
customer's request no text is kept: then the node gets a new prompt, and that verdict counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from sparewatt.core.errors import RetrialRefused
from sparewatt.core.ids import ModelId, NodeId, new_id
from sparewatt.inference.checks.check_jobs import CheckRequest
from sparewatt.inference.checks.evidence import AnswerEvidence, CheckEvidence
from sparewatt.inference.checks.service import AnswerChecks
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.store.check_verdicts import RecordChange, VerdictRow
from sparewatt.trust.checks.comparison import compare, digest_of, pieces_of
from sparewatt.trust.checks.model import CheckResult
from sparewatt.trust.checks.probe_prompts import draw_probe
from sparewatt.trust.checks.standing import CheckRecord, CheckState, Consequence, overturned
from sparewatt.trust.checks.tolerance import is_too_early

RETRIAL_S_MAX = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Retrials:
    checks: AnswerChecks

    async def hold(self, verdict: VerdictRow, row: NodeRow) -> VerdictRow:
        """The new verdict. Raises RetrialRefused if there can be none now."""
        checks = self.checks
        if checks.clock.unix_s() - verdict.unix_s > RETRIAL_S_MAX:
            raise RetrialRefused("A re-trial can be asked for within seven days of the verdict.")
        if not await checks.verdicts.claim_retrial(verdict.id):
            raise RetrialRefused("Only a failed check can be tried again, and once.")
        evidence = msgspec.json.decode(verdict.evidence, type=CheckEvidence)
        try:
            if evidence.seed is None:
                return await self._new_probe(verdict, row, ModelId(evidence.model))
            return await self._ask_third(verdict, row, evidence, bytes.fromhex(evidence.seed))
        except RetrialRefused:
            await checks.verdicts.release_retrial(verdict.id)
            raise

    async def _new_probe(self, verdict: VerdictRow, row: NodeRow, model: ModelId) -> VerdictRow:
        await self.checks.probe(row, model)
        latest = (await self.checks.verdicts.list_of(row.id, limit=1))[0]
        if latest.id == verdict.id:
            raise RetrialRefused("No other node can be asked right now. Try again when more nodes serve the model.")
        return latest

    async def _ask_third(self, verdict: VerdictRow, row: NodeRow, evidence: CheckEvidence, seed: bytes) -> VerdictRow:
        checks, model = self.checks, ModelId(evidence.model)
        heard = [NodeId(each.node) for each in evidence.answers]
        third = next(iter(checks.witnesses.pick(row, model, count=1, without=heard)), None)
        prompt = draw_probe(seed, limits=evidence.limits)
        answer = await checks.jobs.ask(third.id, CheckRequest.of_probe(prompt, model)) if third is not None else None
        if third is None or answer is None:
            raise RetrialRefused("No node that had no part in it can be asked right now. Try again later.")
        pieces = pieces_of(answer.text)
        agrees = {each.node: _agrees(pieces, each, evidence.hazard) for each in evidence.answers}
        is_overturned = agrees.get(row.id, False) and not agrees.get(evidence.witness or "", False)
        heard_now = AnswerEvidence(
            node=third.id,
            owner=checks.witnesses.owner_of(third),
            is_trusted=checks.witnesses.is_trusted(third),
            digest=digest_of(pieces),
            pieces=len(pieces),
            text=pieces,
        )
        found = msgspec.structs.replace(evidence, answers=(*evidence.answers, heard_now), witness=third.id)
        return await self._conclude(verdict, row, found, is_overturned=is_overturned)

    async def _conclude(
        self, verdict: VerdictRow, row: NodeRow, evidence: CheckEvidence, *, is_overturned: bool
    ) -> VerdictRow:
        checks, result = self.checks, CheckResult.PASSED if is_overturned else CheckResult.FAILED
        change: Callable[[CheckRecord], RecordChange] = (
            (lambda before: RecordChange(overturned(before), result.value, Consequence.RELEASE))
            if is_overturned
            else (lambda before: RecordChange(before, result.value, Consequence.NONE))
        )
        text = msgspec.json.encode(evidence).decode()
        verdict_id, unix_s = new_id("verdict", rng=checks.rng), checks.clock.unix_s()
        tried = VerdictRow(verdict_id, unix_s, row.id, verdict.kind, result.value, "", text, retrial_of=verdict.id)
        changed = await checks.verdicts.add(tried, change)
        checks.records.set(row.id, changed.record)
        if is_overturned:
            await self._give_back(row, since_unix_s=verdict.unix_s)
        return (await checks.verdicts.find(verdict_id)) or tried

    async def _give_back(self, row: NodeRow, *, since_unix_s: float) -> None:
        """What the verdict led to: it may be the first of the two that barred the node."""
        if self.checks.withheld is None:
            return
        for later in await self.checks.verdicts.list_of(row.id):
            if later.state == CheckState.BARRED.value and later.unix_s >= since_unix_s:
                await self.checks.withheld.give_back(later.id)


def _agrees(pieces: Sequence[str], answer: AnswerEvidence, hazard: float) -> bool:
    return not is_too_early(compare(pieces, answer.text or ()), hazard=hazard)
