"""What checks found of a node: GET /v1/nodes/{node_id}/checks, GET /v1/verdicts/{verdict_id}, and an owner's re-trial.

Verdicts on prompts of the network's own are public, with all that a replay needs. Those on customers' requests, which
are digests and positions, are for the node's owner and for operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
from aiohttp import web
from msgspec import structs

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import NotFound, NotOwner
from sparewatt.core.ids import AccountId
from sparewatt.core.money import format_usd
from sparewatt.inference.checks.evidence import AnswerEvidence, CheckEvidence, first_difference, replay
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.retrial import Retrials
from sparewatt.inference.checks.sampler import AnswerSampler
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger.model import ZERO_AMOUNT, Amount
from sparewatt.ledger.withheld import WithheldEarnings
from sparewatt.protocol.api.checks import (
    CheckedAnswer,
    CheckStateName,
    CheckVerdict,
    NodeChecks,
    VerdictKindName,
    VerdictResultName,
)
from sparewatt.store.check_verdicts import CheckVerdictStore, VerdictRow
from sparewatt.telemetry.feed.public import may_know_all
from sparewatt.trust.checks.frequency import FIRST_PASSES
from sparewatt.trust.checks.model import CheckResult
from sparewatt.trust.checks.probe_prompts import draw_probe
from sparewatt.trust.checks.standing import FAILED_PROBES_MAX, TRUSTED_PASSES, CheckRecord, CheckState

LISTED = 50


@dataclass(slots=True, kw_only=True)
class CheckEndpoints:
    table: NodeTable
    records: CheckRecords
    sampler: AnswerSampler
    verdicts: CheckVerdictStore
    retrials: Retrials
    withheld: WithheldEarnings | None
    """None on a network without books."""

    @endpoint("GET /v1/nodes/{node_id}/checks", access="inference")
    async def show_checks(self, request: web.Request, principal: Principal) -> NodeChecks:
        """Show where a node stands after the checks of its answers, and why."""
        row = find_node(self.table, request.match_info["node_id"])
        in_full, record = may_know_all(row, principal), self.records.of(row.id)
        rows = [each for each in await self.verdicts.list_of(row.id, limit=LISTED) if in_full or each.kind == "probe"]
        described = NodeChecks(
            node=row.id,
            name=row.specs.name,
            state=record.state.value,
            passed=record.passed,
            failed_probes=record.failed_probes,
            trusted=record.is_trusted or self.records.is_own(row.owner),
            checked_share=self.sampler.share_of(row.id),
            barred_until_unix_s=record.barred_until_unix_s,
            sentences=sentences(record, is_own=self.records.is_own(row.owner)),
            verdicts=[describe_verdict(each) for each in rows],
        )
        if not in_full:
            return described
        amount = await self._withheld(row)
        more = [_withheld_sentence(amount)] if amount.total else []
        return structs.replace(
            described,
            withheld_nano=amount.paid,
            withheld_promo_nano=amount.promo,
            sentences=[*described.sentences, *more],
        )

    async def _withheld(self, row: NodeRow) -> Amount:
        if self.withheld is None or row.owner is None:
            return ZERO_AMOUNT
        return await self.withheld.of_node(AccountId(row.owner), row.id)

    @endpoint("GET /v1/verdicts/{verdict_id}", access="inference")
    async def show_verdict(self, request: web.Request, principal: Principal) -> CheckVerdict:
        """Show one verdict with its evidence, from which it can be computed again."""
        return describe_verdict(await self._find(request, principal))

    @endpoint("POST /v1/verdicts/{verdict_id}/retrial", access="identified")
    async def ask_for_retrial(self, request: web.Request, principal: Principal) -> CheckVerdict:
        """Let a node that had no part in a failed check decide it, once."""
        if not principal.is_operator:
            require_scope(principal, "node")
        verdict = await self._find(request, principal)
        row = find_node(self.table, verdict.node_id)
        if not may_know_all(row, principal):
            raise NotOwner("This node belongs to another account. Only its owner may ask for a re-trial.")
        return describe_verdict(await self.retrials.hold(verdict, row))

    async def _find(self, request: web.Request, principal: Principal) -> VerdictRow:
        verdict_id = request.match_info["verdict_id"]
        verdict = await self.verdicts.find(verdict_id)
        row = self.table.get(verdict.node_id) if verdict is not None else None
        may_see = row is not None and may_know_all(row, principal)
        if verdict is None or (verdict.kind != "probe" and not may_see):
            raise NotFound(f"There is no verdict {verdict_id[:60]!r}. 'sparewatt node why --trust' lists a node's.")
        return verdict


def describe_verdict(row: VerdictRow) -> CheckVerdict:
    evidence = msgspec.json.decode(row.evidence, type=CheckEvidence)
    parted = first_difference(evidence)
    seed, limits = evidence.seed, evidence.limits
    prompt = draw_probe(bytes.fromhex(seed), limits=limits).messages if seed is not None else None
    return CheckVerdict(
        id=row.id,
        check=evidence.check,
        at_unix_s=row.unix_s,
        node=row.node_id,
        kind=cast("VerdictKindName", row.kind),
        result=cast("VerdictResultName", row.result),
        state=cast("CheckStateName", row.state),
        model=evidence.model,
        witness=evidence.witness,
        agreed=evidence.agreed,
        differs=evidence.differs,
        difference=None if parted is None else list(parted),
        hazard=evidence.hazard,
        seed=seed,
        limits=list(limits),
        prompt=None if prompt is None else list(prompt),
        answers=[_checked_answer(each) for each in evidence.answers],
        before=[_checked_answer(each) for each in (evidence.before.answers if evidence.before else ())],
        is_drift=row.result == "failed" and row.retrial_of is None and not is_failed_alone(evidence),
        retrial_of=row.retrial_of,
        retried=row.retried,
    )


def _checked_answer(answer: AnswerEvidence) -> CheckedAnswer:
    return CheckedAnswer(
        node=answer.node,
        owner=answer.owner,
        trusted=answer.is_trusted,
        digest=answer.digest,
        pieces=answer.pieces,
        text=None if answer.text is None else list(answer.text),
    )


def is_failed_alone(evidence: CheckEvidence) -> bool:
    """Whether the check itself failed the node; of a customer's request it must have."""
    verdicts = replay(evidence)
    return verdicts is None or any(
        each.node == evidence.node and each.result is CheckResult.FAILED for each in verdicts
    )


