"""Fits a model's speed curve to a few timed samples. Pure.

Prompts: a fixed cost, one per token and one per pair of tokens. Decoding steps: a fixed cost, one per further answer
and one per token of context. Both are least squares of the relative errors, so that a short prompt counts as much as a
long one, with no negative coefficient: noise must not say that more work takes less time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import combinations

import msgspec

from sparewatt.protocol.link.node_report import Speed

RATE_MIN, RATE_MAX = 1e-3, 1e7
SECONDS_MAX = 3600.0
SQUARE_S_MAX = 1e-3
STEP_PER_TOKEN_S_MAX = 1.0
PACE_MIN = 0.01
LONG_CONTEXT_FACTOR = 4.0
"""From contexts that differ by less, noise would be read as the cost of context."""
MAIN_SHARE_MIN = 0.05
"""Of the longest prompt's time, for its length; of a step's time, for the step itself: noise hides no more."""
SECONDS_MIN = 1e-6
"""A sample cannot be shorter: clocks are no finer."""
DIGITS = 4
"""Significant digits of a figure: more would be noise, and every one a change to report."""


class SpeedSamples(msgspec.Struct, frozen=True):
    """What was timed on an undisturbed server."""

    prefill: tuple[tuple[float, float], ...]
    """Prompt tokens as the server counted them, and seconds to the first token, alone."""
    decode: tuple[tuple[int, float, float], ...]
    """Answers at once, mean context tokens of each, and seconds per step."""
    shared: tuple[float, float, float] | None = None
    """Prompt tokens, seconds to its first token beside writers, and steps that each writer made meanwhile."""
    writers: int = 1
    """How many wrote beside that prompt, with contexts as short as the shortest in `decode`."""


def fit_speed(samples: SpeedSamples) -> Speed:
    """A model without decode samples only embeds: it counts as writing as fast as it reads.

    Raises ValueError without a prompt sample.
    """
    if not samples.prefill:
        raise ValueError("no prompt was timed")
    speed = _with_prefill(samples.prefill)
    if samples.decode:
        speed = _with_decode(speed, samples.decode)
    if samples.shared and samples.decode:
        speed = _with_paces(speed, samples, *samples.shared)
    return speed


def _with_prefill(samples: Sequence[tuple[float, float]]) -> Speed:
    """As many coefficients as there are lengths, at most three. One length cannot tell what is fixed: nothing is."""
    lengths = len({tokens for tokens, _ in samples})
    longest = max(tokens for tokens, _ in samples)
    columns = [
        [tokens / longest for tokens, _ in samples],
        [1.0 for _ in samples],
        [(tokens / longest) ** 2 for tokens, _ in samples],
    ][: min(3, lengths)]
    per_token, fixed_s, square = _fit(columns, [seconds for _, seconds in samples])
    rate = _rate(longest / max(per_token, MAIN_SHARE_MIN * (per_token + fixed_s + square)))
    return Speed(
        prefill_tps=rate,
        decode_tps=rate,
        ttft_s=_rounded(min(SECONDS_MAX, fixed_s)),
        prefill_square_s=_rounded(min(SQUARE_S_MAX, square / longest**2)),
    )


def _with_decode(speed: Speed, samples: Sequence[tuple[int, float, float]]) -> Speed:
    contexts = [context for _, context, _ in samples]
    has_batch = len({jobs for jobs, _, _ in samples}) > 1
    has_long_context = max(contexts) >= LONG_CONTEXT_FACTOR * max(1.0, min(contexts))
    columns = [
        [1.0 for _ in samples],
        [(jobs - 1.0) * has_batch for jobs, _, _ in samples],
        [jobs * context * has_long_context for jobs, context, _ in samples],
    ]
    seconds = [seconds for _, _, seconds in samples]
    step_s, per_job_s, per_token_s = _fit(columns, seconds)
    batch, fastest = max((jobs, -max(SECONDS_MIN, step_s)) for jobs, _, step_s in samples)
    return msgspec.structs.replace(
        speed,
        decode_tps=_rate(1 / max(step_s, MAIN_SHARE_MIN * min(seconds), SECONDS_MIN)),
        step_per_job_s=_rounded(min(SECONDS_MAX, per_job_s)) if has_batch else None,
        step_per_token_s=_rounded(min(STEP_PER_TOKEN_S_MAX, per_token_s)) if has_long_context else None,
        batch=batch if has_batch else None,
        batch_decode_tps=_rate(batch / -fastest) if has_batch else None,
    )


def _with_paces(speed: Speed, samples: SpeedSamples, tokens: float, seconds: float, steps: float) -> Speed:
    """Both shares of the time that the prompt took beside writers: its own alone, and the writers' steps."""
    context = min(context for _, context, _ in samples.decode)
    step_s = speed.step_s(samples.writers, context * samples.writers)
    return msgspec.structs.replace(
        speed,
        prefill_pace=_pace(speed.prefill_s(tokens) / max(seconds, SECONDS_MIN)),
        decode_pace=_pace(steps * step_s / max(seconds, SECONDS_MIN)),
    )


def _fit(columns: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[float, float, float]:
    """The coefficient of each column, 0 for one that is missing or all zeros: the best fit in which none is negative.

    With at most three columns every choice of them is tried: exact, where an iteration would need a bound.
    """
    times = [max(SECONDS_MIN, value) for value in seconds]
    scaled = [[value / time for value, time in zip(column, times, strict=True)] for column in columns]
    best, best_error = (0.0, 0.0, 0.0), math.inf
    present = [index for index, column in enumerate(scaled) if any(column)]
    for count in range(1, len(present) + 1):
        for chosen in combinations(present, count):
            found = _least_squares([scaled[index] for index in chosen])
            if found is None or min(found) < 0:
                continue
            coefficients = [0.0, 0.0, 0.0]
            for index, value in zip(chosen, found, strict=True):
                coefficients[index] = value
            error = _squared_error(scaled, coefficients)
            if error < best_error * (1 - 1e-9):
                best, best_error = (coefficients[0], coefficients[1], coefficients[2]), error
    return best


def _squared_error(scaled: Sequence[Sequence[float]], coefficients: Sequence[float]) -> float:
    error = 0.0
    for row in zip(*scaled, strict=True):
        error += (sum(map(operator.mul, row, coefficients)) - 1.0) ** 2
    return error


def _least_squares(columns: Sequence[Sequence[float]]) -> list[float] | None:
    """Solves the normal equations for ones on the right, by elimination; None if columns depend on each other."""
    size = len(columns)
    scale = [math.sqrt(sum(value * value for value in column)) for column in columns]
    unit = [[value / norm for value in column] for column, norm in zip(columns, scale, strict=True)]
    rows = [[sum(a * b for a, b in zip(left, right, strict=True)) for right in unit] + [sum(left)] for left in unit]
    for pivot in range(size):
        best = max(range(pivot, size), key=lambda row: abs(rows[row][pivot]))
        rows[pivot], rows[best] = rows[best], rows[pivot]
        if abs(rows[pivot][pivot]) < 1e-12:
            return None
        for row in range(size):
            if row != pivot:
                factor = rows[row][pivot] / rows[pivot][pivot]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[pivot], strict=True)]
    return [rows[index][size] / rows[index][index] / scale[index] for index in range(size)]


def _rate(value: float) -> float:
    return _rounded(min(RATE_MAX, max(RATE_MIN, value)))


def _pace(value: float) -> float:
    return _rounded(min(1.0, max(PACE_MIN, value)))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
