"""The compiled scan, where numba is installed and worth its start: compiling takes seconds, a scan microseconds."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.entries import Entries
from sparewatt.inference.matcher.filters import REASONS, Demand
from sparewatt.inference.matcher.formula import LINE, JobNumbers, Moment
from sparewatt.inference.matcher.ranking import NOBODY, Places, Question, Ranking

_compiled: list[Any] = []


def available() -> bool:
    return importlib.util.find_spec("numba") is not None


def ready() -> bool:
    return bool(_compiled)


def prepare() -> None:
    """Compile, which takes seconds; call it off the event loop. Does nothing without numba or a second time."""
    if ready() or not available():
        return
    scan = importlib.import_module("sparewatt.inference.matcher.compiled").scan
    ask = Question(JobNumbers(1.0, 1.0, 0.0, 0.0), Moment(0.0, 0.0), Demand(0.0, 2.0, 0.0), jitter=0.0, start=0, k=8)
    _run(scan, ask, Entries(), NOBODY, NOBODY)
    _compiled.append(scan)


def rank(ask: Question, entries: Entries, named: Places, tried: Places) -> Ranking:
    """The best k of the places that are named, or of all. Needs `ready()`."""
    return _run(_compiled[0], ask, entries, named, tried)


def _run(scan: Any, ask: Question, entries: Entries, named: Places, tried: Places) -> Ranking:
    k = ask.k
    places, lines = np.empty(k, np.int64), np.empty((k, len(LINE)))
    stops: NDArray[np.int8] = np.empty(named.size or len(entries), np.int8)
    counts = np.zeros(len(REASONS), np.int64)
    found = scan(
        entries.numbers, entries.all_hashes, entries.ids, len(entries), named, tried,
        ask.numbers, ask.moment, ask.demand, ask.jitter, np.uint64(ask.start),
        (places, np.empty(k)), lines, stops, counts,
    )  # fmt: skip
    return Ranking(places[:found], lines[:found], counts, stops)
