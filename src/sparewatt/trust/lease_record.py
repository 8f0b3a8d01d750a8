"""The lease facet of reputation: what the terms of leases that have ended say of a provider. Pure, whole numbers only.

Every validator gets the same number from the same events, so nothing here is a float and nothing is measured. Terms
served and terms failed are the successes and failures of a Beta distribution; a day's weight halves every
HALF_LIFE_DAYS; reputation is the lower confidence bound (5 %, Wilson's), as for jobs in `reputation.py`.

What a term served counts is bounded by what it takes to fake it. One unit needs an hour of running and a dollar of pay;
a term counts three units at most, all terms with one renter together three, all terms that ended on one day four.
So many tiny leases with oneself count as little as they cost, and a record of thirty units takes eight days, ten
renters and the network's share of thirty dollars. A failed term counts a whole unit, however small its order was: a
record cannot be kept clean by failing cheap ones. A renter that leaves within a minute of the start may have found
nothing that works, or may want to harm: that counts a quarter of a failure, once per renter.

A newcomer starts with three units served, for which its bond answers. Whoever has earned five units itself keeps more
after three failures than a new identity has. A newcomer that fails once gains a fifth of its price by starting anew;
the failure has cost it a bond by then, and the new identity needs another.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparewatt.trust.lower_bound import BILLION, UNIT, day_weights, mean_ppm, wilson_lower_ppm
from sparewatt.trust.node_record import RecordFacet

DAY_S = 86_400
HALF_LIFE_DAYS = 30
EARLY_S = 60
"""A renter that closes sooner after the start found nothing of use."""
UNIT_S = 3_600
RENTER_UNITS_MAX = 3 * UNIT
DAY_UNITS_MAX = 4 * UNIT
EARLY_UNITS = UNIT // 4
PRIOR_UNITS = 3 * UNIT
SERVED_KEPT = 256
FAILED_KEPT = 64
EARLY_KEPT = 64
"""Terms of each kind that are kept of a provider. Each pushes out its own kind only: leases wash no failure away."""

_DECAY_DAYS_MAX = 8 * HALF_LIFE_DAYS
"""Older terms do not count: less than half a percent of a unit is left."""
_DAILY = 977_159_968
"""2^(-1/30) in billionths."""


class TermResult(enum.StrEnum):
    """How a provider's term of a lease ended."""

    SERVED = "served"
    """It ran and ended as agreed, or the provider left with notice."""
    LEFT_EARLY = "left_early"
    """The renter closed it within a minute of its start."""
    NO_START = "no_start"
    DOWN = "down"
    RESIGNED = "resigned"
    """Without notice."""
    UNBONDED = "unbonded"
    """Won, and could not be placed for want of a bond."""


@dataclass(frozen=True, slots=True)
class EndedTerm:
    """A provider's term of a lease that is over."""

    renter: str
    result: TermResult
    ran_s: int
    """Also of a term that failed in the end: what was served was served."""
    earned_uusd: int
    ended_at: int


def keep_term(terms: Sequence[EndedTerm], ended: EndedTerm) -> tuple[EndedTerm, ...]:
    """With one more; the oldest of the same kind goes if there are too many."""
    kept = [*terms, ended]
    kind = _kind(ended)
    same = [term for term in kept if _kind(term) is kind]
    if len(same) > _KEPT[kind]:
        kept.remove(same[0])
    return tuple(kept)


def lease_reputation_ppm(terms: Iterable[EndedTerm], *, unix_s: int) -> int:
    """At a time of the chain: that of a block, so that all who know its events agree."""
    return lower_bound_ppm(*term_units(terms, unix_s=unix_s))


def lease_facet(terms: Iterable[EndedTerm], *, unix_s: int) -> RecordFacet:
    """The same as one facet of a node's record: what validators post is its lower bound."""
    served, failed = term_units(terms, unix_s=unix_s)
    score = mean_ppm(PRIOR_UNITS + served, failed)
    return RecordFacet("leases", served, failed, score, lower_bound_ppm(served, failed))


def term_units(terms: Iterable[EndedTerm], *, unix_s: int) -> tuple[int, int]:
    """Served and failed, in millionths of a unit, after forgetting."""
    today = unix_s // DAY_S
    served: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    failed = 0
    early: dict[str, int] = {}
    for term in terms:
        day = term.ended_at // DAY_S
        served[day][term.renter] += _units(term)
        if term.result is TermResult.LEFT_EARLY:
            early[term.renter] = max(early.get(term.renter, 0), _decayed(EARLY_UNITS, today - day))
        elif term.result is not TermResult.SERVED:
            failed += _decayed(UNIT, today - day)
    return _served_units(served, today), failed + sum(early.values())


def lower_bound_ppm(served: int, failed: int) -> int:
    """Wilson's lower bound for counts in millionths, with the newcomer's prior."""
    return wilson_lower_ppm(PRIOR_UNITS + served, failed)


def _units(term: EndedTerm) -> int:
    """What was served, in a failed term too."""
    if term.result is TermResult.LEFT_EARLY:
        return 0
    return min(term.ran_s * UNIT // UNIT_S, term.earned_uusd, RENTER_UNITS_MAX)


def _served_units(served: dict[int, dict[str, int]], today: int) -> int:
    by_renter: dict[str, int] = defaultdict(int)
    for day, units in served.items():
        total = max(DAY_UNITS_MAX, sum(units.values()))
        for renter, count in units.items():
            by_renter[renter] += _decayed(count * DAY_UNITS_MAX // total, today - day)
    return sum(min(units, RENTER_UNITS_MAX) for units in by_renter.values())


def _decayed(units: int, age_days: int) -> int:
    """A term that ended after the block it is judged at counts in full."""
    return 0 if age_days > _DECAY_DAYS_MAX else units * _WEIGHTS[max(0, age_days)] // BILLION


class _Kind(enum.Enum):
    SERVED = 0
    EARLY = 1
    FAILED = 2


def _kind(term: EndedTerm) -> _Kind:
    match term.result:
        case TermResult.SERVED:
            return _Kind.SERVED
        case TermResult.LEFT_EARLY:
            return _Kind.EARLY
        case _:
            return _Kind.FAILED


_KEPT = {_Kind.SERVED: SERVED_KEPT, _Kind.EARLY: EARLY_KEPT, _Kind.FAILED: FAILED_KEPT}
_WEIGHTS = day_weights(_DAILY, days=_DECAY_DAYS_MAX)

NEWCOMER_REPUTATION_PPM = lower_bound_ppm(0, 0)
"""Of a provider without a record: about 0.44. A record of thirty units has twice that."""
NEWCOMER_UPTIME_PPM = 900_000
"""Before enough heartbeats were due: behind every machine that was heard all along."""
