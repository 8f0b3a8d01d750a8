"""The compiled scan, where numba is installed and worth its start: compiling takes seconds, a scan microseconds."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.entries import Entries, Floats
from sparewatt.inference.matcher.filters import REASONS
from sparewatt.inference.matcher.formula import PARTS, SUMMARY
from sparewatt.inference.matcher.question import NOBODY, Places, Question, Ranking

LINE = len(SUMMARY) + len(PARTS) + 1

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
    ranking = _run(module.scan, Question(1.0, 1.0), Entries(), NOBODY, NOBODY, k=1)
    _pick(module.pick_stopped, Entries(), ranking.stops, NOBODY, NOBODY, k=1)
    _compiled[:] = [module.scan, module.pick_stopped]


def rank(job: Question, entries: Entries, named: Places, tried: Places, *, k: int) -> Ranking:
    """The best k of the places that are named, or of all. Needs `ready()`."""
    return _run(_compiled[0], job, entries, named, tried, k=k)


def pick_stopped(
    entries: Entries, stops: NDArray[np.int8], named: Places, told: Places, *, k: int
) -> tuple[Places, Floats]:
    """Up to k of the places that something stopped, and what is told of each. Needs `ready()`."""
    return _pick(_compiled[1], entries, stops, named, told, k=k)


def _pick(
    pick: Any, entries: Entries, stops: NDArray[np.int8], named: Places, told: Places, *, k: int
) -> tuple[Places, Floats]:
    places, lines = np.empty(k, np.int64), np.empty((k, told.size))
    found = pick(stops, named, entries.all_hashes, entries.numbers, told, places, lines)
    return places[:found], lines[:found]


def _run(scan: Any, job: Question, entries: Entries, named: Places, tried: Places, *, k: int) -> Ranking:
    places, lines = np.empty(k, np.int64), np.empty((k, LINE))
    stops, counts = np.empty(named.size or len(entries), np.int8), np.zeros(len(REASONS), np.int64)
    n, numbers, hashes, ids = len(entries), entries.numbers, entries.all_hashes, entries.ids
    found = scan(job, numbers, hashes, ids, n, named, tried, places, lines, stops, counts)
    return Ranking(places[:found], lines[:found], counts.tolist(), stops)
