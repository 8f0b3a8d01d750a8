"""One prompt on several nodes: which answers agree, and what that says of each node. Pure.

Nobody knows the right answer beforehand. It is what two trusted nodes of different owners, or three owners' nodes,
agree on. Honest nodes that batch differently differ in the first words now and then, so a node fails only if it is not
among them on two prompts in a row. A prompt that a customer sent was run on two nodes, and on a third
only if these differ; there the one that stands alone has failed, which stops its paid traffic and costs it nothing yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from sparewatt.trust.checks.comparison import Comparison, compare
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.tolerance import is_too_early

PANEL_MAX = 6
"""Nodes that one prompt goes to: agreement is looked for among all their subsets."""
TRUSTED_OWNERS, OWNERS = 2, 3
"""Of those that agree on a prompt of the network's own."""
RERUN_OWNERS = 2


@dataclass(frozen=True, slots=True)
class PanelAnswer:
    node: str
    owner: str
    """Two nodes of one owner are one witness. The operator's own count one by one: they name themselves here."""
    is_trusted: bool
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What a panel says of one node, and against whom its answer was held."""

    node: str
    result: CheckResult
    witness: str | None = None
    comparison: Comparison | None = None
    """With the witness."""


def judge(answers: Sequence[PanelAnswer], *, kind: CheckKind, hazard: float) -> tuple[NodeVerdict, ...]:
    """One verdict per answer, in their order."""
    agreed = _largest_agreement(answers[:PANEL_MAX], hazard=hazard)
    return tuple(_verdict(answer, agreed, kind=kind) for answer in answers[:PANEL_MAX])


def confirm(first: Sequence[NodeVerdict], second: Sequence[NodeVerdict]) -> tuple[NodeVerdict, ...]:
    """After a second prompt: who failed must have failed on both, else the second decides."""
    failed = {verdict.node for verdict in first if verdict.result is CheckResult.FAILED}
    return tuple(
        replace(verdict, result=CheckResult.UNDECIDED)
        if verdict.result is CheckResult.FAILED and verdict.node not in failed
        else verdict
        for verdict in second
    )


def _verdict(answer: PanelAnswer, agreed: Sequence[PanelAnswer], *, kind: CheckKind) -> NodeVerdict:
    others = [each for each in agreed if each is not answer]
    witness = next((each for each in others if each.is_trusted), others[0] if others else None)
    if witness is None:
        return NodeVerdict(answer.node, CheckResult.UNDECIDED)
    is_among = len(others) < len(agreed)
    decides = _may_pass(answer, others, kind=kind) if is_among else _may_fail(answer, others, kind=kind)
    outcome = CheckResult.PASSED if is_among else CheckResult.FAILED
    result = outcome if decides else CheckResult.UNDECIDED
    return NodeVerdict(answer.node, result, witness.node, compare(answer.pieces, witness.pieces))


def _may_pass(answer: PanelAnswer, others: Sequence[PanelAnswer], *, kind: CheckKind) -> bool:
    """Agreeing with a trusted node is enough; of strangers it takes as many as could fail another, itself included."""
    strangers = {each.owner for each in others if each.owner != answer.owner}
    if any(each.is_trusted and each.owner != answer.owner for each in others):
        return True
    return 1 + len(strangers) >= (RERUN_OWNERS if kind == "rerun" else OWNERS)


def _may_fail(answer: PanelAnswer, others: Sequence[PanelAnswer], *, kind: CheckKind) -> bool:
    owners = {each.owner for each in others if each.owner != answer.owner}
    trusted = {each.owner for each in others if each.is_trusted and each.owner != answer.owner}
    if kind == "rerun":
        return len(owners) >= RERUN_OWNERS or (bool(trusted) and not answer.is_trusted)
    return len(trusted) >= TRUSTED_OWNERS or len(owners) >= OWNERS


def _largest_agreement(answers: Sequence[PanelAnswer], *, hazard: float) -> tuple[PanelAnswer, ...]:
    """Of the sets whose answers all agree, the one with the most trusted owners, then the most owners."""

    def agree(one: PanelAnswer, other: PanelAnswer) -> bool:
        return not is_too_early(compare(one.pieces, other.pieces), hazard=hazard)

    best: tuple[PanelAnswer, ...] = ()
    for size in range(1, len(answers) + 1):
        for found in combinations(answers, size):
            if _weight(found) > _weight(best) and all(agree(one, other) for one, other in combinations(found, 2)):
                best = found
    return best


def _weight(answers: Sequence[PanelAnswer]) -> tuple[int, int, int]:
    trusted = {each.owner for each in answers if each.is_trusted}
    return len(trusted), len({each.owner for each in answers}), len(answers)
