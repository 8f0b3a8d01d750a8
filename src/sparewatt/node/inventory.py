"""What the node has: models, measured speeds, and the model server's own load. The source of all reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Log
from sparewatt.core.rng import Rng
from sparewatt.node.abilities import Abilities, FindOut
from sparewatt.node.backends.continuing import Ways
from sparewatt.node.backends.model import Backend, BackendError, BackendModel, BackendSlow
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.hardware.model import Hardware
from sparewatt.node.measure import faster_of, measure
from sparewatt.node.measure_plan import MeasurePlan, may_load
from sparewatt.node.measure_reading import measure_reading, only_reads
from sparewatt.node.measured_file import MeasuredFile
from sparewatt.node.pricing import price_of
from sparewatt.node.reporting import Reporter, Server, figures_of
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.node import NodeSpecs, ServerFigures, Speed, checked

_log = Log("sparewatt.node")
LOOK_S = 5.0
SLOW_LOOKS_MAX = 2
KV_CAPACITY_BYTES_MAX = 1 << 50
"""What a report can say; a server that claims more must not cost the node its link."""


class Inventory:
    def __init__(
        self,
        settings: NodeSettings,
        backend: Backend,
        hardware: Hardware,
        measured: MeasuredFile,
        *,
        clock: Clock,
        rng: Rng,
        tell: Callable[[str], None],
        find_out: FindOut | None = None,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._measured = measured
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._abilities = Abilities(backend, find_out)
        self._reporter = Reporter(settings, hardware, speed_of=self._speed, can_also=self._abilities.of)
        self._server = Server(backend.kind, 1, ())
        self.foreign_requests = 0
        self.kv_capacity_bytes: int | None = None
        self.kv_used: float | None = None
        self.server_figures: ServerFigures | None = None
        self.trouble: str | None = None
        """Why the model server cannot be used, if so."""
        self.measuring: str | None = None
        """What is being measured right now, in words."""
        self.quiet = asyncio.Lock()
        """Held by whoever measures: two at once would measure each other."""
        self.count_mine: Callable[[], int] = lambda: 0
        self.on_lost: Callable[[str], None] = lambda _: None
        self._news = asyncio.Event()
        self._load_news = asyncio.Event()
        self.load_count = 0
        """How often there was something to report between heartbeats."""
        self._look = asyncio.Event()
        self._plan = MeasurePlan()
        self._slow_looks = 0
        self._left_out: set[str] = set()
        self.specs = self._first_specs()

    @property
    def settings(self) -> NodeSettings:
        return self._settings

    @property
    def _models(self) -> list[BackendModel]:
        return list(self._server.models)

    async def changed(self) -> None:
        """Wait until the specs are other than they were."""
        self._news.clear()
        await self._news.wait()

    async def load_changed(self, known: int) -> int:
        """Wait until there is more to report than `known` times, and tell how often. Several links may wait."""
        while self.load_count == known:
            await self._load_news.wait()
        return self.load_count

    def report_load(self) -> None:
        """Something about the load changed that is worth a report between heartbeats."""
        self.load_count += 1
        self._load_news.set()
        self._load_news = asyncio.Event()

    def look_again(self) -> None:
        """Something failed: ask the server now instead of at the next round."""
        self._look.set()

    def set_terms(self, settings: NodeSettings) -> None:
        """Other prices, from now on. Raises InvalidAmount or StartupError, and then nothing has changed."""
        reporter = replace(self._reporter, settings=settings)
        price_of(settings, None)
        specs = _checked_specs(reporter, self._server)
        self._settings, self._reporter = settings, reporter
        self._put(specs)

    def note_gpu_speed(self, speed: GpuSpeed) -> None:
        self._reporter = replace(self._reporter, gpu_speed=speed)
        self._publish()

    async def _refresh_load(self) -> None:
        """Count the requests on the server that did not come from here; jobs may start and end while it answers."""
        mine_before = self.count_mine()
        load = await self._backend.load()
        mine = max(mine_before, self.count_mine())
        foreign = max(0, load.running + load.queued - mine) if load else 0
        if foreign != self.foreign_requests:
            self.foreign_requests = foreign
            self.report_load()
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
            self._look.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        try:
            models = [model for model in await self._backend.models() if self._can_be_reported(model)]
            self._server = Server(self._backend.kind, await self._backend.slots(), models)
            await self._refresh_load()
            self.trouble = None
        except BackendError as error:
            if self._may_be_busy(error):
                return
            if self._models:
                self._tell(f"the model server does not answer ({error})")
            self._server = replace(self._server, models=())
            self.trouble = str(error)
            self._abilities.forget()
            self.on_lost(str(error))
        self._slow_looks = 0
        self._publish()
        for model in self._models:
            if await self._abilities.look_at(model):
                self._publish()
            await self._measure_if_due(model)

    def ways_of(self, model_id: str) -> Ways:
        """How its server can go on with an answer that another node began."""
        return self._abilities.ways_of(model_id)

    def _may_be_busy(self, error: BackendError) -> bool:
        """A server with jobs of ours may be slow to answer once; twice in a row, it hangs."""
        self._slow_looks += isinstance(error, BackendSlow)
        return isinstance(error, BackendSlow) and self._slow_looks < SLOW_LOOKS_MAX and self.count_mine() > 0

    async def _measure_if_due(self, model: BackendModel) -> None:
        key = self._key(model)
        is_measured = self._measured.get(key) is not None
        is_idle = not self.foreign_requests and not self.count_mine()
        is_wanted = model.state == "warm" or (
            not is_measured
            and is_idle
            and may_load(model, self._models, vram_bytes=self.specs.vram_bytes, is_measured=self._is_measured)
        )
        if is_wanted and self._plan.is_due(key, is_measured=is_measured, is_idle=is_idle, now_s=self._clock.now_s()):
            self._plan.note(key, was_measured=is_measured, now_s=self._clock.now_s())
            await self._measure(model)

    async def _measure(self, model: BackendModel) -> None:
        """Measure, and keep the better: whatever else goes on meanwhile can only make a node look slower."""
        key = self._key(model)
        before = self._measured.get(key)
        try:
            async with self.quiet:
                speed = await self._time(model, is_first=before is None)
        except BackendError as error:
            _log.warning("measure_failed", model=model.id, why=str(error))
            return
        finally:
            self.measuring = None
        best = speed if before is None else faster_of(before, speed)
        if best == before:
            return
        self._measured.put(key, best)
        self._tell(f"measured {model.id}: {in_words(best)}")
        self._publish()

    async def _time(self, model: BackendModel, *, is_first: bool) -> Speed:
        """Raises BackendError."""

        def progress(stage: str) -> None:
            self.measuring = f"{model.id}: {stage}"
            if is_first:
                self._tell(f"measuring {model.id}: {stage}")

        limit_tps = self._settings.speed_limit_tps
        if only_reads(model.capabilities):
            progress("reads (1 of 1)")
            return await measure_reading(self._backend, model.id, limit_tps=limit_tps, clock=self._clock, rng=self._rng)
        return await measure(
            self._backend,
            model.id,
            limit_tps=limit_tps,
            clock=self._clock,
            rng=self._rng,
            at_once=self._server.slots,
            progress=progress,
        )

    def _key(self, model: BackendModel) -> str:
        """Another file under the same name, or another speed limit, is measured anew."""
        return f"{model.id}|{model.weights_bytes}|{self._settings.speed_limit_tps}"

    def _speed(self, model: BackendModel) -> Speed | None:
        return self._measured.get(self._key(model))

    def _is_measured(self, model: BackendModel) -> bool:
        return self._speed(model) is not None

    def _publish(self) -> None:
        self._put(self._reporter.specs(self._server))

    def _put(self, specs: NodeSpecs) -> None:
        if specs != self.specs:
            self.specs = specs
            self._news.set()

    def _first_specs(self) -> NodeSpecs:
        """What the owner set by hand is checked at the start. Raises InvalidAmount or StartupError."""
        price_of(self._settings, None)
        return _checked_specs(self._reporter, self._server)

    def _can_be_reported(self, model: BackendModel) -> bool:
        """A model that no gateway would take (its name has spaces, say) must not cost the others their link."""
        try:
            checked(self._reporter.model(model))
        except msgspec.ValidationError as error:
            if model.id not in self._left_out:
                self._left_out.add(model.id)
                _log.warning("model_left_out", model=model.id, why=str(error))
            return False
        return True


def _checked_specs(reporter: Reporter, server: Server) -> NodeSpecs:
    try:
        return checked(reporter.specs(server))
    except msgspec.ValidationError as error:
        raise StartupError(f"No gateway would take this node: {error}.") from None


def in_words(speed: Speed) -> str:
    alone = (
        f"first token {speed.ttft_s * 1000:.0f} ms, "
        f"reads {speed.prefill_tps:.0f} tokens/s, writes {speed.decode_tps:.0f} tokens/s"
    )
    if speed.batch is None or speed.batch_decode_tps is None:
        return alone
    return f"{alone}, {speed.batch_decode_tps:.0f} with {speed.batch} at once"
