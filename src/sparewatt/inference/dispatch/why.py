"""Why a node gets jobs, or none: counts over past matches, for the node's owner. Pure.

Where another node got the job, the costs of both are compared part by part. `sentences` puts the counts into words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sparewatt.core.ids import NodeId
from sparewatt.core.plural import pluralize
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.inference.fleet.unmet_demand import WantedModel, most_wanted
from sparewatt.inference.matcher.formula import RANKINGS
from sparewatt.inference.matcher.model import Candidate, Decision, Rejection

PARTS_NAMED = 3
WANTED_NAMED = 5
_PART_GAP_S_MIN = 0.001
"""A smaller gap is not worth a mention."""

_REASONS = {
    Rejection.NO_MODEL: "did not have the model",
    Rejection.OFFLINE: "was not connected",
    Rejection.DRAINING: "was paused or about to stop, and took no new jobs",
    Rejection.PROMPT_TOO_LONG: "had too little context for the prompt",
    Rejection.TOO_LITTLE_VRAM: "had too little memory for the job",
    Rejection.NOT_MEASURED: "had not been measured for the model yet",
    Rejection.FULL: "already had all the jobs it may queue",
    Rejection.NOT_TIMED: "had not been timed by this network with the model yet, and gets a small share until it is",
    Rejection.SUSPENDED: "had given an answer that failed a check, and got checks alone ('sparewatt node why --trust')",
}


@dataclass(slots=True)
class LossSummary:
    """Matches in which the node could have had the job and another node got it."""

    count: int = 0
    compared: int = 0
    """Of these, the matches whose costs are seconds; the sums below are over them."""
    gap_s: float = 0.0
    """How much more than the winner the node would have cost."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """The same, by part of the cost."""

    def add(self, loser: Candidate, winner: Candidate, *, ranking: str) -> None:
        """`loser`: this node."""
        self.count += 1
        ranked_by = RANKINGS.get(ranking)
        if ranked_by is None or ranked_by.unit != "s":
            return  # a score cannot be given in seconds
        self.compared += 1
        self.gap_s += loser.cost - winner.cost
        names = (*ranked_by.part_names, "jitter")
        for name, loser_s, winner_s in zip(names, loser.parts, winner.parts, strict=True):
            self.parts_s[name] = self.parts_s.get(name, 0.0) + loser_s - winner_s

    def include(self, other: LossSummary) -> None:
        """Add what another process of this gateway counted."""
        self.count += other.count
        self.compared += other.compared
        self.gap_s += other.gap_s
        for name, total_s in other.parts_s.items():
            self.parts_s[name] = self.parts_s.get(name, 0.0) + total_s

    @property
    def mean_gap_s(self) -> float | None:
        return self.gap_s / self.compared if self.compared else None

    def worst_parts(self) -> list[tuple[str, float]]:
        """The parts of the cost in which the node was behind, with the mean gap in seconds, the worst first."""
        means = [(name, total_s / self.compared) for name, total_s in self.parts_s.items()]
        gaps = [(name, mean_s) for name, mean_s in means if mean_s >= _PART_GAP_S_MIN]
        return sorted(gaps, key=lambda part: -part[1])[:PARTS_NAMED]


@dataclass(slots=True)
class WhyReport:
    """How one node fared in past matches."""

    matches: int = 0
    sent: Counter[Outcome] = field(default_factory=Counter)
    """Matches that sent the node their job, by the outcome of its last attempt."""
    lost: LossSummary = field(default_factory=LossSummary)
    rejected: Counter[Rejection] = field(default_factory=Counter)
    ruled_out: int = 0
    """The node has the model, but the request's policy or payer allowed other nodes only."""
    unlisted: int = 0
    """The node has the model, but is neither among the recorded candidates nor among the recorded rejections."""
    overclaimed: int = 0
    """Answers of which it claimed far more tokens than their text takes."""
    wanted: list[WantedModel] = field(default_factory=list)
    """Models that clients asked for and no node had, the most wanted first."""

    @property
    def chosen(self) -> int:
        return self.sent.total()

    def include(self, other: WhyReport) -> None:
        """Add what another process of this gateway counted."""
        self.matches += other.matches
        self.sent += other.sent
        self.rejected += other.rejected
        self.lost.include(other.lost)
        self.ruled_out += other.ruled_out
        self.unlisted += other.unlisted
        self.overclaimed += other.overclaimed
        self.wanted = most_wanted([*self.wanted, *other.wanted])


