"""What the models here were found to be able to do, besides what their server tells. Each is asked once it is loaded.

What a server tells of itself is its adapter's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from sparewatt.core.log import Log
from sparewatt.node.backends.continuing import NO_WAYS, Ways, find_ways
from sparewatt.node.backends.model import Backend, BackendError, BackendModel
from sparewatt.protocol.node import Capability

_log = Log("sparewatt.node")
PROBES_MAX = 3
"""Times that a server is asked what a model can do, if it does not answer."""

FindOut = Callable[[BackendModel], Awaitable[tuple[Capability, ...]]]
"""Finds out by trying what a model can do. Raises BackendError if the server does not answer."""


class Abilities:
    def __init__(self, backend: Backend, find_out: FindOut | None) -> None:
        self._backend = backend
        self._find_out = find_out
        self._tried: dict[str, tuple[Capability, ...]] = {}
        self._ways: dict[str, Ways] = {}
        self._probes: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()

    def ways_of(self, model_id: str) -> Ways:
        """How its server can go on with an answer that another node began."""
        return self._ways.get(model_id, NO_WAYS)

    def of(self, model: BackendModel) -> tuple[Capability, ...]:
        return (*self._tried.get(model.id, ()), *self.ways_of(model.id).capabilities)

    def forget(self) -> None:
        """Another server may come up in this one's place."""
        self._tried.clear()
        self._ways.clear()
        self._probes.clear()
        self._tries.clear()

    async def look_at(self, model: BackendModel) -> bool:
        """Whether something new is known of it."""
        if model.state != "warm":
            return False
        knew = len(self._tried) + len(self._ways)
        if model.capabilities is None or "chat" in model.capabilities:
            await self._look_for_ways(model)
        await self._try(model)
        return len(self._tried) + len(self._ways) > knew

    async def _try(self, model: BackendModel) -> None:
        if self._find_out is None or model.id in self._tried or self._tries[model.id] >= PROBES_MAX:
            return
        self._tries[model.id] += 1
        try:
            self._tried[model.id] = await self._find_out(model)
        except BackendError as error:
            _log.info("try_failed", model=model.id, why=str(error))

    async def _look_for_ways(self, model: BackendModel) -> None:
        if model.id in self._ways or self._probes[model.id] >= PROBES_MAX:
            return
        self._probes[model.id] += 1
        try:
            self._ways[model.id] = await find_ways(self._backend, model.id)
        except BackendError as error:
            _log.info("probe_failed", model=model.id, why=str(error))
            return
        _log.info("probed", model=model.id, ways=",".join(self._ways[model.id].capabilities))
