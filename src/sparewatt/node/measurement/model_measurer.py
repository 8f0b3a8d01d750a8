"""Measures a node's models when they are due, at low priority, and keeps what it found.

A model first gets a quick measurement, so that it can serve; the rest follows while the node is idle. A job of the
network interrupts it at once, and a sample counts only if nobody else used the server or the machine meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.log import Logger
from sparewatt.node.backends.backend import BackendError, BackendModel
from sparewatt.node.hardware.machine_use import MachineUse
from sparewatt.node.measurement.measurement_schedule import MeasurementSchedule, SpeedObservations
from sparewatt.node.measurement.model_speed import SpeedMeter, is_embedding_only
from sparewatt.node.measurement.speed_fit import SpeedSamples
from sparewatt.node.measurement.speed_record import Run, SpeedFile, SpeedRecord, updated
from sparewatt.protocol.link.node_report import PriceBasis, Speed
from sparewatt.protocol.link.reference_load import REFERENCE_TOKENS

_log = Logger("sparewatt.node")
LOOKS, LOOK_AGAIN_S = 3, 0.2
"""A server's counters may still hold the job that just ended."""
QUIET_S = 5.0
"""So long after a quiet measurement the machine counts as quiet: a GPU's own reading would still show our work."""


class MachineBusy(Exception):
    """Somebody else uses the server or the machine: what was just timed does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a measurement has to know beside the model."""

    slots: int
    is_idle: bool
    expected: PriceBasis | None
    """What such hardware usually does, for a price without a quiet moment."""


