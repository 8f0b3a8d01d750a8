"""How a simulated machine really behaves. A gateway sees only what the machine reports.

Prompts are read in the order of arrival, in chunks: a long prompt takes several, short ones share one, and a first
token comes when its chunk ends. Decoding is batched, one token for each running job per step; while a chunk is read,
the running jobs get one token (`physics`). All running jobs advance at the same pace, so one step counter serves them
all: a job ends when the counter reaches its last step.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from sparewatt.sim.fleet.physics import UNDISTURBED, IterationPace, Prefill, shared_pace
from sparewatt.sim.fleet.prefix_cache import PrefixCache
from sparewatt.sim.scenario import CONTEXT_GB, GB, SimModel, Site
from sparewatt.sim.traffic import SimJob

NEVER = float("inf")


class SimModelState(Enum):
    ON_DISK = "on_disk"
    LOADING = "loading"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class MachineCallbacks:
    first_token: Callable[[SimJob, float], None]
    finished: Callable[[SimJob, float], None]
    changed_models: Callable[[int], None]


@dataclass(slots=True)
class SimJobTotals:
    """Running sums over the jobs on a machine, of one gateway or of all; reports are made from these."""

    jobs: int = 0
    unread_s: float = 0.0
    kv_read_bytes: float = 0.0
    models: Counter[int] = field(default_factory=Counter)

    def clear(self) -> None:
        self.jobs, self.unread_s, self.kv_read_bytes = 0, 0.0, 0.0
        self.models.clear()

    def add(self, job: SimJob, prefill_s: float) -> None:
        self.jobs += 1
        self.unread_s += prefill_s
        self.kv_read_bytes += job.kv_read_bytes
        self.models[job.model.number] += 1

    def remove(self, job: SimJob, prefill_s: float) -> None:
        self.jobs -= 1
        if not self.jobs:  # exactly zero again, without rounding errors
            self.clear()
            return
        if not job.is_read:
            self.unread_s -= prefill_s
        self.kv_read_bytes -= job.kv_read_bytes
        _decrement(self.models, job.model.number)


def _decrement(counts: Counter[int], number: int) -> None:
    """A count of zero is removed: the keys are the models in use."""
    counts[number] -= 1
    if not counts[number]:
        del counts[number]


@dataclass(slots=True, eq=False)
class ReadingPrompt:
    """A prompt that is being read."""

    job: SimJob
    curve: Prefill
    cached: int
    done: int = field(init=False)
    """Tokens that are read or were cached."""
    in_chunk: int = 0
    """Tokens of it in the current chunk."""

    def __post_init__(self) -> None:
        self.done = self.cached

    @property
    def left(self) -> int:
        return self.job.prompt_tokens - self.done

    def take(self, tokens: int) -> float:
        """Put some tokens into the next chunk; returns the seconds that they add to it."""
        self.in_chunk = min(tokens, self.left)
        fixed_s = self.curve.fixed_s if self.done == self.cached else 0.0
        return fixed_s + self.curve.piece_s(self.done, self.in_chunk)

    def copy(self) -> ReadingPrompt:
        copied = ReadingPrompt(self.job, self.curve, self.cached)
        copied.done, copied.in_chunk = self.done, self.in_chunk
        return copied


class Chunk:
    """One iteration's worth of prompts."""

    __slots__ = ("left_s", "seconds", "tokens_left")

    def __init__(self, budget: int) -> None:
        self.tokens_left = budget
        self.seconds = self.left_s = 0.0

    def add(self, prompt: ReadingPrompt) -> None:
        self.seconds += prompt.take(self.tokens_left)
        self.tokens_left -= prompt.in_chunk
        self.seconds = max(self.seconds, prompt.curve.floor_s)
        self.left_s = self.seconds

    def copy(self) -> Chunk:
        copied = Chunk(self.tokens_left)
        copied.seconds, copied.left_s = self.seconds, self.left_s
        return copied


