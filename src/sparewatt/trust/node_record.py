"""A node's record, by facets: availability, completion, correctness, speed against its claim, and leases. Pure.

Each facet is a count of good and bad that is forgotten by half in HALF_LIFE_DAYS; it is ranked by its lower bound, so a
node with few jobs does not rank high. Whole numbers only: gateways, and anyone who has the eras' published inputs, get
the same to the unit. `reputation_ppm` leaves availability out, which counts on its own as uptime.

What counts for completion is what was at risk. A job is worth a tenth, and as much more as was paid for it, up to a
whole; what one payer had done in an era counts PAYER_UNITS at most, and jobs of the node's own account count nothing.
So an owner's second account that sends it jobs moves the record by a bounded amount for each era and account, and pays
the network's fee for more than a tenth of that. A failure counts as much as the node's jobs of that era on average, not
bounded by payer: cheap successes wash no failure away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparewatt.protocol.api.rewards import NodeEraInputs
from sparewatt.trust.lower_bound import BILLION, UNIT, day_weights, mean_ppm, wilson_lower_ppm

HALF_LIFE_DAYS = 14
WINDOW_DAYS = 90
PAYER_UNITS = 25 * UNIT
RISK_MICRO = 100
"""A job for which this much was paid counts as a whole one."""
CHECK_FAILURE_WEIGHT = 20
HOUR_S = 3_600
SPEED_JOBS_MAX = 50
"""Timed answers that count for the speed: more say nothing new."""
_DAILY = 951_695_167
"""2^(-1/14) in billionths."""
_WEIGHTS = day_weights(_DAILY, days=WINDOW_DAYS)
PPM = 10**6


@dataclass(frozen=True, slots=True)
class RecordDay:
    """What eras that ended on one day counted of a node."""

    day: int
    """Since 1970."""
    up_s: int
    known_s: int
    good_units: int
    bad_units: int
    checks_passed: int
    checks_failed: int


@dataclass(frozen=True, slots=True)
class TimedSpeed:
    """A model's speed as gateways timed it, against what the node says of itself."""

    model: str
    claimed_milli_tps: int
    timed_milli_tps: int
    jobs: int


@dataclass(frozen=True, slots=True)
class RecordFacet:
    name: str
    good: int
    bad: int
    """Both in millionths, after forgetting."""
    score_ppm: int
    lower_ppm: int


@dataclass(frozen=True, slots=True)
class NodeRecord:
    facets: tuple[RecordFacet, ...]
    reputation_ppm: int
    """Completion by correctness, each by its lower bound, by the mean speed, which is measured, not sampled."""

    def facet(self, name: str) -> RecordFacet:
        return next(facet for facet in self.facets if facet.name == name)


def completion_units(node: NodeEraInputs) -> tuple[int, int]:
    """What an era adds to a node's completion: good and bad, in millionths of a job."""
    worths = [_worth(paid, done) for paid, done in zip(node.payers_micro, node.payers_done, strict=True)]
    done = sum(node.payers_done)
    mean = sum(worths) // done if done else UNIT // 10
    return sum(min(PAYER_UNITS, worth) for worth in worths), node.failed * mean


def _worth(paid_micro: int, done: int) -> int:
    """Of one payer's jobs."""
    return done * UNIT // 10 + min(done * UNIT * 9 // 10, paid_micro * UNIT // RISK_MICRO)


def record_of(days: Iterable[RecordDay], speeds: Sequence[TimedSpeed], *, today: int) -> NodeRecord:
    """`today`: days since 1970."""
    sums = [0] * 6
    for day in days:
        values = (
            *(day.up_s * UNIT // HOUR_S, max(0, day.known_s - day.up_s) * UNIT // HOUR_S),
            *(day.good_units, day.bad_units),
            *(day.checks_passed * UNIT, day.checks_failed * CHECK_FAILURE_WEIGHT * UNIT),
        )
        for index, value in enumerate(values):
            sums[index] += _decayed(value, today - day.day)
    availability, completion, correctness = (
        _facet(name, sums[2 * index], sums[2 * index + 1])
        for index, name in enumerate(("availability", "completion", "correctness"))
    )
    speed = speed_facet(speeds)
    reputation = completion.lower_ppm * correctness.lower_ppm // PPM * speed.score_ppm // PPM
    return NodeRecord((availability, completion, correctness, speed), reputation)


def speed_facet(speeds: Sequence[TimedSpeed]) -> RecordFacet:
    """A node that nobody timed is taken at its word here: it gets a newcomer's few jobs until it was timed."""
    good = bad = 0
    for each in speeds:
        if each.claimed_milli_tps <= 0:
            continue
        kept_ppm = min(PPM, each.timed_milli_tps * PPM // each.claimed_milli_tps)
        jobs = min(each.jobs, SPEED_JOBS_MAX) * UNIT
        good += jobs * kept_ppm // PPM
        bad += jobs - jobs * kept_ppm // PPM
    score = PPM * good // (good + bad) if good + bad else PPM
    return RecordFacet("speed", good, bad, score, wilson_lower_ppm(good, bad))


def _facet(name: str, good: int, bad: int) -> RecordFacet:
    return RecordFacet(name, good, bad, mean_ppm(good, bad), wilson_lower_ppm(good, bad))


def _decayed(value: int, age_days: int) -> int:
    """A day that is ahead of ours, by another clock, counts in full."""
    return 0 if age_days > WINDOW_DAYS else value * _WEIGHTS[max(0, age_days)] // BILLION