_UNCHECKED = "No check has said anything of it yet. Half of its jobs are checked until {first} are passed."
_TRUSTED = "It passed its last {passed} checks: other nodes are held against its answers."
_PASSING = "It passed its last {passed} checks. After {left} more its own word counts for others."
_SUSPECT = "Its last check failed, so it gets checks and no other jobs. One that is passed ends that."
_SUSPECT_NEXT = (
    "{left} more failed on prompts of the network's own bar it, and forfeit what it earned since its last passed "
    "check. If a verdict is wrong, ask for a re-trial: 'sparewatt trust retry VERDICT'."
)
_BARRED = (
    "{most} checks in a row failed on prompts of the network's own: it gets no jobs, and what it earned since its last "
    "passed check is forfeited. A re-trial that finds for it undoes both: 'sparewatt trust retry VERDICT'."
)


def sentences(record: CheckRecord, *, is_own: bool) -> list[str]:
    """Where a node stands in words, by the rule's own numbers, and what would change it."""
    if is_own:
        return ["The operator vouches for this node: it is trusted, and paid at once."]
    match record.state:
        case CheckState.UNCHECKED:
            return [_UNCHECKED.format(first=FIRST_PASSES)]
        case CheckState.PASSING:
            form = _TRUSTED if record.is_trusted else _PASSING
            return [form.format(passed=record.passed, left=TRUSTED_PASSES - record.passed)]
        case CheckState.SUSPECT:
            return [_SUSPECT, _SUSPECT_NEXT.format(left=FAILED_PROBES_MAX - record.failed_probes)]
        case CheckState.BARRED:
            return [_BARRED.format(most=FAILED_PROBES_MAX)]


def _withheld_sentence(amount: Amount) -> str:
    return f"${format_usd(amount.total)} of its pay is withheld until its next passed check, or for a day without one."
