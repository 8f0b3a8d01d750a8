"""The compiled scan, where numba is installed and worth its start: compiling takes seconds, a scan microseconds.

It writes into memory that is used again from scan to scan: for one thread at a time.
"""

from __future__ import annotations

import importlib
import importlib.util
import struct

import numpy as np

from sparewatt.core.limits import CANDIDATES_KEPT, REJECTIONS_KEPT
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.match_query import NOBODY, WIDTH, MatchQuery, Positions, ScanResult
from sparewatt.inference.matcher.model import REASONS, TOLD_OF_STOPPED

STOPPED_WIDTH = 2 + len(TOLD_OF_STOPPED)
FIRST_PLACES = 1024
FEW_SHARE = 8
"""Fewer than one place in so many are looked at row by row, more in columns."""
_DOUBLE = 8
_ASK = struct.Struct(f"=Q{9 + len(PARTS)}d")
_N_REASONS = len(REASONS)


class Kernel:
    """The compiled functions and the memory that they write into."""

    def __init__(self) -> None:
        module = importlib.import_module("sparewatt.inference.matcher.compiled")
        self._scan = module.scan
        self._ask = np.zeros(_ASK.size, np.uint8)
        self._asked = self._ask.data
        self._counts = np.zeros(_N_REASONS + 2, np.int64)
        self._counted = self._counts.data
        self._picks, self._stopped = np.empty(REJECTIONS_KEPT, np.int64), np.empty(REJECTIONS_KEPT * STOPPED_WIDTH)
        self._told_of_stopped = self._stopped.data.cast("B")
        self._named = self._names = NOBODY
        self._names_at = 0
        self._make_room(FIRST_PLACES, CANDIDATES_KEPT)

    def _make_room(self, n_places: int, k: int) -> None:
        self._n_places, self._k = n_places, k
        self._low, self._stops = np.empty(n_places), np.empty(n_places, np.int8)
        self._places, self._lines = np.empty(k, np.int64), np.empty(k * WIDTH)
        self._told = self._lines.data.cast("B")
        filled = (self._low, self._places, self._lines, self._counts, self._stops, self._picks, self._stopped)
        self._room = tuple(array.ctypes.data for array in (self._ask, *filled))

    def rank(self, job: MatchQuery, entries: NodeColumns, named: Positions, tried: Positions, *, k: int) -> ScanResult:
        n = len(entries)
        if n > self._n_places or k > self._k:
            self._make_room(max(2 * n, self._n_places), max(k, self._k))
        numbers, columns, capacity, hashes, ids = entries.memory
        n_named, n_tried, names, trials = 0, 0, 0, 0
        if named.size:
            if named is not self._named:  # most are named again and again
                self._named, self._names = named, np.ascontiguousarray(named, np.int64)
                self._names_at = self._names.ctypes.data
            n_named, names = named.size, self._names_at
            capacity = capacity if n_named * FEW_SHARE >= n else 0
        if tried.size:
            tried, n_tried = np.ascontiguousarray(tried, np.int64), tried.size
            trials = tried.ctypes.data
        prompt, output, floor, strain, usd, weights, now_s, silent_s, gone_s, jitter, start = job
        _ASK.pack_into(
            self._asked, 0, start, prompt, output, floor, strain, usd, now_s, silent_s, gone_s, jitter, *weights
        )
        found = self._scan(numbers, columns, capacity, hashes, ids, n, names, n_named, trials, n_tried, k, *self._room)
        told = bytes(self._told[: found * WIDTH * _DOUBLE])
        if not self._counted[_N_REASONS]:
            return ScanResult(told, found)
        *counts, _, n_told = self._counted.tolist()
        return ScanResult(told, found, tuple(counts), bytes(self._told_of_stopped[: n_told * STOPPED_WIDTH * _DOUBLE]))


_kernel: list[Kernel] = []


def available() -> bool:
    return importlib.util.find_spec("numba") is not None


def ready() -> bool:
    return bool(_kernel)


def prepare() -> None:
    """Compile, which takes seconds; call it off the event loop. Does nothing without numba or a second time."""
    if ready() or not available():
        return
    made = Kernel()
    made.rank(MatchQuery(1.0, 1.0), NodeColumns(), NOBODY, NOBODY, k=CANDIDATES_KEPT)
    _kernel[:] = [made]


def rank(job: MatchQuery, entries: NodeColumns, named: Positions, tried: Positions, *, k: int) -> ScanResult:
    """The best k of the places that are named, or of all. Needs `ready()`."""
    return _kernel[0].rank(job, entries, named, tried, k=k)
