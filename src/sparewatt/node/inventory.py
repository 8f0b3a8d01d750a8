"""What the node has: hardware, models, measured speeds, and the model server's own load. The source of all reports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.core.log import Log
from sparewatt.core.money import parse_usd
from sparewatt.core.rng import Rng
from sparewatt.node.backends.model import BackendError, BackendModel, BackendSlow
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.hardware import Hardware
from sparewatt.node.measure import MeasuredFile, faster_of, measure
from sparewatt.node.measure_plan import MeasurePlan
from sparewatt.node.measure_reading import measure_reading, only_reads
from sparewatt.node.pricing import price_of
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.node import TFLOPS_MAX, ModelReport, NodeSpecs, Speed, checked

_log = Log("sparewatt.node")
LOOK_S = 5.0
SLOW_LOOKS_MAX = 2
KV_CAPACITY_BYTES_MAX = 1 << 50
"""What a report can say; a server that claims more must not cost the node its link."""


class Inventory:
    def __init__(
        self,
        settings: NodeSettings,
        backend: OpenAIBackend,
        hardware: Hardware,
        measured: MeasuredFile,
        *,
        clock: Clock,
        rng: Rng,
        tell: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._hardware = hardware
        self._measured = measured
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._models: list[BackendModel] = []
        self._slots = 1
        self.foreign_requests = 0
        self.kv_capacity_bytes: int | None = None
        self.count_mine: Callable[[], int] = lambda: 0
        self.on_lost: Callable[[str], None] = lambda _: None
        self._news = asyncio.Event()
        self._load_news = asyncio.Event()
        self._look = asyncio.Event()
        self._plan = MeasurePlan()
        self._slow_looks = 0
        self._left_out: set[str] = set()
        self.specs = self._first_specs()

    async def changed(self) -> None:
        """Wait until the specs are other than they were."""
        self._news.clear()
        await self._news.wait()

    async def load_changed(self) -> None:
        """Wait until there is other work on the server than there was."""
        await self._load_news.wait()
        self._load_news.clear()

    def look_again(self) -> None:
        """Something failed: ask the server now instead of at the next round."""
        self._look.set()

    async def _refresh_load(self) -> None:
        """Count the requests on the server that did not come from here; jobs may start and end while it answers."""
        mine_before = self.count_mine()
        load = await self._backend.load()
        mine = max(mine_before, self.count_mine())
        foreign = max(0, load.running - mine) if load else 0
        if foreign != self.foreign_requests:
            self.foreign_requests = foreign
            self._load_news.set()
        self.kv_capacity_bytes = self._kv_capacity(load.context_tokens if load else None)

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
            self._look.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        try:
            self._models = [model for model in await self._backend.models() if self._can_be_reported(model)]
            self._slots = await self._backend.slots()
            await self._refresh_load()
        except BackendError as error:
            if self._may_be_busy(error):
                return
            if self._models:
                self._tell(f"the model server does not answer ({error})")
            self._models = []
            self.on_lost(str(error))
        self._slow_looks = 0
        self._publish()
        for model in self._models:
            await self._measure_if_due(model)

    def _may_be_busy(self, error: BackendError) -> bool:
        """A server with jobs of ours may be slow to answer once; twice in a row, it hangs."""
        self._slow_looks += isinstance(error, BackendSlow)
        return isinstance(error, BackendSlow) and self._slow_looks < SLOW_LOOKS_MAX and self.count_mine() > 0

    async def _measure_if_due(self, model: BackendModel) -> None:
        key = self._key(model)
        is_measured = self._measured.get(key) is not None
        is_idle = not self.foreign_requests and not self.count_mine()
        if model.state == "warm" and self._plan.is_due(
            key, is_measured=is_measured, is_idle=is_idle, now_s=self._clock.now_s()
        ):
            self._plan.note(key, was_measured=is_measured, now_s=self._clock.now_s())
            await self._measure(model)

    async def _measure(self, model: BackendModel) -> None:
        """Measure, and keep the better: whatever else goes on meanwhile can only make a node look slower."""
        key = self._key(model)
        before = self._measured.get(key)
        if before is None:
            self._tell(f"measuring {model.id} …")
        try:
            timed = measure_reading if only_reads(model.capabilities) else measure
            speed = await timed(
                self._backend, model.id, limit_tps=self._settings.speed_limit_tps, clock=self._clock, rng=self._rng
            )
        except BackendError as error:
            _log.warning("measure_failed", model=model.id, why=str(error))
            return
        best = speed if before is None else faster_of(before, speed)
        if best == before:
            return
        self._measured.put(key, best)
        self._tell(
            f"measured {model.id}: first token {best.ttft_s * 1000:.0f} ms, "
            f"reads {best.prefill_tps:.0f} tokens/s, writes {best.decode_tps:.0f} tokens/s"
        )
        self._publish()

    def _key(self, model: BackendModel) -> str:
        """Another file under the same name, or another speed limit, is measured anew."""
        return f"{model.id}|{model.weights_bytes}|{self._settings.speed_limit_tps}"

    def _publish(self) -> None:
        specs = self._make_specs()
        if specs != self.specs:
            self.specs = specs
            self._news.set()

    def _first_specs(self) -> NodeSpecs:
        """What the owner set by hand is checked at the start. Raises InvalidAmount or StartupError."""
        price_of(self._settings, None)
        try:
            return checked(self._make_specs())
        except msgspec.ValidationError as error:
            raise StartupError(f"No gateway would take this node: {error}.") from None

    def _can_be_reported(self, model: BackendModel) -> bool:
        """A model that no gateway would take (its name has spaces, say) must not cost the others their link."""
        try:
            checked(self._report(model))
        except msgspec.ValidationError as error:
            if model.id not in self._left_out:
                self._left_out.add(model.id)
                _log.warning("model_left_out", model=model.id, why=str(error))
            return False
        return True

    def _make_specs(self) -> NodeSpecs:
        return NodeSpecs(
            name=self._settings.name or (socket.gethostname()[:NAME_CHARS_MAX] or "node"),
            region=self._settings.region,
            gpu=self._hardware.gpu,
            gpu_count=self._hardware.gpu_count,
            vram_bytes=self._hardware.vram_bytes,
            tflops=self._hardware.tflops,
            hourly_price_nano=parse_usd(self._settings.hourly_usd),
            slots=self._slots,
            backend=self._backend.kind,
            agent_version=__version__,
            models=tuple(self._report(model) for model in self._models),
            tflops_measured=self._tflops_measured(),
        )

    def _report(self, model: BackendModel) -> ModelReport:
        measured = self._measured.get(self._key(model))
        price = price_of(self._settings, measured)
        return ModelReport(
            id=model.id,
            state=model.state,
            weights_bytes=model.weights_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            prompt_price_nano=price.prompt,
            completion_price_nano=price.completion,
            context_length=model.context_length,
            quantization=model.quantization,
            claimed=self._claimed(model),
            measured=measured,
            prefix_cache_tokens=model.prefix_cache_tokens,
            capabilities=model.capabilities,
        )

    def _claimed(self, model: BackendModel) -> Speed | None:
        """What the claimed TFLOPS would mean for reading: two operations per parameter and token."""
        if not model.parameters or not self._hardware.tflops:
            return None
        prefill = self._hardware.tflops * 1e12 / (2 * model.parameters)
        return Speed(prefill_tps=min(1e7, prefill), decode_tps=min(1e7, prefill))

    def _tflops_measured(self) -> float | None:
        """What reading prompts really used, over the models measured."""
        used = [
            2 * model.parameters * speed.prefill_tps / 1e12
            for model in self._models
            if model.parameters and (speed := self._measured.get(self._key(model)))
        ]
        return min(TFLOPS_MAX, round(max(used), 6)) if used else None
