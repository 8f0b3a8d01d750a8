"""How a simulated machine really behaves. Nothing here is visible to a policy but what the machine reports.

Prompts are read one after the other; answers are written together, one token each per step. A step reads the weights of
the models in use and the keys and values of all running jobs. Reading and writing halve each other's speed. All running
jobs advance alike, so one counter of steps stands for them all, and a job is done when the counter reaches its mark.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from sparewatt.sim.fleet.prefix_cache import PrefixCache
from sparewatt.sim.scenario import CONTEXT_GB, GB, STEP_FIXED_S, STEP_PER_JOB_S, SimModel, Site

NEVER = float("inf")


class SimModelState(Enum):
    ON_DISK = "on_disk"
    LOADING = "loading"
    WARM = "warm"


@dataclass(slots=True, eq=False)
class SimJob:
    """One request. What the trace knows about it is true."""

    number: int
    model: SimModel
    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    region: int
    gateway: int = 0
    user_rtt_s: float = 0.0
    """Between the user and the gateway, there and back."""
    fails: bool = False
    attempts: int = 0
    refusals: int = 0
    site: int | None = None
    tried: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    """Sites that refused because they would be late."""
    promised_ttft_s: float = 0.0
    """What its gateway counts on; zero if on nothing."""
    first_token_s: float | None = None
    finished_s: float | None = None
    was_warm: bool = True
    is_read: bool = False
    prefix: tuple[int, ...] = ()
    """Its prompt in blocks, each named after all that comes before it and after the model."""
    cached_tokens: int = 0
    """What its machine held of them when it came."""
    believed_tokens: int = 0
    """What its gateway thought that the machine holds."""
    is_nonsense: bool = False
    """The answer reads like one and is worth nothing."""
    kv_bytes: float = field(init=False)
    """Room that must be free before it is admitted."""
    kv_read_bytes: float = field(init=False)
    """What each step reads of it, on average over its answer."""

    def __post_init__(self) -> None:
        per_token = self.model.kv_bytes_per_token
        self.kv_bytes = (self.prompt_tokens + self.output_tokens) * per_token
        self.kv_read_bytes = (self.prompt_tokens + self.output_tokens / 2) * per_token

    def reset_attempts(self) -> None:
        """A new request knows nothing of the one before."""
        self.attempts = self.refusals = 0
        self.tried.clear()
        self.late.clear()


@dataclass(frozen=True, slots=True)
class MachineCallbacks:
    """Whom a machine tells: the world."""

    first_token: Callable[[SimJob, float], None]
    finished: Callable[[SimJob, float], None]
    changed_models: Callable[[int], None]


class SimJobTotals:
    """The jobs on a machine that one gateway sent, or all of them, as running sums: a report reads these."""

    __slots__ = ("jobs", "kv_read_bytes", "models", "unread_s")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.jobs = 0
        self.unread_s = 0.0
        self.kv_read_bytes = 0.0
        self.models: dict[int, int] = {}

    def add(self, job: SimJob, reading_s: float) -> None:
        self.jobs += 1
        self.unread_s += reading_s
        self.kv_read_bytes += job.kv_read_bytes
        self.models[job.model.number] = self.models.get(job.model.number, 0) + 1

    def drop(self, job: SimJob, reading_s: float) -> None:
        self.jobs -= 1
        if not self.jobs:
            self.clear()
            return
        if not job.is_read:
            self.unread_s -= reading_s
        self.kv_read_bytes -= job.kv_read_bytes
        count_down(self.models, job.model.number)


def count_down(counts: dict[int, int], number: int) -> bool:
    """One less; whether that was the last."""
    left = counts[number] - 1
    if left:
        counts[number] = left
        return False
    del counts[number]
    return True


class SimMachine:
    __slots__ = (
        "_active_bytes",
        "_callbacks",
        "_flops",
        "_jobs_by_model",
        "_last_used",
        "_loading",
        "_models",
        "_now_s",
        "_prefill_left_s",
        "_running",
        "_steps",
        "_waiting",
        "_waiting_for_model",
        "_waiting_kv",
        "_waiting_models",
        "_waiting_s",
        "alive",
        "busy_prefill_s",
        "cache",
        "gateway_totals",
        "kv_capacity",
        "kv_read",
        "kv_used",
        "prefilling",
        "site",
        "states",
        "totals",
    )  # fmt: skip

    def __init__(self, site: Site, models: tuple[SimModel, ...], tell: MachineCallbacks, *, gateways: int = 1) -> None:
        self.site = site
        self._models = models
        self._callbacks = tell
        self._flops = site.flops
        self.alive = True
        self.states = {
            m.number: SimModelState.WARM if m.number in site.warm else SimModelState.ON_DISK
            for m in models
            if site.fits(m)
        }
        self._last_used = dict.fromkeys(self.states, 0.0)
        self.gateway_totals = [SimJobTotals() for _ in range(gateways)]
        self.totals = SimJobTotals()
        self.cache = PrefixCache()
        self._now_s = 0.0
        self._steps = 0.0
        self.busy_prefill_s = 0.0
        self._forget_work()
        self._count_capacity()

    def _forget_work(self) -> None:
        self._waiting: deque[SimJob] = deque()
        self._waiting_s = self._waiting_kv = 0.0
        self._waiting_models: dict[int, int] = {}
        self._waiting_for_model: dict[int, list[SimJob]] = {}
        self._loading: tuple[int, float] | None = None
        self.prefilling: SimJob | None = None
        self._prefill_left_s = 0.0
        self._running: list[tuple[float, int, SimJob]] = []
        self._jobs_by_model: dict[int, int] = {}
        self._active_bytes = self.kv_used = self.kv_read = 0.0
        for share in (*self.gateway_totals, self.totals):
            share.clear()

    def _count_capacity(self) -> None:
        loaded = (number for number, state in self.states.items() if state is not SimModelState.ON_DISK)
        self.kv_capacity = self.site.usable_bytes - sum(self._models[number].weights_bytes for number in loaded)

    def _trim_cache(self) -> None:
        self.cache.trim(self.kv_capacity - self.kv_used + self.site.prefix_ram_bytes)

    # what is true now

    @property
    def jobs(self) -> int:
        return self.totals.jobs

    @property
    def running(self) -> int:
        return len(self._running)

    def models_in_use(self) -> list[int]:
        """Models that are in use right now."""
        return list(self._jobs_by_model)

    @property
    def active_weights(self) -> float:
        return self._active_bytes

    def prefill_s(self, job: SimJob) -> float:
        return 2 * job.model.active_params * (job.prompt_tokens - job.cached_tokens) / self._flops

    def backlog_s(self) -> float:
        """Seconds of reading ahead of a new prompt, at full speed."""
        return self._waiting_s + (self._prefill_left_s if self.prefilling is not None else 0.0)

    def step_s(self) -> float:
        reads = (self._active_bytes + self.kv_read) / self.site.bandwidth
        return reads + STEP_FIXED_S + STEP_PER_JOB_S * len(self._running)

    # what only the oracle may ask

    def unread_s(self) -> float:
        """All reading that is left, also of jobs that wait for their model."""
        pending = sum(self.prefill_s(job) for jobs in self._waiting_for_model.values() for job in jobs)
        return self.backlog_s() + pending

    def queued_kv(self) -> float:
        return self._waiting_kv + sum(job.kv_bytes for jobs in self._waiting_for_model.values() for job in jobs)

    def ready_s(self, number: int, now_s: float) -> float:
        """When the model that is being loaded will be there."""
        return self._loading[1] if self._loading is not None and self._loading[0] == number else now_s

    def true_kv_wait_s(self, job: SimJob, now_s: float, *, under_way_kv: float) -> float:
        """Until enough running answers have ended, their true lengths known; beyond them, by rounds of a full house."""
        self.advance(now_s)
        need = job.kv_bytes + under_way_kv + self.queued_kv() - (self.kv_capacity - self.kv_used)
        pace = 2.0 if self.prefilling is not None else 1.0
        step_s, wait_s = self.step_s() * pace, 0.0
        for mark, _, running in sorted(self._running, key=lambda entry: entry[0]):
            if need <= 0:
                return wait_s
            need -= running.kv_bytes
            wait_s = max(0.0, mark - self._steps) * step_s
        if need <= 0:
            return wait_s
        lengths = [other.output_tokens for other in self._waiting] or [job.output_tokens]
        per_round_s = sum(lengths) / len(lengths) * step_s
        return wait_s + per_round_s * need / max(job.kv_bytes, self.kv_capacity)

    def all_jobs(self) -> list[SimJob]:
        found = [job for _, _, job in self._running] + list(self._waiting)
        if self.prefilling is not None:
            found.append(self.prefilling)
        for jobs in self._waiting_for_model.values():
            found += jobs
        return found

    # what happens to it

    def advance(self, now_s: float) -> None:
        """Let time pass up to `now_s`; nothing may be due before that."""
        passed_s = now_s - self._now_s
        self._now_s = now_s
        if passed_s <= 0:
            return
        both = self.prefilling is not None and bool(self._running)
        pace = 0.5 if both else 1.0
        if self._running:
            self._steps += passed_s * pace / self.step_s()
        if self.prefilling is not None:
            self._prefill_left_s -= passed_s * pace
            self.busy_prefill_s += passed_s

    def next_event_s(self) -> float:
        both = self.prefilling is not None and bool(self._running)
        pace = 0.5 if both else 1.0
        due = NEVER
        if self.prefilling is not None:
            due = self._now_s + max(0.0, self._prefill_left_s) / pace
        if self._running:
            due = min(due, self._now_s + max(0.0, self._running[0][0] - self._steps) * self.step_s() / pace)
        if self._loading is not None:
            due = min(due, self._loading[1])
        return due

    def accept(self, job: SimJob, now_s: float) -> None:
        self.advance(now_s)
        number = job.model.number
        self._last_used[number] = now_s
        job.is_read = False
        job.cached_tokens = self.cache.use(job)
        reading_s = self.prefill_s(job)
        self.totals.add(job, reading_s)
        self.gateway_totals[job.gateway].add(job, reading_s)
        job.was_warm = self.states[number] is SimModelState.WARM
        if job.was_warm:
            self._queue(job)
        else:
            self._waiting_for_model.setdefault(number, []).append(job)
        self._start_work()

    def remove(self, job: SimJob, now_s: float) -> None:
        """Somebody gave up on the job, or it failed by itself."""
        self.advance(now_s)
        self._uncount(job)
        if job is self.prefilling:
            self.prefilling = None
            self._release(job, running=False)
        elif job in self._waiting:
            self._waiting.remove(job)
            self._unqueue(job)
        else:
            self._remove_running_or_pending(job)
        self._start_work()

    def _uncount(self, job: SimJob) -> None:
        reading_s = self.prefill_s(job)
        self.totals.drop(job, reading_s)
        self.gateway_totals[job.gateway].drop(job, reading_s)

    def _queue(self, job: SimJob) -> None:
        self._waiting.append(job)
        self._waiting_s += self.prefill_s(job)
        self._waiting_kv += job.kv_bytes
        self._waiting_models[job.model.number] = self._waiting_models.get(job.model.number, 0) + 1

    def _unqueue(self, job: SimJob) -> None:
        count_down(self._waiting_models, job.model.number)
        if self._waiting:
            self._waiting_s -= self.prefill_s(job)
            self._waiting_kv -= job.kv_bytes
        else:
            self._waiting_s = self._waiting_kv = 0.0

    def _remove_running_or_pending(self, job: SimJob) -> None:
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
        """Something was due by `now_s`."""
        self.advance(now_s)
        self._finish_loading()
        self._finish_prefill()
        self._finish_running()
        self._start_work()

    def die(self, now_s: float) -> list[SimJob]:
        """The machine is gone, with everything on it."""
        self.advance(now_s)
        lost = self.all_jobs()
        self.alive = False
        self.cache.clear()
        self._forget_work()
        return lost

    def revive(self, now_s: float) -> None:
        self.advance(now_s)
        self.alive = True
        for number in self.states:
            self.states[number] = SimModelState.WARM if number in self.site.warm else SimModelState.ON_DISK
        self._count_capacity()
        self._callbacks.changed_models(self.site.number)

    # inside

    def _start_work(self) -> None:
        self._start_prefill()
        self._start_loading()

    def _start_prefill(self) -> None:
        if self.prefilling is None and self._waiting and self._admits(self._waiting[0]):
            job = self._waiting.popleft()
            self._unqueue(job)
            self.prefilling = job
            self._prefill_left_s = self.prefill_s(job)
            self.kv_used += job.kv_bytes
            self._trim_cache()
            users = self._jobs_by_model.get(job.model.number, 0)
            self._jobs_by_model[job.model.number] = users + 1
            if not users:
                self._active_bytes += job.model.weights_bytes

    def _admits(self, job: SimJob) -> bool:
        """A slot, and room for its context; alone on the machine a job is always let in."""
        has_room = self.kv_used + job.kv_bytes <= self.kv_capacity and len(self._running) < self.site.slots
        return has_room or not self._jobs_by_model

    def _finish_prefill(self) -> None:
        job = self.prefilling
        if job is None or self._prefill_left_s > 1e-9:
            return
        self.prefilling = None
        self.kv_read += job.kv_read_bytes
        job.is_read = True
        for share in (self.totals, self.gateway_totals[job.gateway]):
            share.unread_s -= self.prefill_s(job)
        heapq.heappush(self._running, (self._steps + job.output_tokens, job.number, job))
        self._callbacks.first_token(job, self._now_s)

    def _finish_running(self) -> None:
        while self._running and self._running[0][0] <= self._steps + 1e-6:
            _, _, job = heapq.heappop(self._running)
            self._uncount(job)
            self._release(job, running=True)
            self.cache.keep(job)
            self._trim_cache()
            self._last_used[job.model.number] = self._now_s
            self._callbacks.finished(job, self._now_s)

    def _release(self, job: SimJob, *, running: bool) -> None:
        self.kv_used -= job.kv_bytes
        if running:
            self.kv_read -= job.kv_read_bytes
        if count_down(self._jobs_by_model, job.model.number):
            self._active_bytes -= job.model.weights_bytes
        if not self._jobs_by_model:
            self._active_bytes = self.kv_used = self.kv_read = 0.0

    def _start_loading(self) -> None:
        """Load the next model that somebody waits for, throwing out idle ones, least recently used first."""
        if self._loading is not None:
            return
        for number, jobs in self._waiting_for_model.items():
            if jobs and self.states[number] is SimModelState.ON_DISK and self._make_room(self._models[number]):
                self.states[number] = SimModelState.LOADING
                self._count_capacity()
                self._trim_cache()
                self._loading = (number, self._now_s + self.site.cold_load_s(self._models[number]))
                self._callbacks.changed_models(self.site.number)
                return

    def _make_room(self, model: SimModel) -> bool:
        idle = [
            number
            for number, state in self.states.items()
            if state is SimModelState.WARM and number not in self._jobs_by_model and number not in self._waiting_models
        ]
        idle.sort(key=lambda number: self._last_used[number])
        free = self.kv_capacity - self.kv_used - CONTEXT_GB * GB - model.weights_bytes
        out: list[int] = []
        while free < 0 and idle:
            out.append(idle.pop(0))
            free += self._models[out[-1]].weights_bytes
        if free < 0:
            return False
        for number in out:
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
