"""The node's live picture of its model server: models, measured speeds, load. The source of all reports.

It polls the server, probes and measures what is new, and wakes the links that report a change. It sends nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BackendError, BackendLoad, BackendModel, BackendTimeout
from sparewatt.node.backends.capability_probe import CapabilityProbe, ProbedCapabilities
from sparewatt.node.facts.server_facts import ServerAnswers, ServerFacts, kv_capacity_bytes, resolve_facts
from sparewatt.node.facts.slot_learner import SlotLearner
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed, bench_in_subprocess
from sparewatt.node.hardware.machine_use import MachineUse
from sparewatt.node.measurement.expected_speed import expected_basis
from sparewatt.node.measurement.measurement_schedule import may_load
from sparewatt.node.measurement.model_measurer import Circumstances, ModelMeasurer
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.node.measurement.speed_record import SpeedFile, SpeedRecord
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder, server_metrics, token_prices
from sparewatt.protocol.link.lease_offer import LeaseOffer
from sparewatt.protocol.link.node_report import NodeSpecs, ServerMetrics, validated

_log = Logger("sparewatt.node")
REFRESH_S = 5.0
SLOW_REFRESHES_MAX = 2
KV_CAPACITY_BYTES_MAX = 1 << 50
"""The bound of a report; a server that claims more must not cost the node its link."""


class Inventory:
    def __init__(
        self,
        settings: NodeSettings,
        backend: Backend,
        hardware: Hardware,
        *,
        clock: Clock,
        rng: Rng,
        notify: Callable[[str], None],
        probe_capabilities: CapabilityProbe | None = None,
        machine_use: MachineUse | None = None,
        lease_offer: Callable[[NodeSettings], LeaseOffer] | None = None,
    ) -> None:
        """`notify` shows one line to the owner. Raises InvalidAmount or StartupError for settings of no use."""
        self._backend = backend
        self._clock = clock
        self._notify = notify
        self._measurer = ModelMeasurer(
            meter=SpeedMeter(backend=backend, clock=clock, rng=rng, limit_tps=settings.speed_limit_tps),
            records=SpeedFile(settings.data_dir / "measured.json", SpeedRecord),
            key_of=self._key,
            other_requests=self._other_requests,
            clock=clock,
            notify=notify,
            machine_use=machine_use,
        )
        self._gpu_speeds = SpeedFile(settings.data_dir / "gpu.json", GpuSpeed)
        self.probed = ProbedCapabilities(backend, probe_capabilities)
        self._specs_builder = SpecsBuilder(
            settings,
            hardware,
            speed_of=self._measurer.speed_of,
            price_basis_of=self._measurer.price_basis_of,
            probed_capabilities=self.probed.of,
            lease_offer=lease_offer,
        )
        self._backend_specs = BackendSpecs(backend.kind, 1, ())
        self._owner_facts = settings.owner_facts()
        self._slot_learner = SlotLearner()
        self.facts: ServerFacts | None = None
        """Of the model server, each figure with its source; None before its first answer."""
        self.specs = _checked_specs(self._specs_builder, self._backend_specs)
        self._own_jobs = 0
        self._is_resting = False
        self.foreign_requests = 0
        self.kv_capacity_bytes: int | None = None
        self.kv_used: float | None = None
        self.server_metrics: ServerMetrics | None = None
        self.trouble: str | None = None
        """Why the model server cannot be used, if so."""
        self.load_version = 0
        """Counts the changes that are worth a report between heartbeats."""
        self._load_changed = asyncio.Event()
        self._specs_changed = asyncio.Event()
        self._refresh_wanted = asyncio.Event()
        self._slow_refreshes = 0
        self._left_out: set[str] = set()

    @property
    def settings(self) -> NodeSettings:
        return self._specs_builder.settings

    @property
    def measuring(self) -> str | None:
        """What is being measured right now, in words."""
        return self._measurer.measuring

    @property
    def own_jobs(self) -> int:
        """Jobs of this node on the server; the job runner keeps it up to date."""
        return self._own_jobs

    @own_jobs.setter
    def own_jobs(self, count: int) -> None:
        self._own_jobs = count
        self._measurer.note_own_jobs(count + self._is_resting)

    def rest(self) -> None:
        """Measure and probe nothing: what the model server works with is in other hands."""
        self._is_resting = True
        self._measurer.note_own_jobs(1)

    def wake(self) -> None:
        """Measure again what was measured before, and the server first of all."""
        self._is_resting = False
        self._measurer.note_own_jobs(self._own_jobs)
        self._measurer.note_interlude()
        self.refresh_soon()

    def observe(self, model: str, what: str, *, seen_s: float, expected_s: float) -> None:
        """What a job took beside what the model's curve says."""
        found = next((each for each in self._models if each.id == model), None)
        if found is not None:
            self._measurer.observe(found, what, seen_s=seen_s, expected_s=expected_s)

    @property
    def _models(self) -> Sequence[BackendModel]:
        return self._backend_specs.models

    async def wait_specs_changed(self) -> None:
        self._specs_changed.clear()
        await self._specs_changed.wait()

    async def wait_load_changed(self, known: int) -> int:
        """Wait until `load_version` is not `known`, and return it. Several links may wait."""
        while self.load_version == known:
            await self._load_changed.wait()
        return self.load_version

    def note_load_changed(self) -> None:
        self.load_version += 1
        self._load_changed.set()
        self._load_changed = asyncio.Event()

    def refresh_soon(self) -> None:
        """A job failed, or the lease offer is another: poll the server and report now instead of after `REFRESH_S`."""
        self._refresh_wanted.set()

    def set_terms(self, settings: NodeSettings) -> None:
        """Raises InvalidAmount or StartupError, and then nothing has changed."""
        builder = replace(self._specs_builder, settings=settings)
        specs = _checked_specs(builder, self._backend_specs)
        self._specs_builder = builder
        self._set_specs(specs)

    # polling the server

    async def run(self, *, on_backend_lost: Callable[[str], None]) -> None:
        """Poll, probe and measure for ever. `on_backend_lost` gets the reason while the server cannot be used."""
        while True:
            await self.refresh()
            if self.trouble is not None:
                on_backend_lost(self.trouble)
            self._refresh_wanted.clear()
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._refresh_wanted.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        try:
            models = [model for model in await self._backend.models() if self._can_be_reported(model)]
            slots = await self._backend.slots()
            self._update_facts(ServerAnswers(self._backend.kind, models, slots, await self._refresh_load()))
            self.trouble = None
        except BackendError as error:
            if self._may_be_busy(error):
                return
            if self._models:
                self._notify(f"the model server does not answer ({error})")
            self._backend_specs = replace(self._backend_specs, models=())
            self.trouble = str(error)
            self.probed.forget()
            self._slot_learner.forget()
        self._slow_refreshes = 0
        self._publish()
        if self._is_resting:
            return
        for model in self._models:
            if await self.probed.probe(model):
                self._publish()
        await self._measure_due()

    def _update_facts(self, answers: ServerAnswers) -> None:
        self._slot_learner.observe(answers.load, assumed=self._backend_specs.slots)
        gpu_speed = self._specs_builder.gpu_speed
        self.facts, models = resolve_facts(
            answers,
            owner=self._owner_facts,
            hardware=self._specs_builder.hardware,
            learned_slots=self._slot_learner.learned,
            copy_bytes_s=gpu_speed.copy_bytes_s if gpu_speed else None,
        )
        bandwidth = self.facts.bandwidth_bytes_s
        self._backend_specs = BackendSpecs(
            answers.kind, self.facts.slots.value, models, bandwidth.value if bandwidth else None
        )
        self.kv_capacity_bytes = kv_capacity_bytes(self.facts, bytes_max=KV_CAPACITY_BYTES_MAX)

    async def _refresh_load(self) -> BackendLoad | None:
        """Foreign requests are those beyond our own jobs, of which some may start or end while the server answers."""
        jobs_before = self.own_jobs
        load = await self._backend.load()
        own_jobs = max(jobs_before, self.own_jobs)
        foreign = max(0, load.running + load.queued - own_jobs) if load else 0
        if foreign != self.foreign_requests:
            self.foreign_requests = foreign
            self.note_load_changed()
        self.kv_used = load.kv_used if load else None
        self.server_metrics = server_metrics(load) if load else None
        return load

    def _may_be_busy(self, error: BackendError) -> bool:
        """A server that runs our jobs may time out once; if it does so again, it hangs."""
        if not isinstance(error, BackendTimeout):
            return False
        self._slow_refreshes += 1
        return self._slow_refreshes < SLOW_REFRESHES_MAX and self.own_jobs > 0

    def _can_be_reported(self, model: BackendModel) -> bool:
        """A gateway would end the link for an invalid report, as of a model whose name has spaces."""
        try:
            validated(self._specs_builder.model_report(model))
        except msgspec.ValidationError as error:
            if model.id not in self._left_out:
                self._left_out.add(model.id)
                _log.warning("model_left_out", model=model.id, why=str(error))
            return False
        return True

    def _publish(self) -> None:
        self._set_specs(self._specs_builder.build(self._backend_specs))

    def _set_specs(self, specs: NodeSpecs) -> None:
        if specs != self.specs:
            self.specs = specs
            self._specs_changed.set()

    # measuring

    async def measure_gpu(self, *, bench: Callable[[], Awaitable[GpuSpeed]] = bench_in_subprocess) -> None:
        """Measure the first GPU itself, once for each card and driver."""
        gpus = self.specs.gpus
        if not gpus or not self.settings.bench_gpu:
            return
        key, name = f"{gpus[0].model}|{gpus[0].driver}", gpus[0].model
        speed = self._gpu_speeds.get(key)
        if speed is None:
            self._notify(f"measuring {name} …")
            async with self._measurer.lock:
                speed = await bench()
            if speed.copy_bytes_s is None or speed.fp16_tflops is None:
                self._notify(f"{name} itself is not measured: {speed.why_not}")
                return
            self._notify(
                f"measured {name}: copies {speed.copy_bytes_s / 1e12:.2f} TB/s, {speed.fp16_tflops:.0f} TFLOP/s"
            )
            self._gpu_speeds.put(key, speed)
        self._specs_builder = replace(self._specs_builder, gpu_speed=speed)
        self._publish()

    async def _measure_due(self) -> None:
        """First what new models need to serve, then the rest of all curves."""
        for measure in (self._measurer.measure_first, self._measurer.measure_rest):
            for model in self._models:
                if self._may_measure(model) and await measure(model, self._circumstances(model)):
                    self._publish()

    def _may_measure(self, model: BackendModel) -> bool:
        if model.state == "warm":
            return True
        is_measured = self._measurer.is_measured
        return (
            not is_measured(model)
            and self._is_idle
            and may_load(model, self._models, vram_bytes=self.specs.vram_bytes, is_measured=is_measured)
        )

    @property
    def _is_idle(self) -> bool:
        return not self.foreign_requests and not self.own_jobs

    def _circumstances(self, model: BackendModel) -> Circumstances:
        builder, slots = self._specs_builder, self._backend_specs.slots
        copy_bytes_s = builder.gpu_speed.copy_bytes_s if builder.gpu_speed is not None else None
        limit_tps = self.settings.speed_limit_tps
        expected = expected_basis(model, builder.hardware, slots=slots, copy_bytes_s=copy_bytes_s, limit_tps=limit_tps)
        return Circumstances(slots=slots, is_idle=self._is_idle, expected=expected)

    async def _other_requests(self) -> int:
        load = await self._backend.load()
        return max(0, load.running + load.queued - self.own_jobs) if load else 0

    def _key(self, model: BackendModel) -> str:
        """Another file under the same name, or another speed limit, is measured again."""
        return f"{model.id}|{model.weights_bytes}|{self.settings.speed_limit_tps}"


def _checked_specs(builder: SpecsBuilder, backend: BackendSpecs) -> NodeSpecs:
    """Raises InvalidAmount or StartupError for what the owner set by hand."""
    token_prices(builder.settings, None)
    try:
        return validated(builder.build(backend))
    except msgspec.ValidationError as error:
        raise StartupError(f"No gateway would take this node: {error}.") from None