class SimMachine:
    def __init__(
        self, site: Site, models: tuple[SimModel, ...], callbacks: MachineCallbacks, *, gateways: int = 1
    ) -> None:
        self.site = site
        self._models = models
        self._callbacks = callbacks
        self._family, self._bandwidth = site.family, site.bandwidth
        self._prefills = {model.number: site.prefill(model) for model in models}
        self.alive = True
        self.states = {model.number: self._initial_state(model.number) for model in models if site.fits(model)}
        self._last_used = dict.fromkeys(self.states, 0.0)
        self.gateway_totals = [SimJobTotals() for _ in range(gateways)]
        self.totals = SimJobTotals()
        self.cache = PrefixCache()
        self._now_s = 0.0
        self._steps = 0.0
        self.busy_prefill_s = 0.0
        self._clear_work()
        self._update_capacity()

    def _initial_state(self, model: int) -> SimModelState:
        return SimModelState.WARM if model in self.site.warm else SimModelState.ON_DISK

    def _clear_work(self) -> None:
        self._waiting: deque[SimJob] = deque()
        self._waiting_s = self._waiting_kv = 0.0
        self._waiting_models: Counter[int] = Counter()
        self._waiting_for_model: dict[int, list[SimJob]] = {}
        self._loading: tuple[int, float] | None = None
        self._reading: list[ReadingPrompt] = []
        self._chunk: Chunk | None = None
        self._running: list[tuple[float, int, SimJob]] = []
        self.jobs_by_model: Counter[int] = Counter()
        """Only jobs in prefill or decoding: their models' weights are read in every step."""
        self.active_bytes = self.kv_used = self.kv_read = 0.0
        for totals in (*self.gateway_totals, self.totals):
            totals.clear()

    def _update_capacity(self) -> None:
        loaded = (number for number, state in self.states.items() if state is not SimModelState.ON_DISK)
        self.kv_capacity = self.site.usable_bytes - sum(self._models[number].weights_bytes for number in loaded)

    def _trim_cache(self) -> None:
        self.cache.trim(self.kv_capacity - self.kv_used + self.site.prefix_ram_bytes)

    # current state

    @property
    def jobs(self) -> int:
        return self.totals.jobs

    @property
    def running(self) -> int:
        return len(self._running)

    def prefill_s(self, job: SimJob) -> float:
        return self._prefills[job.model.number].seconds(job.prompt_tokens, job.cached_tokens)

    def backlog_s(self) -> float:
        """Seconds of prefill ahead of a new prompt, at full speed."""
        chunk_s = self._chunk.left_s if self._chunk is not None else 0.0
        return (
            self._waiting_s
            + chunk_s
            + sum(
                prompt.curve.piece_s(prompt.done + prompt.in_chunk, prompt.left - prompt.in_chunk)
                for prompt in self._reading
            )
        )

    def step_s(self) -> float:
        reads = (self.active_bytes + self.kv_read) / self._bandwidth
        return reads + self._family.step_fixed_s + self._family.step_per_job_s * len(self._running)

    def pace(self) -> IterationPace:
        """How fast prefill and decoding go now, as shares of their speed alone."""
        if self._chunk is None or not self._running:
            return UNDISTURBED
        base_s = self.active_bytes / self._bandwidth + self._family.step_fixed_s
        return shared_pace(self._chunk.seconds, self.step_s(), base_s * self._family.hidden_share)

    def main_model(self) -> SimModel:
        """The first that is loaded; else the first that fits."""
        loaded = (number for number, state in self.states.items() if state is not SimModelState.ON_DISK)
        return self._models[next(loaded, next(iter(self.states), 0))]

    # for the oracle only

    def unread_s(self) -> float:
        """All prefill that is left, also of jobs that wait for their model."""
        return self.backlog_s() + sum(self.prefill_s(job) for job in self._jobs_without_model())

    def queued_kv(self) -> float:
        return self._waiting_kv + sum(job.kv_bytes for job in self._jobs_without_model())

    def _jobs_without_model(self) -> Iterator[SimJob]:
        return chain.from_iterable(self._waiting_for_model.values())

    def ready_s(self, number: int, now_s: float) -> float:
        """When the model will be loaded, if it is being loaded."""
        return self._loading[1] if self._loading is not None and self._loading[0] == number else now_s

    def true_kv_wait_s(self, job: SimJob, now_s: float, *, in_flight_kv: float) -> float:
        """Until enough running jobs have ended, by their true lengths.

        If even that frees too little, the rest is estimated in rounds of a fully used memory.
        """
        self.advance(now_s)
        need = job.kv_bytes + in_flight_kv + self.queued_kv() - (self.kv_capacity - self.kv_used)
        step_s, wait_s = self.step_s() / self.pace().decode, 0.0
        for last_step, _, running in sorted(self._running, key=lambda entry: entry[0]):
            if need <= 0:
                return wait_s
            need -= running.kv_bytes
            wait_s = max(0.0, last_step - self._steps) * step_s
        if need <= 0:
            return wait_s
        lengths = [other.output_tokens for other in self._waiting] or [job.output_tokens]
        per_round_s = sum(lengths) / len(lengths) * step_s
        return wait_s + per_round_s * need / max(job.kv_bytes, self.kv_capacity)

    def running_jobs(self) -> list[tuple[float, int, SimJob]]:
        """Each with its steps left and its number."""
        return [(max(0.0, last - self._steps), number, job) for last, number, job in self._running]

    def prompts_in_reading(self) -> tuple[list[ReadingPrompt], Chunk | None]:
        """Copies of the prompts that are being read, and of their chunk."""
        return [prompt.copy() for prompt in self._reading], self._chunk.copy() if self._chunk is not None else None

    def waiting_prompts(self) -> list[ReadingPrompt]:
        return [self._prompt(job, job.cached_tokens) for job in self._waiting]

    def arriving_prompt(self, job: SimJob) -> ReadingPrompt:
        """A job that has not arrived, with what the machine has cached now."""
        return self._prompt(job, self.cache.tokens_of(job))

    def _prompt(self, job: SimJob, cached_tokens: int) -> ReadingPrompt:
        return ReadingPrompt(job, self._prefills[job.model.number], cached_tokens)

    def all_jobs(self) -> list[SimJob]:
        reading = (prompt.job for prompt in self._reading)
        return [*(job for _, _, job in self._running), *self._waiting, *reading, *self._jobs_without_model()]

    # events

    def advance(self, now_s: float) -> None:
        """Let time pass up to `now_s`; no event may be due before that."""
        passed_s = now_s - self._now_s
        self._now_s = now_s
        if passed_s <= 0:
            return
        pace = self.pace()
        if self._running:
            self._steps += passed_s * pace.decode / self.step_s()
        if self._chunk is not None:
            self._chunk.left_s -= passed_s * pace.prefill
            self.busy_prefill_s += passed_s

    def next_event_s(self) -> float:
        pace, due = self.pace(), NEVER
        if self._chunk is not None:
            due = self._now_s + max(0.0, self._chunk.left_s) / pace.prefill
        if self._running:
            left_s = max(0.0, self._running[0][0] - self._steps) * self.step_s() / pace.decode
            due = min(due, self._now_s + left_s)
        if self._loading is not None:
            due = min(due, self._loading[1])
        return due

    def accept(self, job: SimJob, now_s: float) -> None:
        self.advance(now_s)
        number = job.model.number
        self._last_used[number] = now_s
        job.is_read = False
        job.cached_tokens = self.cache.use(job)
        for totals in (self.totals, self.gateway_totals[job.gateway]):
            totals.add(job, self.prefill_s(job))
        job.was_warm = self.states[number] is SimModelState.WARM
        if job.was_warm:
            self._queue(job)
        else:
            self._waiting_for_model.setdefault(number, []).append(job)
        self._start_work()

    def remove(self, job: SimJob, now_s: float) -> None:
        """The job failed, or was cancelled."""
        self.advance(now_s)
        self._uncount(job)
        read = next((prompt for prompt in self._reading if prompt.job is job), None)
        if read is not None:
            self._reading.remove(read)
            self._release(job, running=False)
        elif job in self._waiting:
            self._waiting.remove(job)
            self._unqueue(job)
        else:
            self._remove_running_or_without_model(job)
        self._start_work()

    def _uncount(self, job: SimJob) -> None:
        for totals in (self.totals, self.gateway_totals[job.gateway]):
            totals.remove(job, self.prefill_s(job))

    def _queue(self, job: SimJob) -> None:
        self._waiting.append(job)
        self._waiting_s += self.prefill_s(job)
        self._waiting_kv += job.kv_bytes
        self._waiting_models[job.model.number] += 1

    def _unqueue(self, job: SimJob) -> None:
        _decrement(self._waiting_models, job.model.number)
        if self._waiting:
            self._waiting_s -= self.prefill_s(job)
            self._waiting_kv -= job.kv_bytes
        else:
            self._waiting_s = self._waiting_kv = 0.0

    def _remove_running_or_without_model(self, job: SimJob) -> None:
        before = len(self._running)
        self._running = [entry for entry in self._running if entry[2] is not job]
        if len(self._running) < before:
            heapq.heapify(self._running)
            self._release(job, running=True)
            return
        for jobs in self._waiting_for_model.values():
            if job in jobs:
                jobs.remove(job)

    def wake(self, now_s: float) -> None:
        """An event is due at `now_s`."""
        self.advance(now_s)
        self._finish_loading()
        self._finish_prefill()
        self._finish_running()
        self._start_work()

    def die(self, now_s: float) -> list[SimJob]:
        """Returns the jobs that are lost with it."""
        self.advance(now_s)
        lost = self.all_jobs()
        self.alive = False
        self.cache.clear()
        self._clear_work()
        return lost

    def revive(self, now_s: float) -> None:
        self.advance(now_s)
        self.alive = True
        for number in self.states:
            self.states[number] = self._initial_state(number)
        self._update_capacity()
        self._callbacks.changed_models(self.site.number)

    # its work

    def _start_work(self) -> None:
        self._start_prefill()
        self._start_loading()

    def _start_prefill(self) -> None:
        """Fill the next chunk: with the prompts that are being read, then with those that are admitted."""
        if self._chunk is not None:
            return
        chunk = Chunk(max(1, self._family.chunk_tokens - len(self._running)))
        for prompt in self._reading:
            chunk.add(prompt)
        while chunk.tokens_left > 0 and self._waiting and self._admits(self._waiting[0]):
            job = self._waiting.popleft()
            self._unqueue(job)
            prompt = self._prompt(job, job.cached_tokens)
            self._reading.append(prompt)
            chunk.add(prompt)
            self.kv_used += job.kv_bytes
            self._trim_cache()
            if job.model.number not in self.jobs_by_model:
                self.active_bytes += job.model.weights_bytes
            self.jobs_by_model[job.model.number] += 1
        if self._reading:
            self._chunk = chunk

    def _admits(self, job: SimJob) -> bool:
        """A free slot, and memory for its context; alone on the machine a job is always admitted."""
        taken = len(self._running) + len(self._reading)
        has_room = self.kv_used + job.kv_bytes <= self.kv_capacity and taken < self.site.slots
        return has_room or not self.jobs_by_model

    def _finish_prefill(self) -> None:
        if self._chunk is None or self._chunk.left_s > 1e-9:
            return
        self._chunk = None
        prompts, self._reading = self._reading, []
        for prompt in prompts:
            prompt.done += prompt.in_chunk
            prompt.in_chunk = 0
            if prompt.left > 0:
                self._reading.append(prompt)
            else:
                self._begin_decoding(prompt.job)

    def _begin_decoding(self, job: SimJob) -> None:
        self.kv_read += job.kv_read_bytes
        job.is_read = True
        for totals in (self.totals, self.gateway_totals[job.gateway]):
            totals.unread_s -= self.prefill_s(job)
        heapq.heappush(self._running, (self._steps + job.output_tokens, job.number, job))
        self._callbacks.first_token(job, self._now_s)

    def _finish_running(self) -> None:
        while self._running and self._running[0][0] <= self._steps + 1e-6:
            _, _, job = heapq.heappop(self._running)
            self._uncount(job)
            self._release(job, running=True)
            self.cache.add(job)
            self._trim_cache()
            self._last_used[job.model.number] = self._now_s
            self._callbacks.finished(job, self._now_s)

    def _release(self, job: SimJob, *, running: bool) -> None:
        self.kv_used -= job.kv_bytes
        if running:
            self.kv_read -= job.kv_read_bytes
        _decrement(self.jobs_by_model, job.model.number)
        if job.model.number not in self.jobs_by_model:
            self.active_bytes -= job.model.weights_bytes
        if not self.jobs_by_model:
            self.active_bytes = self.kv_used = self.kv_read = 0.0

    def _start_loading(self) -> None:
        """Load the next model that jobs wait for; idle models are evicted, least recently used first."""
        if self._loading is not None:
            return
        for number, jobs in self._waiting_for_model.items():
            if jobs and self.states[number] is SimModelState.ON_DISK and self._make_room(self._models[number]):
                self.states[number] = SimModelState.LOADING
                self._update_capacity()
                self._trim_cache()
                self._loading = (number, self._now_s + self.site.cold_load_s(self._models[number]))
                self._callbacks.changed_models(self.site.number)
                return

    def _make_room(self, model: SimModel) -> bool:
        idle = [
            number
            for number, state in self.states.items()
            if state is SimModelState.WARM and number not in self.jobs_by_model and number not in self._waiting_models
        ]
        idle.sort(key=lambda number: self._last_used[number])
        free = self.kv_capacity - self.kv_used - CONTEXT_GB * GB - model.weights_bytes
        evicted: list[int] = []
        while free < 0 and idle:
            evicted.append(idle.pop(0))
            free += self._models[evicted[-1]].weights_bytes
        if free < 0:
            return False
        for number in evicted:
            self.states[number] = SimModelState.ON_DISK
            self.cache.drop_model(number)
        return True

    def _finish_loading(self) -> None:
        if self._loading is None or self._loading[1] > self._now_s + 1e-9:
            return
        number, _ = self._loading
        self._loading = None
        self.states[number] = SimModelState.WARM
        for job in self._waiting_for_model.pop(number, ()):
            self._queue(job)
        self._callbacks.changed_models(self.site.number)
