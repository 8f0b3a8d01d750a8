"""The yardstick: greedy with perfect information, and the bound that nobody can reach.

The oracle knows true speeds, true lengths, deaths to come and all work under way. It is no lower bound: it is greedy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.physics import ModelState, SimJob
from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S, Scenario, Site
from sparewatt.sim.world import World

Floats = NDArray[np.float64]
STATES = {ModelState.WARM: 0, ModelState.LOADING: 1, ModelState.ON_DISK: 2}
ABSENT = 3
DOOMED_S = 1e4
SHARE_EWMA_S = 15.0


class Truth:
    """The true state of all machines as arrays, kept up to date by `touched`."""

    def __init__(self, world: World) -> None:
        scenario, n = world.scenario, len(world.machines)
        self._world = world
        self.flops = np.array([site.flops for site in scenario.sites])
        self.bandwidth = np.array([site.bandwidth for site in scenario.sites])
        self.rtt = np.array([[world.rtt_s(g, i) for i in range(n)] for g in range(len(world.gateway_regions))])
        self.alive = np.ones(n, bool)
        self.deaths = np.array(world.deaths_s)
        self.jobs = np.zeros(n)
        self.backlog = np.zeros(n)
        self.backlog_at = np.zeros(n)
        self.active = np.zeros(n)
        self.kv_read = np.zeros(n)
        self.kv_free = np.zeros(n)
        self.uses = np.zeros((len(scenario.models), n), bool)
        self.state = np.full((len(scenario.models), n), ABSENT)
        self.cold = np.array([[site.cold_load_s(model) for site in scenario.sites] for model in scenario.models])
        self.under_way = np.zeros(n)
        self.under_way_backlog = np.zeros(n)
        for site in range(n):
            self.touched(site, 0.0)

    def touched(self, site: int, now_s: float) -> None:
        machine = self._world.machines[site]
        self.alive[site] = machine.alive
        self.deaths[site] = self._world.deaths_s[site]
        self.jobs[site] = machine.jobs
        self.backlog[site] = machine.backlog_s()
        self.backlog_at[site] = now_s
        self.active[site] = machine.active_weights
        self.kv_read[site] = machine.kv_read
        self.kv_free[site] = machine.kv_capacity - machine.kv_used
        self.uses[:, site] = False
        for number in machine.users():
            self.uses[number, site] = True
        for number, state in machine.states.items():
            self.state[number, site] = STATES[state]


class Oracle:
    """Implements Chooser."""

    def __init__(self, world: World, *, others: float, usd_weight: float = 1e4) -> None:
        self._world = world
        self._truth = Truth(world)
        self._others = others
        self._usd_weight = usd_weight
        self._price = prices(world.scenario)

    def choose(self, job: SimJob, now_s: float) -> int | None:
        cost = self._cost(job, now_s)
        best = int(np.argmin(cost))
        return best if np.isfinite(cost[best]) else None

    def _cost(self, job: SimJob, now_s: float) -> Floats:
        true, model = self._truth, job.model
        n = true.jobs + true.under_way
        state = true.state[model.number]
        read = 2 * model.active_params * job.prompt_tokens / true.flops
        backlog = np.maximum(0.0, true.backlog - (now_s - true.backlog_at)) + true.under_way_backlog
        busy = 1.0 + (n > 0.5)
        other = np.where(true.uses[model.number], 0.0, model.weights_bytes)
        per_job_kv = job.kv_read_bytes / true.bandwidth
        step = (
            (true.active + other + true.kv_read) / true.bandwidth + per_job_kv + STEP_FIXED_S + STEP_PER_JOB_S * (n + 1)
        )
        write = job.output_tokens * step
        short = np.maximum(0.0, job.kv_bytes - true.kv_free) / job.kv_bytes
        kv_wait = np.where(short > 0, np.minimum(20.0, 0.35 * write * (1 + short)), 0.0)
        cold = np.where(state == 2, true.cold[model.number], np.where(state == 1, true.cold[model.number] / 2, 0.0))
        own = true.rtt[job.gateway] + cold + kv_wait + (backlog + read) * busy + write
        slows = n * (
            read / 2
            + job.output_tokens / 2 * (STEP_PER_JOB_S + job.prompt_tokens * model.kv_bytes_per_token / true.bandwidth)
        )
        cost = own + self._others * slows + self._usd_weight * job_price(self._price, job)
        cost = cost + np.where(true.deaths < now_s + 1.5 * own + 1.0, DOOMED_S, 0.0)
        return np.where(true.alive & (state != ABSENT), cost, np.inf)

    def sent(self, job: SimJob, site: int, now_s: float) -> None:
        self._truth.under_way[site] += 1
        self._truth.under_way_backlog[site] += self._world.machines[site].prefill_s(job)

    def arrived(self, job: SimJob, site: int) -> None:
        self._truth.under_way[site] -= 1
        self._truth.under_way_backlog[site] -= self._world.machines[site].prefill_s(job)

    def first_token(self, job: SimJob, now_s: float) -> None: ...

    def over(self, job: SimJob, now_s: float, *, done: bool) -> None: ...

    def touched(self, site: int, now_s: float) -> None:
        self._truth.touched(site, now_s)


def nominal_decode_tps(site: Site, weights_bytes: float, batch: int) -> float:
    bandwidth = site.bandwidth / site.speed
    return batch / (weights_bytes / bandwidth + STEP_FIXED_S + STEP_PER_JOB_S * batch)


def prices(scenario: Scenario) -> Floats:
    """$ per token: the hour's price over the node's own nominal throughput at batch 8."""
    return np.array(
        [
            [site.usd_per_hour / 3600 / nominal_decode_tps(site, model.weights_bytes, 8) for site in scenario.sites]
            for model in scenario.models
        ]
    )


PROMPT_PRICE_SHARE = 1.0
"""A token read costs a tenth of one written."""


def job_price(price: Floats, job: SimJob) -> Floats:
    per_token: Floats = price[job.model.number]
    return per_token * (job.output_tokens + PROMPT_PRICE_SHARE * job.prompt_tokens)


def bound_s(scenario: Scenario, job: SimJob, rtt: Floats) -> tuple[float, float]:
    """First token and completion of the job alone on its best warm machine."""
    best = (float("inf"), float("inf"))
    for site in scenario.sites:
        if job.model.number not in site.warm:
            continue
        first = rtt[site.number] + 2 * job.model.active_params * job.prompt_tokens / site.flops
        step = (job.model.weights_bytes + job.kv_read_bytes) / site.bandwidth + STEP_FIXED_S + STEP_PER_JOB_S
        best = min(best, (first + job.output_tokens * step, first))
    return best[1], best[0]
