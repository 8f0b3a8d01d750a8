"""What other gateways have sent and no report has told of yet. Pure.

All gateways see the same nodes free, and between a job's dispatch and the report that tells of it lie a round trip and
an interval between reports. If each took the node that looks best to it, all would take the same one. So a gateway
expects of the others what it would do itself: they draw among the best nodes, each node so often that its cost, with
what is expected to be on its way there, is the same as that of the others drawn from (a mixed equilibrium, found by
water-filling). Its own draw follows the same shares. Without other gateways the best node is always taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S
from sparewatt.core.refusal import REFUSE_FACTOR, REFUSE_SLACK_S
from sparewatt.inference.matcher.columns import Floats
from sparewatt.inference.matcher.formula import OTHERS_WEIGHT, PARTS, STALL_WEIGHT, hash_fraction
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.scan import MatchQuery, ScanResult, pack_ranked

FOREIGN_S = 1.0
"""Over how long the others' jobs are averaged: traffic comes in bursts."""
SHARE_S = 30.0
"""The same of this gateway's own jobs, whose models are taken to be those of the others."""
FOREIGN_PER_S = 10.0
"""Jobs of others that one node can make a gateway count: more is no report but an attempt to scatter everybody's."""
COLLISION = 1.0 + OTHERS_WEIGHT * STALL_WEIGHT
"""What a prompt costs that meets one more job, in times of itself: it waits for one as long, and stalls its answer. No
more than a refusal, though: a node that would be much later than promised sends the job away."""
JOBS_MIN = 0.01
"""Expected on their way: fewer do not matter."""
_NETWORK, _PREFILL = PARTS.index("network"), PARTS.index("prefill")
_COST, _FIRST_TOKEN, _FIRST_PART, _JITTER = 0, 1, 4, -1
"""Where they are in the costs of a scan."""
_DRAW = np.array([0x5EED], np.uint64)
"""What the draw is hashed with, beside the match: no node's hash."""


class DecayingCount:
    """Events, of which old ones fade."""

    __slots__ = ("_at_s", "_count", "_kept_s")

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._count = self._at_s = 0.0

    def add(self, events: float, now_s: float) -> None:
        self._count, self._at_s = self.value(now_s) + events, now_s

    def value(self, now_s: float) -> float:
        return self._count * math.exp(-max(0.0, now_s - self._at_s) / self._kept_s) if self._count else 0.0

    def rate(self, now_s: float) -> float:
        """Per second."""
        return self.value(now_s) / self._kept_s


@dataclass(slots=True)
class UnseenTraffic:
    """How many jobs of each model others send, by what reports and this gateway's own jobs say."""

    _foreign: DecayingCount = field(default_factory=lambda: DecayingCount(FOREIGN_S))
    _own: DecayingCount = field(default_factory=lambda: DecayingCount(SHARE_S))
    _by_model: dict[str, DecayingCount] = field(default_factory=dict)

    def note_foreign(self, jobs: int, now_s: float) -> None:
        """So many jobs came that were not sent from here."""
        self._foreign.add(jobs, now_s)

    def note_report(self, row: NodeRow, more: int, now_s: float) -> None:
        """A node has so many more jobs of others than it last reported."""
        self.note_foreign(min(more, 1 + int((now_s - row.foreign_at_s) * FOREIGN_PER_S)), now_s)
        row.foreign_at_s = now_s

    def note_own(self, model: str, now_s: float) -> None:
        self._own.add(1.0, now_s)
        self._by_model.setdefault(model, DecayingCount(SHARE_S)).add(1.0, now_s)

    def forget(self, model: str) -> None:
        """No node has it any longer."""
        self._by_model.pop(model, None)

    def rate(self, model: str, now_s: float) -> float:
        """Jobs per second of others."""
        total, count = self._own.value(now_s), self._by_model.get(model)
        if count is None or not total:
            return 0.0
        return self._foreign.rate(now_s) * min(1.0, count.value(now_s) / total)


def spread(query: MatchQuery, result: ScanResult, jobs_per_s: float) -> ScanResult:
    """The ranking with what others are expected to send meanwhile, and the node that was drawn first.

    The nodes among which is drawn then all have the same cost; what was added to it is part of their jitter.
    """
    costs, positions = result.costs, result.positions
    known, network_s = costs[:, _COST], costs[:, _FIRST_PART + _NETWORK]
    jobs = jobs_per_s * (network_s + LOAD_REPORT_INTERVAL_S)
    per_share_s = np.maximum(1e-9, jobs * collision_s(costs))
    if costs.shape[0] < 2 or jobs[0] < JOBS_MIN:
        return result
    level, drawn_from = water_level(known, per_share_s)
    if drawn_from < 2:
        return result
    shares = (level - known[:drawn_from]) / per_share_s[:drawn_from]
    chance = hash_fraction(_DRAW, np.uint64(query.jitter_seed))[0]
    drawn = min(drawn_from - 1, int(np.searchsorted(np.cumsum(shares), chance, side="right")))
    costs = costs.copy()
    costs[:drawn_from, _JITTER] += level - known[:drawn_from]
    costs[:drawn_from, _COST] = level
    order = np.array([drawn, *(at for at in range(len(costs)) if at != drawn)])
    return result._replace(rows=pack_ranked(positions[order], costs[order]))


def collision_s(costs: Floats) -> Floats:
    """By candidate, what it costs to meet a job that was not seen."""
    refused_s = (REFUSE_FACTOR - 1.0) * costs[:, _FIRST_TOKEN] + REFUSE_SLACK_S + costs[:, _FIRST_PART + _NETWORK]
    met: Floats = np.minimum(COLLISION * costs[:, _FIRST_PART + _PREFILL], refused_s)
    return met


def water_level(known: Floats, per_share_s: Floats) -> tuple[float, int]:
    """The cost that all nodes have among which is drawn, and how many of the best these are.

    A node that gets a share of the others' jobs costs `per_share_s` times that share more; the shares sum up to one.
    """
    weight = weighted = 0.0
    level = math.inf
    for count, (cost, per_share) in enumerate(zip(known.tolist(), per_share_s.tolist(), strict=True)):
        if cost >= level:
            return level, count
        weight += 1.0 / per_share
        weighted += cost / per_share
        level = (1.0 + weighted) / weight
    return level, len(known)
