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

from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S, Model, Site

NEVER = float("inf")


class ModelState(Enum):
    ON_DISK = "on_disk"
    LOADING = "loading"
    WARM = "warm"


@dataclass(slots=True, eq=False)
class SimJob:
    """One request. What the trace knows about it is true; `expected_output` is what a gateway guesses."""

    number: int
    model: Model
    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    region: int
    gateway: int = 0
    fails: bool = False
    expected_output: int = 0
    attempts: int = 0
    refusals: int = 0
    site: int | None = None
    tried: set[int] = field(default_factory=set)
    promised_ttft_s: float = NEVER
    started_here_s: float = 0.0
    first_token_s: float | None = None
    finished_s: float | None = None
    was_warm: bool = True
    cost_usd: float = 0.0

    @property
    def kv_bytes(self) -> float:
        """Room that must be free before it is admitted."""
        return (self.prompt_tokens + self.output_tokens) * self.model.kv_bytes_per_token

    @property
    def kv_read_bytes(self) -> float:
        """What each step reads of it, on average over its answer."""
        return (self.prompt_tokens + self.output_tokens / 2) * self.model.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom a machine tells: the world."""

    first_token: Callable[[SimJob, float], None]
    finished: Callable[[SimJob, float], None]
    changed_models: Callable[[int], None]


class Machine:
    def __init__(self, site: Site, models: tuple[Model, ...], tell: Callbacks) -> None:
        self.site = site
        self._models = models
        self._tell = tell
        self.alive = True
        self.states = {
            m.number: ModelState.WARM if m.number in site.warm else ModelState.ON_DISK
            for m in models
            if m.weights_bytes <= site.usable_bytes
        }
        self._last_used = dict.fromkeys(self.states, 0.0)
        self._now_s = 0.0
        self._steps = 0.0
        self._waiting: deque[SimJob] = deque()
        self._for_model: dict[int, list[SimJob]] = {}
        self._loading: tuple[int, float] | None = None
        self.prefilling: SimJob | None = None
        self._prefill_left_s = 0.0
        self._running: list[tuple[float, int, SimJob]] = []
        self._users: dict[int, int] = {}
        self.kv_used = 0.0
        self.kv_read = 0.0
        self.busy_prefill_s = 0.0

    # what is true now

    @property
    def jobs(self) -> int:
        return (
            len(self._running)
            + len(self._waiting)
            + (self.prefilling is not None)
            + sum(len(jobs) for jobs in self._for_model.values())
        )

    @property
    def running(self) -> int:
        return len(self._running)

    def users(self) -> list[int]:
        """Models that are in use right now."""
        return list(self._users)

    @property
    def active_weights(self) -> float:
        return sum(self._models[number].weights_bytes for number in self._users)

    @property
    def kv_capacity(self) -> float:
        loaded = sum(
            self._models[number].weights_bytes
            for number, state in self.states.items()
            if state is not ModelState.ON_DISK
        )
        return self.site.usable_bytes - loaded

    def prefill_s(self, job: SimJob) -> float:
        return 2 * job.model.active_params * job.prompt_tokens / self.site.flops

    def backlog_s(self) -> float:
        """Seconds of reading ahead of a new prompt, at full speed."""
        waiting = sum(self.prefill_s(job) for job in self._waiting)
        return waiting + (self._prefill_left_s if self.prefilling is not None else 0.0)

    def step_s(self) -> float:
        reads = (self.active_weights + self.kv_read) / self.site.bandwidth
        return reads + STEP_FIXED_S + STEP_PER_JOB_S * len(self._running)

    def all_jobs(self) -> list[SimJob]:
        found = [job for _, _, job in self._running] + list(self._waiting)
        if self.prefilling is not None:
            found.append(self.prefilling)
        for jobs in self._for_model.values():
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
        if self.states[number] is ModelState.WARM:
            self._waiting.append(job)
        else:
            job.was_warm = False
            self._for_model.setdefault(number, []).append(job)
        self._settle()

    def remove(self, job: SimJob, now_s: float) -> None:
        """Somebody gave up on the job, or it failed by itself."""
        self.advance(now_s)
        if job is self.prefilling:
            self.prefilling = None
            self._release(job, running=False)
        elif job in self._waiting:
            self._waiting.remove(job)
        else:
            self._remove_running_or_pending(job)
        self._settle()

    def _remove_running_or_pending(self, job: SimJob) -> None:
        before = len(self._running)
        self._running = [entry for entry in self._running if entry[2] is not job]
        if len(self._running) < before:
            heapq.heapify(self._running)
            self._release(job, running=True)
            return
        for jobs in self._for_model.values():
            if job in jobs:
                jobs.remove(job)

    def wake(self, now_s: float) -> None:
        """Something was due by `now_s`."""
        self.advance(now_s)
        self._finish_loading()
        self._finish_prefill()
        self._finish_running()
        self._settle()

    def die(self, now_s: float) -> list[SimJob]:
        """The machine is gone, with everything on it."""
        self.advance(now_s)
        lost = self.all_jobs()
        self.alive = False
        self._waiting.clear()
        self._for_model.clear()
        self._running.clear()
        self._users.clear()
        self.prefilling = None
        self._loading = None
        self.kv_used = self.kv_read = 0.0
        return lost

    def revive(self, now_s: float) -> None:
        self.advance(now_s)
        self.alive = True
        for number in self.states:
            self.states[number] = ModelState.WARM if number in self.site.warm else ModelState.ON_DISK
        self._tell.changed_models(self.site.number)

    # inside

    def _settle(self) -> None:
        self._start_prefill()
        self._start_loading()

    def _start_prefill(self) -> None:
        if self.prefilling is None and self._waiting and self._admits(self._waiting[0]):
            job = self._waiting.popleft()
            self.prefilling = job
            self._prefill_left_s = self.prefill_s(job)
            self.kv_used += job.kv_bytes
            self._users[job.model.number] = self._users.get(job.model.number, 0) + 1

    def _admits(self, job: SimJob) -> bool:
        """Room for its context; alone on the machine a job is always let in."""
        return self.kv_used + job.kv_bytes <= self.kv_capacity or not self._users

    def _finish_prefill(self) -> None:
        job = self.prefilling
        if job is None or self._prefill_left_s > 1e-9:
            return
        self.prefilling = None
        self.kv_read += job.kv_read_bytes
        heapq.heappush(self._running, (self._steps + job.output_tokens, job.number, job))
        self._tell.first_token(job, self._now_s)

    def _finish_running(self) -> None:
        while self._running and self._running[0][0] <= self._steps + 1e-6:
            _, _, job = heapq.heappop(self._running)
            self._release(job, running=True)
            self._last_used[job.model.number] = self._now_s
            self._tell.finished(job, self._now_s)

    def _release(self, job: SimJob, *, running: bool) -> None:
        self.kv_used -= job.kv_bytes
        if running:
            self.kv_read -= job.kv_read_bytes
        left = self._users[job.model.number] - 1
        if left:
            self._users[job.model.number] = left
        else:
            del self._users[job.model.number]

    def _start_loading(self) -> None:
        """Load the next model that somebody waits for, throwing out idle ones, least recently used first."""
        if self._loading is not None:
            return
        for number, jobs in self._for_model.items():
            if jobs and self.states[number] is ModelState.ON_DISK and self._make_room(self._models[number]):
                self.states[number] = ModelState.LOADING
                self._loading = (number, self._now_s + self.site.cold_load_s(self._models[number]))
                self._tell.changed_models(self.site.number)
                return

    def _make_room(self, model: Model) -> bool:
        waiting = {job.model.number for job in self._waiting}
        idle = [
            number
            for number, state in self.states.items()
            if state is ModelState.WARM and number not in self._users and number not in waiting
        ]
        idle.sort(key=lambda number: self._last_used[number])
        free = self.kv_capacity - self.kv_used - model.weights_bytes
        out: list[int] = []
        while free < 0 and idle:
            out.append(idle.pop(0))
            free += self._models[out[-1]].weights_bytes
        if free < 0:
            return False
        for number in out:
            self.states[number] = ModelState.ON_DISK
        return True

    def _finish_loading(self) -> None:
        if self._loading is None or self._loading[1] > self._now_s + 1e-9:
            return
        number, _ = self._loading
        self._loading = None
        self.states[number] = ModelState.WARM
        self._waiting.extend(self._for_model.pop(number, ()))
        self._tell.changed_models(self.site.number)
