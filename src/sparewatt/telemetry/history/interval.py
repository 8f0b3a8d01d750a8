"""What was counted since it was last stored: figures of the network, of each model, node and error; results by node.

Times and speeds are counts per bucket, so percentiles of any span follow by adding. Eight buckets per factor of ten,
from 1 to 100,000: a percentile is right to within a few per cent. The `HistoryWriter` takes the counts out, and puts
them back if Postgres does not answer.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.store.history import HistoryCounts, HistoryKind
from sparewatt.store.node_results import NodeResultCount
from sparewatt.telemetry.feed.public import BYTES_PER_GB, vram_gb_of
from sparewatt.trust.reputation import AttemptResult

BUCKETS_PER_DECADE = 8
BUCKETS = 5 * BUCKETS_PER_DECADE
SPEED_UNIT = 0.1
"""Speeds are counted in tenths of a token per second: slow nodes write less than one."""
HISTORY_NAMES_MAX = 1_000
"""Models and error codes counted at once: clients can make up any number of names."""
NETWORK = ""
GONE_S = 7 * 24 * 3600.0
"""A node that was offline for longer has left: its days no longer count as down."""
RESULTS_MAX = 200_000
"""Nodes, days and results that wait for the database; when it is away for longer, new ones are not counted."""
DAY_S = 86_400.0
_EPOCH = dt.date(1970, 1, 1)

FigureKey = tuple[HistoryKind, str]


def empty() -> list[int]:
    return [0] * BUCKETS


def bucket_of(value: float) -> int:
    if value <= 1.0:
        return 0
    bucket = int(BUCKETS_PER_DECADE * math.log10(value))
    return bucket if bucket < BUCKETS else BUCKETS - 1


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The value below which `share` of them lie, interpolated within its bucket; None if there are none."""
    rank = share * sum(counts)
    below = 0.0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            return float(10 ** ((bucket + (rank - below) / count) / BUCKETS_PER_DECADE))
        below += count
    return None


class IntervalFigures:
    def __init__(self) -> None:
        self._figures: dict[FigureKey, HistoryCounts] = {}

    def at(self, kind: HistoryKind, name: str) -> HistoryCounts | None:
        """None if there are too many names already."""
        figures = self._figures.get((kind, name))
        if figures is None and (kind == "node" or len(self._figures) < HISTORY_NAMES_MAX + self._nodes()):
            figures = self._figures[kind, name] = HistoryCounts()
        return figures

    def network(self) -> HistoryCounts:
        figures = self._figures.get(("network", NETWORK))
        if figures is None:
            figures = self._figures["network", NETWORK] = HistoryCounts()
        return figures

    def _nodes(self) -> int:
        return sum(kind == "node" for kind, _ in self._figures) if len(self._figures) >= HISTORY_NAMES_MAX else 0

    def add_uptime(
        self,
        rows: Iterable[NodeRow],
        *,
        passed_s: float,
        unix_s: float,
        has_peer_link: Callable[[NodeId], bool] = lambda _: False,
    ) -> None:
        """Count the last `passed_s` seconds as up or down, for all nodes that were up in the last days.

        `has_peer_link`: whether another process of this gateway has a link to a node.
        """
        network = self.network()
        network.nodes = network.gpus = network.vram_bytes = 0
        known: set[str] = set()
        warm: set[str] = set()
        for row in rows:
            is_up = row.connected or has_peer_link(row.id)
            if not is_up and unix_s - (row.last_seen_unix_s or 0.0) > GONE_S:
                continue
            known.update(row.models)
            node = self._figures.setdefault(("node", row.id), HistoryCounts())
            if not (row.connected and row.load.draining):  # paused by its owner, or about to stop: that costs nothing
                _add_time(node, passed_s=passed_s, is_up=is_up)
            if is_up:
                _add_capacity(network, row)
                warm.update([model.id for model in row.models.values() if model.state == "warm"])
        _add_time(network, passed_s=passed_s, is_up=bool(warm))
        for model in known:
            _add_time(self.at("model", model), passed_s=passed_s, is_up=model in warm)

    def take(self, kinds: Iterable[HistoryKind]) -> dict[FigureKey, HistoryCounts]:
        """Remove and return the figures of these kinds. If they cannot be stored, the caller gives them back."""
        wanted = set(kinds)
        taken = {key: figures for key, figures in self._figures.items() if key[0] in wanted}
        self._figures = {key: figures for key, figures in self._figures.items() if key[0] not in wanted}
        return taken

    def give_back(self, taken: dict[FigureKey, HistoryCounts]) -> None:
        for key, figures in taken.items():
            current = self._figures.setdefault(key, figures)
            if current is not figures:
                current.add(figures)


def _add_capacity(network: HistoryCounts, row: NodeRow) -> None:
    network.nodes += 1
    network.gpus += row.specs.gpu_count
    network.vram_bytes += vram_gb_of(row) * BYTES_PER_GB  # rounded, since these figures are public


def _add_time(figures: HistoryCounts | None, *, passed_s: float, is_up: bool) -> None:
    if figures is not None:
        figures.known_s += passed_s
        figures.up_s += passed_s if is_up else 0.0


class _ResultCount(msgspec.Struct, gc=False):
    count: int
    last_unix_s: float


_ResultKey = tuple[NodeId, float, str]
"""Node, number of the day since 1970, result."""


class NodeResults:
    """How attempts ended by node and day: the input of reputation."""

    def __init__(self) -> None:
        self._counts: dict[_ResultKey, _ResultCount] = {}

    def add(self, node_id: NodeId, result: AttemptResult, *, unix_s: float) -> None:
        self._add((node_id, unix_s // DAY_S, result), 1, unix_s)

    def take(self) -> list[NodeResultCount]:
        """Remove and return all counts. If they cannot be stored, the caller gives them back."""
        taken, self._counts = self._counts, {}
        return [
            NodeResultCount(node_id, _EPOCH + dt.timedelta(day), str(result), each.count, each.last_unix_s)
            for (node_id, day, result), each in taken.items()
        ]

    def give_back(self, taken: Sequence[NodeResultCount]) -> None:
        for each in taken:
            day = float((each.day - _EPOCH).days)
            self._add((each.node_id, day, each.result), each.count, each.last_unix_s)

    def _add(self, key: _ResultKey, count: int, unix_s: float) -> None:
        current = self._counts.get(key)
        if current is not None:
            current.count += count
            current.last_unix_s = max(current.last_unix_s, unix_s)
        elif len(self._counts) < RESULTS_MAX:
            self._counts[key] = _ResultCount(count, unix_s)
