"""Figures that were counted since they were last stored: of the network, of each model, node and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import HISTORY_NAMES_MAX
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.store.history import HistoryCounts, HistoryKind
from sparewatt.telemetry.feed.public import BYTES_PER_GB, vram_gb_of

NETWORK = ""
GONE_S = 7 * 24 * 3600.0
"""A node that was away for longer has left: its days are not counted as down any more."""

FigureKey = tuple[HistoryKind, str]


class IntervalFigures:
    def __init__(self) -> None:
        self._figures: dict[FigureKey, HistoryCounts] = {}

    def at(self, kind: HistoryKind, name: str) -> HistoryCounts | None:
        """None where there are too many names already."""
        found = self._figures.get((kind, name))
        if found is None and (kind == "node" or len(self._figures) < HISTORY_NAMES_MAX + self._nodes()):
            found = self._figures[kind, name] = HistoryCounts()
        return found

    def network(self) -> HistoryCounts:
        return self._figures.setdefault(("network", NETWORK), HistoryCounts())

    def _nodes(self) -> int:
        return sum(kind == "node" for kind, _ in self._figures) if len(self._figures) >= HISTORY_NAMES_MAX else 0

    def add_uptime(
        self,
        rows: Iterable[NodeRow],
        *,
        passed_s: float,
        unix_s: float,
        is_elsewhere: Callable[[NodeId], bool] = lambda _: False,
    ) -> None:
        """Which nodes were up in the last `passed_s` seconds, of those that were up in the last days.

        `is_elsewhere`: whether another process of this gateway has a link to a node.
        """
        network = self.network()
        network.nodes = network.gpus = network.vram_bytes = 0
        known: set[str] = set()
        warm: set[str] = set()
        for row in rows:
            is_up = row.connected or is_elsewhere(row.id)
            if not is_up and unix_s - (row.last_seen_unix_s or 0.0) > GONE_S:
                continue
            known.update(row.models)
            node = self._figures.setdefault(("node", row.id), HistoryCounts())
            node.known_s += passed_s
            if is_up:
                node.up_s += passed_s
                _add_capacity(network, row)
                warm.update([model.id for model in row.models.values() if model.state == "warm"])
        _add_time(network, passed_s=passed_s, is_up=bool(warm))
        for model in known:
            _add_time(self.at("model", model), passed_s=passed_s, is_up=model in warm)

    def take(self, kinds: Iterable[HistoryKind]) -> dict[FigureKey, HistoryCounts]:
        """The figures of these kinds; from now on they are counted anew. Whoever cannot store them gives them back."""
        wanted = set(kinds)
        taken = {key: figures for key, figures in self._figures.items() if key[0] in wanted}
        self._figures = {key: figures for key, figures in self._figures.items() if key[0] not in wanted}
        return taken

    def give_back(self, taken: dict[FigureKey, HistoryCounts]) -> None:
        for key, figures in taken.items():
            known = self._figures.get(key)
            if known is None:
                self._figures[key] = figures
            else:
                known.add(figures)


def _add_capacity(network: HistoryCounts, row: NodeRow) -> None:
    network.nodes += 1
    network.gpus += row.specs.gpu_count
    network.vram_bytes += vram_gb_of(row) * BYTES_PER_GB  # rounded as strangers see it: these figures are public


def _add_time(figures: HistoryCounts | None, *, passed_s: float, is_up: bool) -> None:
    if figures is not None:
        figures.known_s += passed_s
        figures.up_s += passed_s if is_up else 0.0
