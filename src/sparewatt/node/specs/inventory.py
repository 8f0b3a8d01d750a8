"""What the node has: models, measured speeds, and the model server's own load. The source of all reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BackendError, BackendModel, BackendTimeout
from sparewatt.node.backends.continuation_probe import ContinuationSupport
from sparewatt.node.backends.probed_capabilities import CapabilityProbe, ProbedCapabilities
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.measurement.chat_speed import faster_of, measure_chat_model
from sparewatt.node.measurement.embedding_speed import is_embedding_only, measure_embedding_model
from sparewatt.node.measurement.measurement_schedule import MeasurementSchedule, may_load
from sparewatt.node.measurement.speed_file import SpeedFile
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder, figures_of
from sparewatt.node.specs.token_price import price_of
from sparewatt.protocol.link.node_report import NodeSpecs, ServerMetrics, Speed, validated

_log = Logger("sparewatt.node")
REFRESH_S = 5.0
SLOW_REFRESHES_MAX = 2
KV_CAPACITY_BYTES_MAX = 1 << 50
"""What a report can say; a server that claims more must not cost the node its link."""


class Inventory:
    def __init__(
        self,
        settings: NodeSettings,
        backend: Backend,
        hardware: Hardware,
        measured: SpeedFile,
        *,
        clock: Clock,
        rng: Rng,
        tell: Callable[[str], None],
        probe_capabilities: CapabilityProbe | None = None,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._speeds = measured
        self._clock = clock
        self._rng = rng
        self._notify_owner = tell
        self._probed_capabilities = ProbedCapabilities(backend, probe_capabilities)
        self._specs_builder = SpecsBuilder(
            settings, hardware, speed_of=self._speed, probed_capabilities=self._probed_capabilities.of
        )
        self._backend_specs = BackendSpecs(backend.kind, 1, ())
        self.foreign_requests = 0
        self.kv_capacity_bytes: int | None = None
        self.kv_used: float | None = None
        self.server_figures: ServerMetrics | None = None
        self.trouble: str | None = None
        """Why the model server cannot be used, if so."""
        self.measuring: str | None = None
        """What is being measured right now, in words."""
        self.measurement_lock = asyncio.Lock()
        """Held by whoever measures: two at once would measure each other."""
        self.count_own_jobs: Callable[[], int] = lambda: 0
        self.on_backend_lost: Callable[[str], None] = lambda _: None
        self._specs_changed = asyncio.Event()
        self._load_changed = asyncio.Event()
        self.load_version = 0
        """How often there was something to report between heartbeats."""
        self._refresh_wanted = asyncio.Event()
        self._schedule = MeasurementSchedule()
        self._slow_refreshes = 0
        self._left_out: set[str] = set()
        self.specs = self._first_specs()

    @property
    def settings(self) -> NodeSettings:
        return self._settings

    @property
    def _models(self) -> list[BackendModel]:
        return list(self._backend_specs.models)

    async def wait_specs_changed(self) -> None:
        """Wait until the specs are other than they were."""
        self._specs_changed.clear()
        await self._specs_changed.wait()

    async def wait_load_changed(self, known: int) -> int:
        """Wait until there is more to report than `known` times, and tell how often. Several links may wait."""
        while self.load_version == known:
            await self._load_changed.wait()
        return self.load_version

    def note_load_changed(self) -> None:
        """Something about the load changed that is worth a report between heartbeats."""
        self.load_version += 1
        self._load_changed.set()
        self._load_changed = asyncio.Event()

    def refresh_soon(self) -> None:
        """Something failed: ask the server now instead of at the next round."""
        self._refresh_wanted.set()

    def set_prices(self, settings: NodeSettings) -> None:
        """Other prices, from now on. Raises InvalidAmount or StartupError, and then nothing has changed."""
        reporter = replace(self._specs_builder, settings=settings)
        price_of(settings, None)
        specs = _checked_specs(reporter, self._backend_specs)
        self._settings, self._specs_builder = settings, reporter
        self._set_specs(specs)

    def note_gpu_speed(self, speed: GpuSpeed) -> None:
        self._specs_builder = replace(self._specs_builder, gpu_speed=speed)
        self._publish()

    async def _refresh_load(self) -> None:
        """Count the requests on the server that did not come from here; jobs may start and end while it answers."""
        mine_before = self.count_own_jobs()
        load = await self._backend.load()
        mine = max(mine_before, self.count_own_jobs())
        foreign = max(0, load.running + load.queued - mine) if load else 0
        if foreign != self.foreign_requests:
            self.foreign_requests = foreign
            self.note_load_changed()
        self.kv_capacity_bytes = self._kv_capacity(load.context_tokens if load else None)
        self.kv_used = load.kv_used if load else None
        self.server_figures = figures_of(load) if load else None

    def _kv_capacity(self, context_tokens: int | None) -> int | None:
        """Memory for keys and values, where the server says how many tokens fit and has one model to put them in."""
        per_token = self._models[0].kv_bytes_per_token if len(self._models) == 1 else 0
        if context_tokens is None or per_token <= 0:
            return None
        return min(KV_CAPACITY_BYTES_MAX, context_tokens * per_token)

    async def run(self) -> None:
        """Keep looking; measure what is new."""
        while True:
            await self.refresh()
            self._refresh_wanted.clear()
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._refresh_wanted.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        try:
            models = [model for model in await self._backend.models() if self._can_be_reported(model)]
            self._backend_specs = BackendSpecs(self._backend.kind, await self._backend.slots(), models)
            await self._refresh_load()
            self.trouble = None
        except BackendError as error:
            if self._may_be_busy(error):
                return
            if self._models:
                self._notify_owner(f"the model server does not answer ({error})")
            self._backend_specs = replace(self._backend_specs, models=())
            self.trouble = str(error)
            self._probed_capabilities.forget()
            self.on_backend_lost(str(error))
        self._slow_refreshes = 0
        self._publish()
        for model in self._models:
            if await self._probed_capabilities.probe(model):
                self._publish()
            await self._measure_if_due(model)

    def continuation_of(self, model_id: str) -> ContinuationSupport:
        """How its server can go on with an answer that another node began."""
        return self._probed_capabilities.continuation_of(model_id)

    def _may_be_busy(self, error: BackendError) -> bool:
        """A server with jobs of ours may be slow to answer once; twice in a row, it hangs."""
        self._slow_refreshes += isinstance(error, BackendTimeout)
        return (
            isinstance(error, BackendTimeout)
            and self._slow_refreshes < SLOW_REFRESHES_MAX
            and self.count_own_jobs() > 0
        )

    async def _measure_if_due(self, model: BackendModel) -> None:
        key = self._key(model)
        is_measured = self._speeds.get(key) is not None
        is_idle = not self.foreign_requests and not self.count_own_jobs()
        is_wanted = model.state == "warm" or (
            not is_measured
            and is_idle
            and may_load(model, self._models, vram_bytes=self.specs.vram_bytes, is_measured=self._is_measured)
        )
        if is_wanted and self._schedule.is_due(
            key, is_measured=is_measured, is_idle=is_idle, now_s=self._clock.now_s()
        ):
            self._schedule.note_started(key, was_measured=is_measured, now_s=self._clock.now_s())
            await self._measure(model)

    async def _measure(self, model: BackendModel) -> None:
        """Measure, and keep the better: whatever else goes on meanwhile can only make a node look slower."""
        key = self._key(model)
        before = self._speeds.get(key)
        try:
            async with self.measurement_lock:
                speed = await self._measure_speed(model, is_first=before is None)
        except BackendError as error:
            _log.warning("measure_failed", model=model.id, why=str(error))
            return
        finally:
            self.measuring = None
        best = speed if before is None else faster_of(before, speed)
        if best == before:
            return
        self._speeds.put(key, best)
        self._notify_owner(f"measured {model.id}: {describe_speed(best)}")
        self._publish()

    async def _measure_speed(self, model: BackendModel, *, is_first: bool) -> Speed:
        """Raises BackendError."""

        def progress(stage: str) -> None:
            self.measuring = f"{model.id}: {stage}"
            if is_first:
                self._notify_owner(f"measuring {model.id}: {stage}")

        limit_tps = self._settings.speed_limit_tps
        if is_embedding_only(model.capabilities):
            progress("reads (1 of 1)")
            return await measure_embedding_model(
                self._backend, model.id, limit_tps=limit_tps, clock=self._clock, rng=self._rng
            )
        return await measure_chat_model(
            self._backend,
            model.id,
            limit_tps=limit_tps,
            clock=self._clock,
            rng=self._rng,
            at_once=self._backend_specs.slots,
            progress=progress,
        )

    def _key(self, model: BackendModel) -> str:
        """Another file under the same name, or another speed limit, is measured anew."""
        return f"{model.id}|{model.weights_bytes}|{self._settings.speed_limit_tps}"

    def _speed(self, model: BackendModel) -> Speed | None:
        return self._speeds.get(self._key(model))

    def _is_measured(self, model: BackendModel) -> bool:
        return self._speed(model) is not None

    def _publish(self) -> None:
        self._set_specs(self._specs_builder.build(self._backend_specs))

    def _set_specs(self, specs: NodeSpecs) -> None:
        if specs != self.specs:
            self.specs = specs
            self._specs_changed.set()

    def _first_specs(self) -> NodeSpecs:
        """What the owner set by hand is checked at the start. Raises InvalidAmount or StartupError."""
        price_of(self._settings, None)
        return _checked_specs(self._specs_builder, self._backend_specs)

    def _can_be_reported(self, model: BackendModel) -> bool:
        """A model that no gateway would take (its name has spaces, say) must not cost the others their link."""
        try:
            validated(self._specs_builder.model_report(model))
        except msgspec.ValidationError as error:
            if model.id not in self._left_out:
                self._left_out.add(model.id)
                _log.warning("model_left_out", model=model.id, why=str(error))
            return False
        return True


def _checked_specs(reporter: SpecsBuilder, server: BackendSpecs) -> NodeSpecs:
    try:
        return validated(reporter.build(server))
    except msgspec.ValidationError as error:
        raise StartupError(f"No gateway would take this node: {error}.") from None


def describe_speed(speed: Speed) -> str:
    alone = (
        f"first token {speed.ttft_s * 1000:.0f} ms, "
        f"reads {speed.prefill_tps:.0f} tokens/s, writes {speed.decode_tps:.0f} tokens/s"
    )
    if speed.batch is None or speed.batch_decode_tps is None:
        return alone
    return f"{alone}, {speed.batch_decode_tps:.0f} with {speed.batch} at once"
