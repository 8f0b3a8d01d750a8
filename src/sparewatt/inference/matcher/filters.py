"""The hard rules: who cannot have a job, and by which of them. Written once, for a place as for columns of many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.match_query import MatchQuery
from sparewatt.inference.matcher.model import REASONS, Rejection


def is_able(job: Any, x: Any) -> Any:
    """None of the rules below stops it. What no job could change is in OPEN_S already."""
    return (
        (x[ColumnField.OPEN_S] > job.gone_since_s)
        & (x[ColumnField.CONTEXT_TOKENS] > job.floor_tokens)
        & (x[ColumnField.FITS_TOKENS] >= job.prompt_tokens + job.output_tokens)
    )


def is_offline(job: Any, x: Any) -> Any:
    return (x[ColumnField.CONNECTED] == 0.0) | (x[ColumnField.LAST_HEARD_S] <= job.gone_since_s)


def is_draining(job: Any, x: Any) -> Any:  # noqa: ARG001 (one shape for all)
    return x[ColumnField.DRAINING] != 0.0


def is_too_short(job: Any, x: Any) -> Any:
    return x[ColumnField.CONTEXT_TOKENS] <= job.floor_tokens


def is_too_small(job: Any, x: Any) -> Any:
    return x[ColumnField.FITS_TOKENS] < job.prompt_tokens + job.output_tokens


def is_unmeasured(job: Any, x: Any) -> Any:  # noqa: ARG001
    return x[ColumnField.MEASURED] == 0.0


RULES = {
    Rejection.OFFLINE: is_offline,
    Rejection.DRAINING: is_draining,
    Rejection.PROMPT_TOO_LONG: is_too_short,
    Rejection.TOO_LITTLE_VRAM: is_too_small,
    Rejection.NOT_MEASURED: is_unmeasured,
}
"""In their order, which is that of REASONS. A node that passes them and is not able is full."""
FULL, TRIED = REASONS.index(Rejection.FULL), REASONS.index(Rejection.ALREADY_TRIED)


def first_stops(job: MatchQuery, x: Any) -> NDArray[np.int64]:
    """For places that are not able: the number of the first rule that stops each, in REASONS."""
    found: NDArray[np.int64] = np.select(
        [rule(job, x) for rule in RULES.values()], list(range(len(RULES))), default=FULL
    )
    return found
