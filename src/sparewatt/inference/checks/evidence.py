"""What is kept of a check. Of the network's own prompts everything, so that anybody can replay the verdict: the seed
gives the prompt, and `replay` gives the same results from the answers. Of customers' requests digests and positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparewatt.trust.checks.comparison import compare, digest_of
from sparewatt.trust.checks.model import CheckKind
from sparewatt.trust.checks.panel import NodeVerdict, PanelAnswer, confirm, judge

HEX = 16


class AnswerEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node's answer on a panel."""

    node: str
    owner: str
    is_trusted: bool
    digest: str
    pieces: int
    text: tuple[str, ...] | None = None
    """Its pieces; only of a prompt of the network's own."""


class CheckEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    check: str
    """The id that all verdicts of one panel share."""
    kind: CheckKind
    model: str
    group: str
    hazard: float
    """The tolerance at that time: the chance of a piece to differ that an honest node is granted."""
    answers: tuple[AnswerEvidence, ...]
    seed: str | None = None
    """Of the prompt, in hex; only of the network's own."""
    limits: tuple[int, ...] = ()
    """On answers, from which the prompt's was drawn."""
    node: str = ""
    """Whom this verdict is about."""
    witness: str | None = None
    agreed: int | None = None
    differs: bool | None = None
    before: CheckEvidence | None = None
    """Of the prompt that came before: this one was to confirm it."""


def evidence_of(
    check: str,
    kind: CheckKind,
    model: str,
    group: str,
    answers: Sequence[PanelAnswer],
    *,
    hazard: float,
    seed: bytes | None = None,
    limits: Sequence[int] = (),
    before: CheckEvidence | None = None,
) -> CheckEvidence:
    is_public = seed is not None
    kept = tuple(
        AnswerEvidence(
            node=answer.node,
            owner=answer.owner if is_public else digest_of((check, answer.owner))[:HEX],
            is_trusted=answer.is_trusted,
            digest=digest_of(answer.pieces),
            pieces=len(answer.pieces),
            text=answer.pieces if is_public else None,
        )
        for answer in answers
    )
    seed_hex = seed.hex() if seed is not None else None
    drawn_from = tuple(limits) if is_public else ()
    return CheckEvidence(check, kind, model, group, hazard, kept, seed_hex, drawn_from, before=before)


def about(evidence: CheckEvidence, verdict: NodeVerdict) -> CheckEvidence:
    found = verdict.comparison
    return msgspec.structs.replace(
        evidence,
        node=verdict.node,
        witness=verdict.witness,
        agreed=found.agreed if found is not None else None,
        differs=found.differs if found is not None else None,
    )


def replay(evidence: CheckEvidence) -> tuple[NodeVerdict, ...] | None:
    """The panel's verdicts again, from what was recorded; None for a check whose texts are not kept."""
    answers = [
        PanelAnswer(each.node, each.owner, each.is_trusted, each.text)
        for each in evidence.answers
        if each.text is not None
    ]
    if len(answers) < len(evidence.answers):
        return None
    found = judge(answers, kind=evidence.kind, hazard=evidence.hazard)
    earlier = replay(evidence.before) if evidence.before is not None else None
    return found if earlier is None else confirm(earlier, found)


def first_difference(evidence: CheckEvidence) -> tuple[str, str] | None:
    """Both answers from where they part, a few pieces; None where texts are not kept, or do not part."""
    texts = {each.node: each.text for each in evidence.answers}
    mine, other = texts.get(evidence.node), texts.get(evidence.witness or "")
    if mine is None or other is None:
        return None
    at = compare(mine, other)
    if not at.differs:
        return None
    around = slice(max(0, at.agreed - 4), at.agreed + 4)
    return "".join(mine[around]), "".join(other[around])