@dataclass(slots=True, kw_only=True)
class ModelMeasurer:
    meter: SpeedMeter
    records: SpeedFile[SpeedRecord]
    key_of: Callable[[BackendModel], str]
    other_requests: Callable[[], Awaitable[int]]
    """Requests at the server now that are not of this measurement. Raises BackendError."""
    clock: Clock
    notify: Callable[[str], None]
    machine_use: MachineUse | None = None
    measuring: str | None = field(init=False, default=None)
    """What is being measured right now, in words."""
    lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    """Two measurements at once would disturb each other."""
    _schedule: MeasurementSchedule = field(init=False, default_factory=MeasurementSchedule)
    _observations: SpeedObservations = field(init=False, default_factory=SpeedObservations)
    _has_jobs: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _quiet_at_s: dict[str, float] = field(init=False, default_factory=dict)

    def record_of(self, model: BackendModel) -> SpeedRecord | None:
        return self.records.get(self.key_of(model))

    def speed_of(self, model: BackendModel) -> Speed | None:
        record = self.record_of(model)
        return record.speed if record is not None else None

    def price_basis_of(self, model: BackendModel) -> PriceBasis | None:
        record = self.record_of(model)
        return record.basis if record is not None else None

    def is_measured(self, model: BackendModel) -> bool:
        return self.record_of(model) is not None

    def note_own_jobs(self, count: int) -> None:
        """Jobs of the network go first."""
        if count:
            self._has_jobs.set()
        else:
            self._has_jobs.clear()

    def note_interlude(self) -> None:
        """The machine did something else for a while: what was measured before is checked again."""
        self._schedule.note_interlude(self.clock.now_s())

    def observe(self, model: BackendModel, what: str, *, seen_s: float, expected_s: float) -> None:
        """What a real job took beside what the curve says. Far off again and again, it is measured again."""
        key = self.key_of(model)
        self._observations.note(key, what, seen_s=seen_s, expected_s=expected_s)
        if self._observations.disagree(key):
            self._schedule.note_disagreement(key, now_s=self.clock.now_s())

    async def measure_first(self, model: BackendModel, circumstances: Circumstances) -> bool:
        """What a model needs to serve, even on a busy machine. Returns whether there are new figures."""
        key = self.key_of(model)
        if self.is_measured(model) or not self._begins(model, is_idle=circumstances.is_idle):
            return False
        is_quiet = circumstances.is_idle and not await self._machine_busy_with()
        try:
            async with self.lock:
                samples = await self._quick(model, circumstances.slots, is_first=True)
            if is_quiet:
                await self._check_quiet()
                is_quiet = not await self._machine_busy_with(after_work=True)
        except MachineBusy:
            is_quiet = False
        except BackendError as error:
            _log.warning("measure_failed", model=model.id, why=str(error))
            return False
        finally:
            self.measuring = None
        is_complete = is_quiet and is_embedding_only(model.capabilities)
        self._keep(model, Run(samples=samples, is_complete=is_complete, is_disturbed=not is_quiet), circumstances)
        if is_quiet:
            self._quiet_at_s[key] = self.clock.now_s()
            self._schedule.note_first(key)
        return True

    async def measure_rest(self, model: BackendModel, circumstances: Circumstances) -> bool:
        """The rest of the curve, or a check of it, which counts only as a whole. Returns whether figures are new."""
        before = self.record_of(model)
        if before is None or not self._begins(model, is_idle=circumstances.is_idle):
            return False
        if not self._was_just_quiet(model) and (why := await self._machine_busy_with()):
            _log.info("measure_postponed", model=model.id, why=why)
            return False
        is_continued = not before.is_disturbed and not before.is_complete
        start = before.runs[-1] if is_continued else None
        samples, is_complete = await self._rest(model, circumstances, start)
        if samples is None or (not is_complete and (before.is_complete or samples == start)):
            return False
        forgets = self._observations.disagree(self.key_of(model))
        run = Run(samples=samples, is_complete=is_complete, is_continued=is_continued, forgets=forgets)
        self._keep(model, run, circumstances)
        return self.record_of(model) != before

    async def _rest(
        self, model: BackendModel, circumstances: Circumstances, start: SpeedSamples | None
    ) -> tuple[SpeedSamples | None, bool]:
        """How far it came undisturbed, and whether that is all."""
        reached = start

        async def keep(run: SpeedSamples) -> None:
            nonlocal reached
            await self._check_quiet()
            reached = run

        async def work() -> None:
            if reached is None:
                await keep(await self._quick(model, circumstances.slots, is_first=False))
            if reached is not None and not is_embedding_only(model.capabilities):
                await self.meter.refine(
                    model.id,
                    reached,
                    at_once=circumstances.slots,
                    context_length=model.context_length,
                    keep=keep,
                    progress=lambda stage: self._note_stage(model, stage),
                )

        try:
            async with self.lock:
                is_complete = await self._until_a_job_comes(work())
            if is_complete and (why := await self._machine_busy_with(after_work=True)):
                _log.info("measure_discarded", model=model.id, why=why)
                return start, False
        except (MachineBusy, BackendError) as error:
            _log.info("measure_interrupted", model=model.id, why=str(error))
            is_complete = False
        finally:
            self.measuring = None
        return reached, is_complete

    def _begins(self, model: BackendModel, *, is_idle: bool) -> bool:
        key, now_s, record = self.key_of(model), self.clock.now_s(), self.record_of(model)
        is_measured, is_complete = record is not None, record is not None and not record.wants_more()
        if not self._schedule.is_due(
            key, is_measured=is_measured, is_complete=is_complete, is_idle=is_idle, now_s=now_s
        ):
            return False
        self._schedule.note_started(key, was_measured=is_measured, was_complete=is_complete, now_s=now_s)
        return True

    def _was_just_quiet(self, model: BackendModel) -> bool:
        quiet_at_s = self._quiet_at_s.get(self.key_of(model))
        return quiet_at_s is not None and self.clock.now_s() - quiet_at_s < QUIET_S

    async def _machine_busy_with(self, *, after_work: bool = False) -> str | None:
        return await self.machine_use.busy_with(after_work=after_work) if self.machine_use is not None else None

    async def _check_quiet(self) -> None:
        """Raises MachineBusy if the server has requests of others."""
        for look in range(LOOKS):
            if look:
                await sleep_until(self.clock, self.clock.now_s() + LOOK_AGAIN_S)
            if self._has_jobs.is_set():
                break
            if not await self.other_requests():
                return
        raise MachineBusy("the model server has other requests")

    async def _until_a_job_comes(self, work: Coroutine[None, None, None]) -> bool:
        """Whether the work was finished; a job of the network ends it. Raises what the work raises."""
        working = asyncio.ensure_future(work)
        job = asyncio.ensure_future(self._has_jobs.wait())
        try:
            await asyncio.wait((working, job), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return False
            working.result()
            return True
        finally:
            working.cancel()
            job.cancel()
            await asyncio.gather(working, job, return_exceptions=True)

    async def _quick(self, model: BackendModel, slots: int, *, is_first: bool) -> SpeedSamples:
        """Raises BackendError."""

        def progress(stage: str) -> None:
            self._note_stage(model, stage)
            if is_first:
                self.notify(f"measuring {model.id}: {stage}")

        if is_embedding_only(model.capabilities):
            progress("reads (1 of 1)")
            return await self.meter.embedding(model.id, context_length=model.context_length)
        return await self.meter.quick(model.id, at_once=slots, progress=progress)

    def _note_stage(self, model: BackendModel, stage: str) -> None:
        self.measuring = f"{model.id}: {stage}"

    def _keep(self, model: BackendModel, run: Run, circumstances: Circumstances) -> None:
        before, key = self.record_of(model), self.key_of(model)
        record = updated(
            before,
            run,
            slots=circumstances.slots,
            expected=circumstances.expected,
            now_unix_s=self.clock.unix_s(),
        )
        if record == before:
            return
        self.records.put(key, record)
        self._observations.forget(key)
        if before is None or record.speed != before.speed:
            self.notify(f"measured {model.id}: {describe_speed(record.speed)}")


def describe_speed(speed: Speed) -> str:
    reads = f"reads {REFERENCE_TOKENS:,} tokens in {_seconds(speed.prefill_s(REFERENCE_TOKENS))}"
    writes = f"writes {_rate(speed.decode_tps)} tokens/s"
    if speed.batch is None or speed.batch_decode_tps is None:
        return f"{reads}, {writes}"
    return f"{reads}, {writes}, {_rate(speed.batch_decode_tps)} with {speed.batch} at once"


def _seconds(value_s: float) -> str:
    return f"{value_s * 1000:.0f} ms" if value_s < 1 else f"{value_s:.1f} s"


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}"
