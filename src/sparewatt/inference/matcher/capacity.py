"""How many places are free, by model: a count that the table keeps up to date, so that asking costs one look-up.

A place is a slot, or a place right behind one: what a node is given before new jobs wait at the gateway instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.ids import ModelId
from sparewatt.core.limits import LINK_JOBS_MAX, NODE_AHEAD_PER_SLOT
from sparewatt.inference.matcher.model import NodeRow

_NOT_THERE = -1
_PER_SLOT = 1 + NODE_AHEAD_PER_SLOT
_SLOTS_COUNTED = LINK_JOBS_MAX // _PER_SLOT
"""More than this many and the link is the bound."""


class CapacityCount:
    """Implements CapacityView. A node with several models counts its places for each: whoever comes first gets them."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._counted: list[int] = []
        """What is counted of each row, by its number."""
        self._on_freed: list[Callable[[Iterable[str]], None]] = []

    def subscribe(self, on_freed: Callable[[Iterable[str]], None]) -> None:
        """Be told the models of a node that can take more than before. Often: it must cost nearly nothing."""
        self._on_freed.append(on_freed)

    def free(self, model: ModelId) -> int:
        return self._free.get(model, 0)

    def nodes(self, model: ModelId) -> int:
        return self._nodes.get(model, 0)

    def note(self, row: NodeRow) -> None:
        """Something about a row may have changed. Called on every report: it must cost nothing if it has not."""
        before, now = self._counted[row.index], places_free(row)
        if now == before:
            return
        self._counted[row.index] = now
        if now >= 0 <= before:
            self._add_places(row, now - before)
        else:
            self._add(row, max(0, now) - max(0, before), there=(now >= 0) - (before >= 0))
        if now > before:
            self._tell_freed(row)

    def note_jobs(self, row: NodeRow, more: int) -> None:
        """Only its jobs, ours or others', are so many more: the same as `note`, quicker where places stay free."""
        before = self._counted[row.index]
        now = before - more
        if before <= 0 or now <= 0:
            self.note(row)
            return
        self._counted[row.index] = now
        self._add_places(row, -more)
        if more < 0:
            self._tell_freed(row)

    def forget(self, row: NodeRow) -> None:
        """It is new, or its models are about to change: `note` counts it anew."""
        self._counted.extend([_NOT_THERE] * (row.index + 1 - len(self._counted)))
        if self._counted[row.index] >= 0:
            self._add(row, -self._counted[row.index], there=-1)
            self._counted[row.index] = _NOT_THERE

    def _add(self, row: NodeRow, places: int, *, there: int) -> None:
        for name in row.models:
            self._nodes[name] = self._nodes.get(name, 0) + there
            self._free.setdefault(name, 0)
        self._add_places(row, places)

    def _tell_freed(self, row: NodeRow) -> None:
        for on_freed in self._on_freed:
            on_freed(row.models)

    def _add_places(self, row: NodeRow, places: int) -> None:
        free = self._free
        for name, model in row.models.items():
            if model.measured is not None:
                free[name] += places


def places_free(row: NodeRow) -> int:
    """Zero for a node that is taken, less for one that takes nothing."""
    load, slots = row.load, row.specs.slots
    if not row.connected or load.draining:
        return _NOT_THERE
    places = slots * _PER_SLOT if slots <= _SLOTS_COUNTED else LINK_JOBS_MAX
    free = places - row.own_jobs - load.foreign
    return free if free > 0 else 0  # noqa: FURB136 (a call to max costs more than the rest)
