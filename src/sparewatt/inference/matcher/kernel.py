"""Calls the compiled scan, where the package brings one for this platform (`library`).

It writes into memory that is reused from scan to scan, so it serves one thread at a time.
"""

from __future__ import annotations

import struct

import numpy as np

from sparewatt.inference.matcher import library
from sparewatt.inference.matcher.columns import NO_POSITIONS, NodeColumns, Positions
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.library import EntryFunction
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, REJECTED_WIDTH, REJECTIONS_KEPT, SCAN_REJECTIONS
from sparewatt.inference.matcher.scan import RANKED_WIDTH, MatchQuery, ScanResult

CAPACITY_FIRST = 1024
BY_ROW_SHARE = 8
"""If fewer than one node in so many is looked at, the scan reads rows, otherwise columns."""
_DOUBLE_BYTES = 8
QUERY = struct.Struct(f"=Q{9 + len(PARTS)}d")
CALL = struct.Struct("=19q")
"""The arguments of `compiled.scan`."""
_N_REASONS = len(SCAN_REJECTIONS)


class Kernel:
    """The compiled function and the memory that it reads and writes."""

    def __init__(self, entry: EntryFunction) -> None:
        self._entry = entry
        self._call, self._n_ranked = np.zeros(CALL.size, np.uint8), np.zeros(1, np.int64)
        self._call_buffer, self._n_ranked_view = self._call.data, self._n_ranked.data
        self._call_address, self._n_ranked_address = self._call.ctypes.data, self._n_ranked.ctypes.data
        self._query = np.zeros(QUERY.size, np.uint8)
        self._query_buffer = self._query.data
        self._counts = np.zeros(_N_REASONS + 2, np.int64)
        self._counts_view = self._counts.data
        self._picks, self._rejected = np.empty(REJECTIONS_KEPT, np.int64), np.empty(REJECTIONS_KEPT * REJECTED_WIDTH)
        self._rejected_view = self._rejected.data.cast("B")
        self._subset = self._subset_array = NO_POSITIONS
        self._subset_address = 0
        self._allocate(CAPACITY_FIRST, CANDIDATES_KEPT)

    def _allocate(self, n_nodes: int, k: int) -> None:
        self._n_nodes, self._k = n_nodes, k
        self._bounds, self._rejections = np.empty(n_nodes), np.empty(n_nodes, np.int8)
        self._positions, self._rows = np.empty(k, np.int64), np.empty(k * RANKED_WIDTH)
        self._rows_view = self._rows.data.cast("B")
        outputs = (self._bounds, self._positions, self._rows, self._counts, self._rejections)
        arrays = (self._query, *outputs, self._picks, self._rejected)
        self._addresses = tuple(array.ctypes.data for array in arrays)

    def rank(
        self, query: MatchQuery, columns: NodeColumns, subset: Positions, tried: Positions, *, k: int
    ) -> ScanResult:
        n = len(columns)
        if n > self._n_nodes or k > self._k:
            self._allocate(max(2 * n, self._n_nodes), max(k, self._k))
        rows, transposed, capacity, hashes, ids = columns.addresses
        n_subset, n_tried, subset_at, tried_at = 0, 0, 0, 0
        if subset.size:
            if subset is not self._subset:  # most subsets come again and again
                self._subset, self._subset_array = subset, np.ascontiguousarray(subset, np.int64)
                self._subset_address = self._subset_array.ctypes.data
            n_subset, subset_at = subset.size, self._subset_address
            capacity = capacity if n_subset * BY_ROW_SHARE >= n else 0
        if tried.size:
            tried, n_tried = np.ascontiguousarray(tried, np.int64), tried.size
            tried_at = tried.ctypes.data
        prompt, output, floor, usd, weights, now_s, suspect_s, offline_s, jitter, seed, standing = query
        QUERY.pack_into(
            self._query_buffer,
            0,
            seed,
            prompt,
            output,
            floor,
            usd,
            now_s,
            suspect_s,
            offline_s,
            jitter,
            standing,
            *weights,
        )
        CALL.pack_into(
            self._call_buffer,
            0,
            rows,
            transposed,
            capacity,
            hashes,
            ids,
            n,
            subset_at,
            n_subset,
            tried_at,
            n_tried,
            k,
            *self._addresses,
        )
        self._entry(self._n_ranked_address, None, self._call_address)
        n_ranked: int = self._n_ranked_view[0]
        ranked = bytes(self._rows_view[: n_ranked * RANKED_WIDTH * _DOUBLE_BYTES])
        if not self._counts_view[_N_REASONS]:
            return ScanResult(ranked, n_ranked)
        *counts, _, n_kept = self._counts_view.tolist()
        rejected = bytes(self._rejected_view[: n_kept * REJECTED_WIDTH * _DOUBLE_BYTES])
        return ScanResult(ranked, n_ranked, tuple(counts), rejected)


def _load() -> Kernel | None:
    entry = library.load()
    return Kernel(entry) if entry is not None else None


_kernel = _load()


def ready() -> bool:
    """A compiled scan is loaded. Without one, `scan.rank` gives the same answers."""
    return _kernel is not None


def rank(query: MatchQuery, columns: NodeColumns, subset: Positions, tried: Positions, *, k: int) -> ScanResult:
    """The best k of the subset, or of all nodes if it is empty. Needs `ready()`."""
    if _kernel is None:
        raise RuntimeError("no compiled scan is loaded: ask `ready()` first")
    return _kernel.rank(query, columns, subset, tried, k=k)
