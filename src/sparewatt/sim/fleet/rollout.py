"""Exact roll-outs for the oracle: how a machine's present jobs will go on, with a further job and without it.

The same physics as `SimMachine`, on a copy of what is left of each job, until all have ended. Only jobs of models that
are loaded are rolled out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparewatt.sim.fleet.machine import SimMachine
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
    machine: SimMachine, sent: Sequence[SimJob], job: SimJob | None, now_s: float, *, steps_left: StepsLeft = true_steps
) -> RollOut:
    """`sent` are jobs on their way to the machine. `job` comes behind all of them; without one `finish_s` is 0."""
    machine.advance(now_s)
    site, family, bandwidth = machine.site, machine.site.family, machine.site.bandwidth
    per_job_s, fixed_s, capacity, slots = family.step_per_job_s, family.step_fixed_s, machine.kv_capacity, site.slots
    running = [(steps_left(other, left), number, other) for left, number, other in machine.running_jobs()]
    heapq.heapify(running)
    queue = machine.queued_jobs()
    behind = [*sent] if job is None else [*sent, job]
    queue += [machine.queued_next(other) for other in behind]
    weights = WeightsInUse(machine.jobs_by_model, machine.active_bytes)
    kv_used, kv_read = machine.kv_used, machine.kv_read
    at, steps, now, ends, finish = 0, 0.0, 0.0, 0.0, 0.0
    reading, left_s, chunk_s = None, 0.0, 0.0
    if machine.prefilling is not None:
        reading, left_s, chunk_s = queue[0]
        at = 1
    for _ in range(EVENTS_MAX):
        if reading is None and at < len(queue):
            following, following_s, following_chunk_s = queue[at]
            has_room = kv_used + following.kv_bytes <= capacity and len(running) < slots
            if has_room or not running:
                reading, left_s, chunk_s, at = following, following_s, following_chunk_s, at + 1
                kv_used += reading.kv_bytes
                weights.add(reading.model)
        if reading is None and not running:
            break
        base_s = weights.active_bytes / bandwidth + fixed_s
        step_s = base_s + kv_read / bandwidth + per_job_s * len(running)
        pace = shared_pace(chunk_s, step_s, base_s) if reading is not None and running else UNDISTURBED
        until_read_s = left_s / pace.prefill if reading is not None else float("inf")
        until_end_s = max(0.0, running[0][0] - steps) * step_s / pace.decode if running else float("inf")
        passed_s = min(until_read_s, until_end_s)
        now += passed_s
        steps += passed_s * pace.decode / step_s
        if reading is not None:
            left_s -= passed_s * pace.prefill
        if until_read_s <= until_end_s and reading is not None:
            heapq.heappush(running, (steps + steps_left(reading, reading.output_tokens), reading.number, reading))
            kv_read += reading.kv_read_bytes
            reading = None
        else:
            _, _, ended = heapq.heappop(running)
            kv_used -= ended.kv_bytes
            kv_read -= ended.kv_read_bytes
            weights.remove(ended.model)
            if ended is job:
                finish = now
            else:
                ends += now
    return RollOut(finish, ends)
