"""Rules of the waiting line, pure: a job's cost, fair queueing (deficit round robin), load shedding, Retry-After."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.inference.admission.model import Priority

OUTPUT_WEIGHT = 2
"""A token written occupies a node for longer than a token read."""

SHED_FACTOR, SHED_POWER = 300.0, 5
"""Nothing is shed while a tenth of the line is taken, everything once a third is."""

RETRY_S_MIN, RETRY_S_MAX = 1.0, 60.0


class LaneShare(NamedTuple):
    """Which lane is served, and how many quanta each lane is given on the way there."""

    lane: int
    quanta: tuple[int, ...]


def cost_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """What a job takes of its account's share, and within that of its key's."""
    return max(1, prompt_tokens + OUTPUT_WEIGHT * output_tokens)


def priority_named(name: str, *, param: str) -> Priority:
    """Raises InvalidField."""
    try:
        return Priority(name)
    except ValueError:
        known = ", ".join(priority.value for priority in Priority)
        raise InvalidField(f"There is no priority {name[:40]!r}. Priorities: {known}.", param=param) from None


def next_lane(deficits: Sequence[int], costs: Sequence[int], *, quantum: int, first_was_given: bool) -> LaneShare:
    """Deficit round robin, one job at a time. Lanes are given in the order of their visits.

    A visit gives a lane its quantum; it is served as long as what it has covers its next job, then the next lane is
    visited. Rounds in which no lane could be served are computed, not iterated, so the size of a job does not matter.
    """
    if first_was_given and deficits[0] >= costs[0]:
        return LaneShare(0, (0,) * len(costs))
    # A first lane that has had its visit comes after the others in each round.
    visits = [*range(1, len(costs)), 0] if first_was_given else [*range(len(costs))]
    missing = [max(1, -(-(costs[lane] - deficits[lane]) // quantum)) for lane in visits]
    rounds = min(missing)
    at = missing.index(rounds)
    quanta = [0] * len(costs)
    for order, lane in enumerate(visits):
        quanta[lane] = rounds if order <= at else rounds - 1
    return LaneShare(visits[at], tuple(quanta))


def shed_probability(saturation: float) -> float:
    """How likely a low-priority job is refused when that share of the whole line is taken."""
    return min(1.0, SHED_FACTOR * max(0.0, saturation) ** SHED_POWER)


def is_shed(priority: Priority, *, saturation: float, chance: float) -> bool:
    """`chance` is drawn by the caller, from [0, 1)."""
    return priority is Priority.LOW and chance < shed_probability(saturation)


def ahead_of(ahead_in_lane: int, other_lanes: Sequence[int]) -> int:
    """How many are served before a job with so many before it in its own lane, if lanes are served in rotation."""
    return ahead_in_lane + sum(min(waiting, ahead_in_lane + 1) for waiting in other_lanes)


def retry_after_s(position: int, *, pace_s: float) -> float:
    """When coming back may help: the line ahead at its present pace, within reason."""
    return min(RETRY_S_MAX, max(RETRY_S_MIN, position * pace_s))
