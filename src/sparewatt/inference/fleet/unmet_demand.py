"""Unmet demand: models that clients asked for while no connected node had them, for owners who wonder what to serve.

Names come from clients, so their number and length are bounded, and one key counts for little: models are ordered by
how many keys asked for them. Kept in memory, per process; a name that nobody asked for in a day is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.ids import KeyId
from sparewatt.protocol.link.node_report import ModelName

NAMES_MAX = 200
NAME_CHARS_MAX = 100
"""Longer names are not counted: no model has one."""
KEYS_COUNTED_MAX = 50
"""Keys told apart per name: more would not change what an owner does."""
FORGET_AFTER_S = 24 * 3600.0


class WantedModel(msgspec.Struct, frozen=True):
    """A model that was asked for and not there."""

    name: str
    requests: int
    keys: int
    """How many API keys asked for it, as far as they are told apart."""


class _Demand(msgspec.Struct):
    keys: set[KeyId]
    requests: int = 0
    last_s: float = 0.0


class UnmetDemand:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Demand] = OrderedDict()
        """The name that was asked for last stands last."""

    def note(self, model: str, key: KeyId) -> None:
        if not _is_name(model):
            return
        demand = self._by_name.get(model)
        if demand is None:
            demand = self._by_name[model] = _Demand(set())
            self._evict()
        self._by_name.move_to_end(model)
        demand.requests += 1
        demand.last_s = self._clock.now_s()
        if len(demand.keys) < KEYS_COUNTED_MAX:
            demand.keys.add(key)

    def wanted(self) -> list[WantedModel]:
        """The most wanted first."""
        self._forget_old()
        found = [WantedModel(name, each.requests, len(each.keys)) for name, each in self._by_name.items()]
        return most_wanted(found)

    def _evict(self) -> None:
        """Of names over the bound, the least wanted goes, and of these the one that was asked for longest ago."""
        if len(self._by_name) > NAMES_MAX:
            *older, _ = self._by_name.items()
            least, _ = min(older, key=lambda item: (len(item[1].keys), item[1].requests))
            del self._by_name[least]

    def _forget_old(self) -> None:
        since_s = self._clock.now_s() - FORGET_AFTER_S
        for name in [name for name, demand in self._by_name.items() if demand.last_s < since_s]:
            del self._by_name[name]


def most_wanted(models: Iterable[WantedModel]) -> list[WantedModel]:
    """With the counts of one name added up: each process of a gateway counts by itself."""
    totals: dict[str, WantedModel] = {}
    for each in models:
        before = totals.get(each.name, WantedModel(each.name, 0, 0))
        totals[each.name] = WantedModel(each.name, before.requests + each.requests, max(before.keys, each.keys))
    return sorted(totals.values(), key=lambda wanted: (-wanted.keys, -wanted.requests, wanted.name))


def _is_name(model: str) -> bool:
    """Whether it could be a model's id, and can be sent to nodes."""
    if len(model) > NAME_CHARS_MAX:
        return False
    try:
        msgspec.convert(model, ModelName)
    except msgspec.ValidationError:
        return False
    return True
