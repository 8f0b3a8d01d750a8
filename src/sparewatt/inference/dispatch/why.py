"""The owner's question: why does my node get jobs, or none? A count over past matches, part by part. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sparewatt.core.ids import NodeId
from sparewatt.core.words import counted
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.inference.matcher.model import Candidate, Decision, Rejection
from sparewatt.inference.matcher.policies import POLICIES

PARTS_NAMED = 3
_WORTH_NAMING_S = 0.001

_REASONS = {
    Rejection.NO_MODEL: "did not have the model",
    Rejection.OFFLINE: "was not connected",
    Rejection.DRAINING: "was paused or about to stop, and took no new jobs",
    Rejection.PROMPT_TOO_LONG: "had too little context for the prompt",
    Rejection.TOO_LITTLE_VRAM: "had too little memory for the job",
    Rejection.NOT_MEASURED: "had not been measured for the model yet",
    Rejection.FULL: "already had all the jobs it may queue",
}


@dataclass(slots=True)
class Losses:
    """Matches in which the node could have had the job and another got it, with what it cost more, in seconds."""

    count: int = 0
    compared: int = 0
    gap_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)

    def add(self, mine: Candidate, winner: Candidate, *, policy: str) -> None:
        self.count += 1
        known = POLICIES.get(policy)
        if known is None or known.unit != "s":
            return  # a score is no time
        self.compared += 1
        self.gap_s += mine.cost - winner.cost
        for name, ours, theirs in zip((*known.part_names, "jitter"), mine.parts, winner.parts, strict=True):
            self.parts_s[name] = self.parts_s.get(name, 0.0) + ours - theirs

    def include(self, other: Losses) -> None:
        """Those that another process of this gateway counted."""
        self.count += other.count
        self.compared += other.compared
        self.gap_s += other.gap_s
        for name, total_s in other.parts_s.items():
            self.parts_s[name] = self.parts_s.get(name, 0.0) + total_s

    @property
    def mean_gap_s(self) -> float | None:
        return self.gap_s / self.compared if self.compared else None

    def worst_parts(self) -> list[tuple[str, float]]:
        """What it lost by, on the mean, worst first."""
        means = [(name, total_s / self.compared) for name, total_s in self.parts_s.items()]
        named = [(name, mean_s) for name, mean_s in means if mean_s >= _WORTH_NAMING_S]
        return sorted(named, key=lambda part: -part[1])[:PARTS_NAMED]


@dataclass(slots=True)
class Why:
    """How one node fared in the matches looked at."""

    matches: int = 0
    sent: Counter[Outcome] = field(default_factory=Counter)
    """Matches in which it was sent the job, by how its last try at it ended."""
    lost: Losses = field(default_factory=Losses)
    rejected: Counter[Rejection] = field(default_factory=Counter)
    ruled_out: int = 0
    """It has the model, and the request's policy or payer allowed others only."""
    unlisted: int = 0
    """It has the model, but was neither among the best nor among the rejections that were kept."""

    @property
    def chosen(self) -> int:
        return self.sent.total()

    def include(self, other: Why) -> None:
        """What another process of this gateway counted."""
        self.matches += other.matches
        self.sent += other.sent
        self.rejected += other.rejected
        self.lost.include(other.lost)
        self.ruled_out += other.ruled_out
        self.unlisted += other.unlisted


def look_back(
    node_id: NodeId, records: Iterable[MatchRecord], *, models: Collection[str], since_unix_s: float = 0.0
) -> Why:
    """How a node that has these models fared in these matches; those from before it was there do not count."""
    why = Why()
    for record in records:
        if record.created_unix_s >= since_unix_s:
            why.matches += 1
            _count(why, node_id, record, models)
    return why


def _count(why: Why, node_id: NodeId, record: MatchRecord, models: Collection[str]) -> None:
    decision = record.decision
    tries = [attempt.outcome for attempt in record.attempts if attempt.node_id == node_id]
    mine = next((candidate for candidate in decision.ranked if candidate.node_id == node_id), None)
    stopped = next((item.reason for item in decision.rejected if item.node_id == node_id), None)
    if tries:
        why.sent[tries[-1]] += 1
    elif mine is not None:
        why.lost.add(mine, decision.ranked[0], policy=decision.policy)
    elif stopped is not None:
        why.rejected[stopped] += 1
    elif decision.job.model not in models:
        why.rejected[Rejection.NO_MODEL] += 1
    elif _lists_all_but_barred(decision):
        why.ruled_out += 1
    else:
        why.unlisted += 1


def _lists_all_but_barred(decision: Decision) -> bool:
    """Whether everybody whom the request's policy and payer left is in the lists: who is not was ruled out."""
    barred, dropped = sum(decision.barred.values()), sum(decision.dropped.values())
    stopped = dropped - decision.dropped.get(Rejection.NO_MODEL, 0)
    ranked = decision.total - barred - dropped
    return barred > 0 and len(decision.ranked) == ranked and len(decision.rejected) == stopped


def sentences(why: Why) -> list[str]:
    """The same, as an owner would like to hear it."""
    if not why.matches:
        return ["There was no match yet."]
    said = [_said_sent(why)]
    if why.lost.count:
        said.append(_said_lost(why.lost, why.matches))
    said += [f"It {_REASONS.get(reason, reason.value)} {_where(n, why)}." for reason, n in why.rejected.most_common()]
    if why.ruled_out:
        said.append(f"It was ruled out by the request's policy or payer {_where(why.ruled_out, why)}.")
    if why.unlisted:
        said.append(
            f"No more is kept {_where(why.unlisted, why)} than that it has the model: "
            "others were better, or the request's policy or payer ruled it out."
        )
    return said


def _where(n: int, why: Why) -> str:
    return "there" if why.matches == 1 else f"in {n:,} of them"


def _said_sent(why: Why) -> str:
    of = "the last match" if why.matches == 1 else f"the last {why.matches:,} matches"
    if not why.chosen:
        return f"The node got no job in {of}."
    ends = ", ".join(f"{n} {outcome.value.replace('_', ' ')}" for outcome, n in why.sent.most_common())
    return f"The node got {counted(why.chosen, 'job')} in {of}: {ends}."


def _said_lost(lost: Losses, matches: int) -> str:
    said = f"It could have had {lost.count:,} more of {matches:,}, but others were better"
    if lost.mean_gap_s is None:
        return f"{said}."
    by = ", ".join(f"{name.replace('_', ' ')} {mean_s:+.3g} s" for name, mean_s in lost.worst_parts())
    return f"{said}, by {lost.mean_gap_s:.3g} s on the mean" + (f" ({by})." if by else ".")
