"""What the models here were found to be able to do, besides what their server tells. Each is asked once it is loaded.

What a server tells of itself is its adapter's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from sparewatt.core.log import Logger
from sparewatt.node.backends.backend import Backend, BackendError, BackendModel
from sparewatt.node.backends.continuation_probe import NO_CONTINUATION, ContinuationSupport, probe_continuation
from sparewatt.protocol.link.node_report import Capability

_log = Logger("sparewatt.node")
PROBES_MAX = 3
"""Times that a server is asked what a model can do, if it does not answer."""

CapabilityProbe = Callable[[BackendModel], Awaitable[tuple[Capability, ...]]]
"""Finds out by trying what a model can do. Raises BackendError if the server does not answer."""


class ProbedCapabilities:
    def __init__(self, backend: Backend, probe_capabilities: CapabilityProbe | None) -> None:
        self._backend = backend
        self._probe_capabilities = probe_capabilities
        self._features: dict[str, tuple[Capability, ...]] = {}
        self._continuations: dict[str, ContinuationSupport] = {}
        self._continuation_probes: Counter[str] = Counter()
        self._feature_probes: Counter[str] = Counter()

    def continuation_of(self, model_id: str) -> ContinuationSupport:
        """How its server can go on with an answer that another node began."""
        return self._continuations.get(model_id, NO_CONTINUATION)

    def of(self, model: BackendModel) -> tuple[Capability, ...]:
        return (*self._features.get(model.id, ()), *self.continuation_of(model.id).capabilities)

    def forget(self) -> None:
        """Another server may come up in this one's place."""
        self._features.clear()
        self._continuations.clear()
        self._continuation_probes.clear()
        self._feature_probes.clear()

    async def probe(self, model: BackendModel) -> bool:
        """Whether something new is known of it."""
        if model.state != "warm":
            return False
        knew = len(self._features) + len(self._continuations)
        if model.capabilities is None or "chat" in model.capabilities:
            await self._probe_continuation(model)
        await self._probe_features(model)
        return len(self._features) + len(self._continuations) > knew

    async def _probe_features(self, model: BackendModel) -> None:
        if (
            self._probe_capabilities is None
            or model.id in self._features
            or self._feature_probes[model.id] >= PROBES_MAX
        ):
            return
        self._feature_probes[model.id] += 1
        try:
            self._features[model.id] = await self._probe_capabilities(model)
        except BackendError as error:
            _log.info("try_failed", model=model.id, why=str(error))

    async def _probe_continuation(self, model: BackendModel) -> None:
        if model.id in self._continuations or self._continuation_probes[model.id] >= PROBES_MAX:
            return
        self._continuation_probes[model.id] += 1
        try:
            self._continuations[model.id] = await probe_continuation(self._backend, model.id)
        except BackendError as error:
            _log.info("probe_failed", model=model.id, why=str(error))
            return
        _log.info("probed", model=model.id, ways=",".join(self._continuations[model.id].capabilities))
