"""Exact roll-outs for the oracle: how a machine's present jobs will go on, with a further job and without it.

The same physics as `SimMachine`, on a copy of what is left of each job, until all have ended. Only jobs of models that
are loaded are rolled out.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from sparewatt.sim.fleet.machine import Chunk, SimMachine
from sparewatt.sim.fleet.physics import UNDISTURBED, shared_pace
from sparewatt.sim.scenario import SimModel
from sparewatt.sim.traffic import SimJob

EVENTS_MAX = 2000


class RollOut(NamedTuple):
    """Seconds from now; `ends_s` sums up over all jobs but the further one."""

    finish_s: float
    ends_s: float


class WeightsInUse:
    """Those of models that have a job in prefill or decoding are read in every step."""

    def __init__(self, jobs_by_model: Counter[int], active_bytes: float) -> None:
        self._jobs = Counter(jobs_by_model)
        self.active_bytes = active_bytes

    def add(self, model: SimModel) -> None:
        if not self._jobs[model.number]:
            self.active_bytes += model.weights_bytes
        self._jobs[model.number] += 1

    def remove(self, model: SimModel) -> None:
        self._jobs[model.number] -= 1
        if not self._jobs[model.number]:
            self.active_bytes -= model.weights_bytes


StepsLeft = Callable[[SimJob, float], float]
"""How many steps a running job is believed to have left, given the truth."""


def true_steps(_job: SimJob, left: float) -> float:
    return left


def roll_out(
    machine: SimMachine,
    sent: Sequence[SimJob],
    job: SimJob | None,
    now_s: float,
    *,
    steps_left: StepsLeft = true_steps,
    hidden: Collection[int] = (),
) -> RollOut:
    """`sent` are jobs on their way to the machine. `job` comes behind all of them; without one `finish_s` is 0.

    Jobs whose numbers are `hidden` are left out, where they wait or are read: who plays does not know of them.
    """
    machine.advance(now_s)
    play = _Play(machine, [*sent] if job is None else [*sent, job], steps_left, hidden)
    ends_s = finish_s = 0.0
    for _ in range(EVENTS_MAX):
        play.fill_chunk()
        if play.is_over:
            break
        ended = play.next_event()
        if ended is job and job is not None:
            finish_s = play.now_s
        elif ended is not None:
            ends_s += play.now_s
    return RollOut(finish_s, ends_s)


class _Play:
    """A copy of a machine's work that goes on by itself."""

    def __init__(
        self, machine: SimMachine, behind: Sequence[SimJob], steps_left: StepsLeft, hidden: Collection[int] = ()
    ) -> None:
        self._family, self._bandwidth = machine.site.family, machine.site.bandwidth
        self._capacity, self._slots = machine.kv_capacity, machine.site.slots
        self._steps_left = steps_left
        self._running = [(steps_left(other, left), number, other) for left, number, other in machine.running_jobs()]
        heapq.heapify(self._running)
        self._reading, self._chunk = machine.prompts_in_reading()
        self._queue = deque([*machine.waiting_prompts(), *map(machine.arriving_prompt, behind)])
        self._weights = WeightsInUse(machine.jobs_by_model, machine.active_bytes)
        self._kv_used, self._kv_read = machine.kv_used, machine.kv_read
        self._steps = self.now_s = 0.0
        if hidden:
            self._leave_out(hidden)

    def _leave_out(self, hidden: Collection[int]) -> None:
        self._queue = deque(prompt for prompt in self._queue if prompt.job.number not in hidden)
        for prompt in [prompt for prompt in self._reading if prompt.job.number in hidden]:
            self._reading.remove(prompt)
            self._kv_used -= prompt.job.kv_bytes
            self._weights.remove(prompt.job.model)
        if not self._reading:
            self._chunk = None

    @property
    def is_over(self) -> bool:
        return self._chunk is None and not self._running

    def fill_chunk(self) -> None:
        """As `SimMachine` fills it."""
        if self._chunk is not None or not (self._reading or self._queue):
            return
        chunk = Chunk(max(1, self._family.chunk_tokens - len(self._running)))
        for prompt in self._reading:
            chunk.add(prompt)
        while chunk.tokens_left > 0 and self._queue and self._has_room(self._queue[0].job):
            prompt = self._queue.popleft()
            self._reading.append(prompt)
            chunk.add(prompt)
            self._kv_used += prompt.job.kv_bytes
            self._weights.add(prompt.job.model)
        self._chunk = chunk if self._reading else None

    def _has_room(self, job: SimJob) -> bool:
        taken = len(self._running) + len(self._reading)
        return not taken or (self._kv_used + job.kv_bytes <= self._capacity and taken < self._slots)

    def next_event(self) -> SimJob | None:
        """The job that ended, if it is that and not the end of a chunk."""
        family, chunk, running = self._family, self._chunk, self._running
        base_s = self._weights.active_bytes / self._bandwidth + family.step_fixed_s
        step_s = base_s + self._kv_read / self._bandwidth + family.step_per_job_s * len(running)
        pace, until_read_s, until_end_s = UNDISTURBED, math.inf, math.inf
        if chunk is not None:
            pace = shared_pace(chunk.seconds, step_s, base_s * family.hidden_share) if running else UNDISTURBED
            until_read_s = max(0.0, chunk.left_s) / pace.prefill
        if running:
            until_end_s = max(0.0, running[0][0] - self._steps) * step_s / pace.decode
        passed_s = min(until_read_s, until_end_s)
        self.now_s += passed_s
        self._steps += passed_s * pace.decode / step_s
        if until_read_s <= until_end_s:
            self._end_chunk()
            return None
        if chunk is not None:
            chunk.left_s -= passed_s * pace.prefill
        return self._end_job()

    def _end_chunk(self) -> None:
        prompts, self._reading, self._chunk = self._reading, [], None
        for prompt in prompts:
            prompt.done += prompt.in_chunk
            prompt.in_chunk = 0
            if prompt.left > 0:
                self._reading.append(prompt)
                continue
            job = prompt.job
            heapq.heappush(self._running, (self._steps + self._steps_left(job, job.output_tokens), job.number, job))
            self._kv_read += job.kv_read_bytes

    def _end_job(self) -> SimJob:
        _, _, ended = heapq.heappop(self._running)
        self._kv_used -= ended.kv_bytes
        self._kv_read -= ended.kv_read_bytes
        self._weights.remove(ended.model)
        return ended
