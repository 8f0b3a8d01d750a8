"""The yardstick: greedy with perfect information.

The oracle knows true speeds, true lengths, deaths to come and all work under way. It is no lower bound: it is greedy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparewatt.sim.fleet.machine import SimJob, SimModelState
from sparewatt.sim.price_table import price_table
from sparewatt.sim.scenario import STEP_FIXED_S, STEP_PER_JOB_S
from sparewatt.sim.world import AttemptEnd, Refuse, Start, World

Floats = NDArray[np.float64]
WARM, LOADING, ON_DISK, ABSENT = 0, 1, 2, 3
STATES = {SimModelState.WARM: WARM, SimModelState.LOADING: LOADING, SimModelState.ON_DISK: ON_DISK}
SHARE_S, SHARE_STEP_S = 15.0, 0.5
DOOMED_S = 1e4


class FleetState:
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
        self.prefill_share = np.zeros(n)
        self._busy = [(0.0, 0.0)] * n
        self.uses = np.zeros((len(scenario.models), n), bool)
        self.state = np.full((len(scenario.models), n), ABSENT)
        self.ready_at = np.zeros((len(scenario.models), n))
        self.cold = np.array([[site.cold_load_s(model) for site in scenario.sites] for model in scenario.models])
        self.honest = np.array([not site.is_garbage for site in scenario.sites])
        self.failure_odds = np.array([site.fail_share / (1 - site.fail_share) for site in scenario.sites])
        self.under_way = np.zeros(n)
        self.under_way_backlog = np.zeros(n)
        self.under_way_kv = np.zeros(n)
        for site in range(n):
            self.update(site, 0.0)

    def update(self, site: int, now_s: float) -> None:
        machine = self._world.machines[site]
        self.alive[site] = machine.alive
        self.deaths[site] = self._world.deaths_s[site]
        self.jobs[site] = machine.jobs
        self.backlog[site] = machine.unread_s()
        self.backlog_at[site] = now_s
        self.active[site] = machine.active_weights
        self.kv_read[site] = machine.kv_read
        self.kv_free[site] = machine.kv_capacity - machine.kv_used - machine.queued_kv()
        self._note_share(site, now_s, machine.busy_prefill_s)
        self.uses[:, site] = False
        for number in machine.models_in_use():
            self.uses[number, site] = True
        for number, state in machine.states.items():
            self.state[number, site] = STATES[state]
            self.ready_at[number, site] = machine.ready_s(number, now_s)

    def _note_share(self, site: int, now_s: float, busy_s: float) -> None:
        """The share of time spent reading, smoothed over fifteen seconds as in the nodes' reports."""
        at_s, before_s = self._busy[site]
        passed_s = now_s - at_s
        if passed_s > SHARE_STEP_S:
            weight = 1.0 - math.exp(-passed_s / SHARE_S)
            fresh = (busy_s - before_s) / passed_s
            self.prefill_share[site] += weight * (fresh - self.prefill_share[site])
            self._busy[site] = (now_s, busy_s)


class Oracle:
    """Implements Chooser."""

    def __init__(self, world: World, *, others: float, usd_weight: float = 1e4) -> None:
        self._world = world
        self._fleet = FleetState(world)
        self._others = others
        self._usd_weight = usd_weight
        self._price = price_table(world.scenario)

    def admit(self, job: SimJob, *, start: Start, refuse: Refuse) -> None:  # noqa: ARG002 (Chooser)
        start(job)

    def choose(self, job: SimJob, now_s: float) -> int | None:
        """The cheapest site. Waiting for memory is worked out job by job, only where a site would win without it."""
        cost, is_short = self._cost(job, now_s)
        for _ in range(len(cost)):
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                return None
            if not is_short[best]:
                return best
            is_short[best] = False
            machine = self._world.machines[best]
            cost[best] += machine.true_kv_wait_s(job, now_s, under_way_kv=float(self._fleet.under_way_kv[best]))
        return None

    def _cost(self, job: SimJob, now_s: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Seconds (and dollars as seconds) without the wait for memory, and where there will be one."""
        true, model = self._fleet, job.model
        n = true.jobs + true.under_way
        state = true.state[model.number]
        read = 2 * model.active_params * (job.prompt_tokens - self._cached(job)) / true.flops
        backlog = np.maximum(0.0, true.backlog - (now_s - true.backlog_at)) + true.under_way_backlog
        other = np.where(true.uses[model.number], 0.0, model.weights_bytes)
        reads = (true.active + other + true.kv_read + job.kv_read_bytes) / true.bandwidth
        step = (reads + STEP_FIXED_S + STEP_PER_JOB_S * (n + 1)) / (1 - true.prefill_share / 2)
        load = np.where(state == LOADING, np.maximum(0.0, true.ready_at[model.number] - now_s), true.cold[model.number])
        cold = np.where(state == WARM, 0.0, load)
        own = true.rtt[job.gateway] + cold + (backlog + read) * (1.0 + (n > 0.5)) + job.output_tokens * step
        per_step = STEP_PER_JOB_S + job.prompt_tokens * model.kv_bytes_per_token / true.bandwidth
        slows = n * (read / 2 + job.output_tokens / 2 * per_step)
        price = self._usd_weight * self._price.of(job)
        cost = (own + self._others * slows + price) * (1 + true.failure_odds)
        cost += np.where(true.deaths < now_s + 1.5 * own + 1.0, DOOMED_S, 0.0)
        cost = np.where(true.alive & true.honest & (state != ABSENT), cost, np.inf)
        return cost, (job.kv_bytes > true.kv_free - true.under_way_kv) & (n > 0.5)

    def _cached(self, job: SimJob) -> Floats | float:
        """What every machine really holds of the prompt."""
        if not job.prefix:
            return 0.0
        return np.array([machine.cache.tokens_of(job) for machine in self._world.machines], np.float64)

    def on_sent(self, job: SimJob, site: int, now_s: float) -> None:  # noqa: ARG002 (Chooser)
        self._fleet.under_way[site] += 1
        self._fleet.under_way_backlog[site] += self._world.machines[site].prefill_s(job)
        self._fleet.under_way_kv[site] += job.kv_bytes

    def on_arrived(self, job: SimJob, site: int) -> None:
        self._fleet.under_way[site] -= 1
        self._fleet.under_way_backlog[site] -= self._world.machines[site].prefill_s(job)
        self._fleet.under_way_kv[site] -= job.kv_bytes

    def on_first_token(self, job: SimJob, now_s: float) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> None: ...

    def on_end(self, job: SimJob, now_s: float, *, end: AttemptEnd, report: None) -> None: ...

    def on_models_change(self, site: int, now_s: float) -> None:
        self._fleet.update(site, now_s)

    def on_machine_change(self, site: int, now_s: float) -> None:
        self._fleet.update(site, now_s)
