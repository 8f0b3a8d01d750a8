"""How many jobs of each model the known nodes could take now: what admission control goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.ids import ModelId
from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.inference.matcher.node_row import NodeRow

NODE_AHEAD_PER_SLOT = 1
"""Jobs sent ahead to a node for each one that runs: no slot idles for a round trip, the rest waits in line."""

_UNAVAILABLE = -1
_JOBS_PER_SLOT = 1 + NODE_AHEAD_PER_SLOT
_SLOTS_COUNTED_MAX = LINK_JOBS_MAX // _JOBS_PER_SLOT
"""With more slots than this the link is the bound."""


class CapacityCount:
    """Implements CapacityView. A node with several models counts its slots for each of them."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._counted: list[int] = []
        """What is counted of each row, by its index."""
        self._on_freed: list[Callable[[Iterable[str]], None]] = []

    def subscribe(self, on_freed: Callable[[Iterable[str]], None]) -> None:
        """Call `on_freed` with the models of every node that gains a free slot. Often: it must be cheap."""
        self._on_freed.append(on_freed)

    def free(self, model: ModelId) -> int:
        return self._free.get(model, 0)

    def nodes(self, model: ModelId) -> int:
        return self._nodes.get(model, 0)

    def update(self, row: NodeRow) -> None:
        """Recount a row. Called on every report: it must cost nothing if nothing has changed."""
        before, now = self._counted[row.index], free_slots(row)
        if now == before:
            return
        self._counted[row.index] = now
        if now >= 0 <= before:
            self._add_slots(row, now - before)
        else:
            self._add(row, max(0, now) - max(0, before), nodes=(now >= 0) - (before >= 0))
        if now > before:
            self._notify_freed(row)

    def update_jobs(self, row: NodeRow, more: int) -> None:
        """The same as `update` when only the number of jobs has changed; faster while slots stay free."""
        before = self._counted[row.index]
        now = before - more
        if before <= 0 or now <= 0:
            self.update(row)
            return
        self._counted[row.index] = now
        self._add_slots(row, -more)
        if more < 0:
            self._notify_freed(row)

    def forget(self, row: NodeRow) -> None:
        """Take the row out, because it is new or its models are about to change; `update` counts it again."""
        self._counted.extend([_UNAVAILABLE] * (row.index + 1 - len(self._counted)))
        if self._counted[row.index] >= 0:
            self._add(row, -self._counted[row.index], nodes=-1)
            self._counted[row.index] = _UNAVAILABLE

    def _add(self, row: NodeRow, slots: int, *, nodes: int) -> None:
        for name in row.models:
            self._nodes[name] = self._nodes.get(name, 0) + nodes
            self._free.setdefault(name, 0)
        self._add_slots(row, slots)
        if nodes < 0:
            for name in row.models:
                if not self._nodes[name]:
                    del self._nodes[name], self._free[name]

    def _notify_freed(self, row: NodeRow) -> None:
        for on_freed in self._on_freed:
            on_freed(row.models)

    def _add_slots(self, row: NodeRow, slots: int) -> None:
        free = self._free
        for name, model in row.models.items():
            if model.measured is not None:
                free[name] += slots


def free_slots(row: NodeRow) -> int:
    """Zero for a node that is full, less for one that takes no jobs."""
    load, slots = row.load, row.specs.slots
    if not row.connected or load.draining or row.is_suspended:
        return _UNAVAILABLE
    jobs_max = slots * _JOBS_PER_SLOT if slots <= _SLOTS_COUNTED_MAX else LINK_JOBS_MAX
    free = jobs_max - row.own_jobs - load.foreign
    return free if free > 0 else 0  # noqa: FURB136 (a call to max costs more than the rest)