def look_back(
    node_id: NodeId, records: Iterable[MatchRecord], *, models: Collection[str], since_unix_s: float = 0.0
) -> WhyReport:
    """Count the matches since `since_unix_s`, when the node joined. `models`: those that the node has."""
    report = WhyReport()
    for record in records:
        if record.created_unix_s >= since_unix_s:
            report.matches += 1
            _count(report, node_id, record, models)
    return report


def _count(report: WhyReport, node_id: NodeId, record: MatchRecord, models: Collection[str]) -> None:
    decision = record.decision
    own = [attempt for attempt in record.attempts if attempt.node_id == node_id]
    outcomes = [attempt.outcome for attempt in own]
    report.overclaimed += sum(attempt.delivered is not None and attempt.delivered.is_marked for attempt in own)
    candidate = next((each for each in decision.ranked if each.node_id == node_id), None)
    rejection = next((each.reason for each in decision.rejected if each.node_id == node_id), None)
    if outcomes:
        report.sent[outcomes[-1]] += 1
    elif candidate is not None:
        report.lost.add(candidate, decision.ranked[0], ranking=decision.ranking)
    elif rejection is not None:
        report.rejected[rejection] += 1
    elif decision.job.model not in models:
        report.rejected[Rejection.NO_MODEL] += 1
    elif _records_all_allowed(decision):
        report.ruled_out += 1
    else:
        report.unlisted += 1


def _records_all_allowed(decision: Decision) -> bool:
    """Whether all nodes that policy and payer allowed are recorded: then any other node was ruled out by them."""
    barred, dropped = sum(decision.rejected_by_policy.values()), sum(decision.rejected_by_reason.values())
    rejected = dropped - decision.rejected_by_reason.get(Rejection.NO_MODEL, 0)
    ranked = decision.total - barred - dropped
    return barred > 0 and len(decision.ranked) == ranked and len(decision.rejected) == rejected


def sentences(report: WhyReport) -> list[str]:
    """The report in words, for the node's owner."""
    if not report.matches:
        return ["There was no match yet.", *_wanted_sentences(report.wanted)]
    lines = [_sent_sentence(report)]
    if report.overclaimed:
        lines.append(
            f"Of {pluralize(report.overclaimed, 'answer')} its server counted far more tokens than other owners' "
            "servers count for like text. What it counted too much was not paid."
        )
    if report.lost.count:
        lines.append(_lost_sentence(report.lost, report.matches))
    lines += [
        f"It {_REASONS.get(reason, reason.value)} {_share_phrase(n, report)}."
        for reason, n in report.rejected.most_common()
    ]
    if report.ruled_out:
        lines.append(f"It was ruled out by the request's policy or payer {_share_phrase(report.ruled_out, report)}.")
    if report.unlisted:
        lines.append(
            f"No reason was recorded {_share_phrase(report.unlisted, report)}, although it has the model: "
            "others were better, or the request's policy or payer ruled it out."
        )
    return lines + _wanted_sentences(report.wanted)


def _wanted_sentences(wanted: Sequence[WantedModel]) -> list[str]:
    if not wanted:
        return []
    names = ", ".join(
        f"{each.name} ({pluralize(each.requests, 'request')} of {pluralize(each.keys, 'key')})"
        for each in wanted[:WANTED_NAMED]
    )
    return [f"Asked for, and no node had it: {names}."]


def _share_phrase(n: int, report: WhyReport) -> str:
    return "there" if report.matches == 1 else f"in {n:,} of them"


def _sent_sentence(report: WhyReport) -> str:
    matches = "the last match" if report.matches == 1 else f"the last {report.matches:,} matches"
    if not report.chosen:
        return f"The node got no job in {matches}."
    outcomes = ", ".join(f"{n} {outcome.value.replace('_', ' ')}" for outcome, n in report.sent.most_common())
    return f"The node got {pluralize(report.chosen, 'job')} in {matches}: {outcomes}."


def _lost_sentence(lost: LossSummary, matches: int) -> str:
    sentence = f"It could have had {lost.count:,} more of {matches:,}, but others were better"
    if lost.mean_gap_s is None:
        return f"{sentence}."
    parts = ", ".join(f"{name.replace('_', ' ')} {mean_s:+.3g} s" for name, mean_s in lost.worst_parts())
    return f"{sentence}, by {lost.mean_gap_s:.3g} s on the mean" + (f" ({parts})." if parts else ".")
