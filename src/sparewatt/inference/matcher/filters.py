"""The hard rules: who cannot have a job, and by which of them. Written once, for a place as for columns of many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.entries import Field
from sparewatt.inference.matcher.model import MatchJob, Rejection
from sparewatt.inference.matcher.situation import Situation


class Demand(NamedTuple):
    """What a job asks of every node."""

    floor_tokens: float
    """What the prompt holds at the very least."""
    context_tokens: float
    heard_after_s: float


def demand_of(job: MatchJob, at: Situation) -> Demand:
    context = job.prompt_tokens + job.output_tokens
    return Demand(float(job.prompt_tokens_floor), float(context), at.now_s - at.rules.offline_after_s)


def is_able(demand: Any, x: Any) -> Any:
    """None of the rules below stops it. What no job could change is in OPEN_S already."""
    return (
        (x[Field.OPEN_S] > demand.heard_after_s)
        & (x[Field.CONTEXT_TOKENS] > demand.floor_tokens)
        & (x[Field.FITS_TOKENS] >= demand.context_tokens)
    )


def is_offline(demand: Any, x: Any) -> Any:
    return (x[Field.CONNECTED] == 0.0) | (x[Field.LAST_HEARD_S] <= demand.heard_after_s)


def is_draining(demand: Any, x: Any) -> Any:  # noqa: ARG001 (one shape for all)
    return x[Field.DRAINING] != 0.0


def is_too_short(demand: Any, x: Any) -> Any:
    return x[Field.CONTEXT_TOKENS] <= demand.floor_tokens


def is_too_small(demand: Any, x: Any) -> Any:
    return x[Field.FITS_TOKENS] < demand.context_tokens


def is_unmeasured(demand: Any, x: Any) -> Any:  # noqa: ARG001
    return x[Field.MEASURED] == 0.0


RULES = {
    Rejection.OFFLINE: is_offline,
    Rejection.DRAINING: is_draining,
    Rejection.PROMPT_TOO_LONG: is_too_short,
    Rejection.TOO_LITTLE_VRAM: is_too_small,
    Rejection.NOT_MEASURED: is_unmeasured,
}
"""In their order. A node that passes them and is not able is full."""
REASONS = (*RULES, Rejection.FULL, Rejection.ALREADY_TRIED)
FULL, TRIED = REASONS.index(Rejection.FULL), REASONS.index(Rejection.ALREADY_TRIED)


def first_stops(demand: Demand, x: Any) -> NDArray[np.int64]:
    """For places that are not able: the number of the first rule that stops each, in REASONS."""
    found: NDArray[np.int64] = np.select(
        [rule(demand, x) for rule in RULES.values()], list(range(len(RULES))), default=FULL
    )
    return found
