"""The compiled scan, where numba is installed and worth its start: compiling takes seconds, a scan microseconds."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.entries import Entries
from sparewatt.inference.matcher.formula import PARTS, JobNumbers

N_FILTERS = 6
ALL = np.empty(0, np.int64)
"""Names no place: look at all of them."""

_compiled: list[Any] = []


def available() -> bool:
    return importlib.util.find_spec("numba") is not None


def ready() -> bool:
    return bool(_compiled)


def prepare() -> None:
    """Compile, which takes seconds; call it off the event loop. Does nothing without numba or a second time."""
    if ready() or not available():
        return
    module = importlib.import_module("sparewatt.inference.matcher.compiled")
    entries = Entries()
    _run(module.scan, entries, ALL, JobNumbers(1.0, 1.0, 0.0, 0.0), (0.0, 2.0, 0.0, 1.0, 1.0), (0.0, 0), k=8)
    _compiled.append(module.scan)


def best_places(
    entries: Entries,
    named: NDArray[np.int64],
    job: JobNumbers,
    *,
    floor: float,
    now_s: float,
    away_s: float,
    suspect_after_s: float,
    jitter: float,
    start: int,
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """The best k places with their parts (jitter last), and how many each filter stopped. Needs `ready()`."""
    limits = (floor, job.prompt_tokens + job.output_tokens, now_s, away_s, suspect_after_s)
    return _run(_compiled[0], entries, named, job, limits, (jitter, start), k=k)


def _run(  # noqa: PLR0917 (hands on to compiled code)
    scan: Any,
    entries: Entries,
    named: NDArray[np.int64],
    job: JobNumbers,
    limits: tuple[float, ...],
    chance: tuple[float, int],
    *,
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    places, costs, parts = np.empty(k, np.int64), np.empty(k), np.empty((k, len(PARTS) + 1))
    counts = np.zeros(N_FILTERS, np.int64)
    drawn = (chance[0], np.uint64(chance[1]))
    found = scan(entries.storage, len(entries), named, job, limits, drawn, (places, costs, parts), counts)
    return places[:found], parts[:found], counts
