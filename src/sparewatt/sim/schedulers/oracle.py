"""The oracle: a greedy scheduler with perfect information.

It knows true speeds, true lengths, future deaths and all jobs in flight. Because it is greedy, it is no lower bound.
It does not know which jobs will arrive. With `roll_outs` it plays the best candidates through to the end of all their
jobs, exactly. It can be asked to do without one of its secrets: the difference is what that secret is worth.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S
from sparewatt.sim.fleet.machine import SimModelState
from sparewatt.sim.fleet.physics import Floats, PrefillColumns
from sparewatt.sim.fleet.rollout import StepsLeft, roll_out, true_steps
from sparewatt.sim.scenario import price_table
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import AttemptEnd, Refuse, Start, World

WARM, LOADING, ON_DISK, ABSENT = 0, 1, 2, 3
STATES = {SimModelState.WARM: WARM, SimModelState.LOADING: LOADING, SimModelState.ON_DISK: ON_DISK}
SHARE_S, SHARE_STEP_S = 15.0, 0.5
PLAYED = 6
"""Candidates that are played to the end."""
STALL = 0.9
"""What an answer loses of its time while a prompt is read, for the estimate that picks them."""
OUTPUT_TOKENS_FIRST = 256
DEATH_COST_S = 1e4
"""Added to a machine that will die before the job is done."""


class FleetState:
    """The true state of all machines as arrays; `update` is called at every change."""

    def __init__(self, world: World) -> None:
        scenario, n = world.scenario, len(world.machines)
        self._world = world
        self.prefill = [
            PrefillColumns.of([site.prefill(model) for site in scenario.sites]) for model in scenario.models
        ]
        self.fixed = np.array([site.family.step_fixed_s for site in scenario.sites])
        self.per_job = np.array([site.family.step_per_job_s for site in scenario.sites])
        self.slots = np.array([site.slots for site in scenario.sites])
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
        self.honest = np.array([not site.is_garbage and site.hostility is None for site in scenario.sites])
        self.failure_odds = np.array([site.fail_share / (1 - site.fail_share) for site in scenario.sites])
        self.in_flight = np.zeros(n)
        self.in_flight_backlog = np.zeros(n)
        self.in_flight_kv = np.zeros(n)
        for site in range(n):
            self.update(site, 0.0)

    def update(self, site: int, now_s: float) -> None:
        machine = self._world.machines[site]
        self.alive[site] = machine.alive
        self.deaths[site] = self._world.deaths_s[site]
        self.jobs[site] = machine.jobs
        self.backlog[site] = machine.unread_s()
        self.backlog_at[site] = now_s
        self.active[site] = machine.active_bytes
        self.kv_read[site] = machine.kv_read
        self.kv_free[site] = machine.kv_capacity - machine.kv_used - machine.queued_kv()
        self._note_share(site, now_s, machine.busy_prefill_s)
        self.uses[:, site] = False
        for number in machine.jobs_by_model:
            self.uses[number, site] = True
        for number, state in machine.states.items():
            self.state[number, site] = STATES[state]
            self.ready_at[number, site] = machine.ready_s(number, now_s)

    def _note_share(self, site: int, now_s: float, busy_s: float) -> None:
        """The share of time spent in prefill, smoothed over fifteen seconds as in the nodes' reports."""
        at_s, before_s = self._busy[site]
        passed_s = now_s - at_s
        if passed_s > SHARE_STEP_S:
            weight = 1.0 - math.exp(-passed_s / SHARE_S)
            newest = (busy_s - before_s) / passed_s
            self.prefill_share[site] += weight * (newest - self.prefill_share[site])
            self._busy[site] = (now_s, busy_s)


class Secrets(NamedTuple):
    """What the oracle knows and no gateway can."""

    lengths: bool = True
    """How long each answer will be; else the mean of its model so far."""
    deaths: bool = True
    """When machines will die."""
    news: bool = True
    """What other gateways have just sent; else only what a report of the machine can have told."""


class UnseenJobs:
    """Jobs of other gateways that no report can have told a gateway of.

    A report waits for half an interval on average.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._recent: deque[SimJob] = deque()
        gateways, sites = range(len(world.gateway_regions)), range(len(world.machines))
        self._longest_s = LOAD_REPORT_INTERVAL_S + max(world.rtt_s(g, site) for g in gateways for site in sites)

    def add(self, job: SimJob) -> None:
        self._recent.append(job)

    def of(self, gateway: int, now_s: float) -> dict[int, list[SimJob]]:
        """By site."""
        while self._recent and self._recent[0].sent_s < now_s - self._longest_s:
            self._recent.popleft()
        found: dict[int, list[SimJob]] = {}
        for job in self._recent:
            if job.gateway != gateway and job.site is not None and now_s < self._told_s(job, job.site, gateway):
                found.setdefault(job.site, []).append(job)
        return found

    def _told_s(self, job: SimJob, site: int, gateway: int) -> float:
        ways_s = (self._world.rtt_s(job.gateway, site) + self._world.rtt_s(gateway, site)) / 2
        return job.sent_s + ways_s + LOAD_REPORT_INTERVAL_S / 2


class Oracle:
    """Implements Scheduler."""

    def __init__(
        self,
        world: World,
        *,
        slowdown_weight: float,
        usd_weight: float = 1e4,
        roll_outs: bool = False,
        secrets: Secrets | None = None,
    ) -> None:
        self._world = world
        self._fleet = FleetState(world)
        self._slowdown_weight = slowdown_weight
        self._usd_weight = usd_weight
        self._roll_outs = roll_outs
        self._secrets = secrets or Secrets()
        self._price = price_table(world.scenario)
        self._sent: list[list[SimJob]] = [[] for _ in world.machines]
        """On their way to each machine."""
        self._ends_without: dict[int, float] = {}
        """By site: the sum of the ends of all its jobs if no further one comes. Until something changes there."""
        self._lengths: dict[int, tuple[int, int]] = {}
        """By model: how many answers ended, and their tokens."""
        self._recent = UnseenJobs(world)
        self._unseen: dict[int, list[SimJob]] = {}
        """By site: of others, what the gateway that chooses now cannot know."""

    def admit(self, job: SimJob, *, start: Start, refuse: Refuse) -> None:  # noqa: ARG002 (Scheduler)
        start(job)

    def choose(self, job: SimJob, now_s: float) -> int | None:
        if not self._secrets.news:
            self._unseen = self._recent.of(job.gateway, now_s)
            self._ends_without.clear()
        cost, is_short = self._cost(job, now_s)
        site = self._best_played(job, cost, now_s) if self._roll_outs else self._cheapest(job, cost, is_short, now_s)
        if site is not None:
            self._count_in_flight(job, site, 1)
            self._sent[site].append(job)
            self._ends_without.pop(site, None)
            if not self._secrets.news:
                self._recent.add(job)
        return site

    def on_arrived(self, job: SimJob, site: int) -> None:
        self._count_in_flight(job, site, -1)
        self._sent[site].remove(job)
        self._ends_without.pop(site, None)

    def _count_in_flight(self, job: SimJob, site: int, sign: int) -> None:
        self._fleet.in_flight[site] += sign
        self._fleet.in_flight_backlog[site] += sign * self._world.machines[site].prefill_s(job)
        self._fleet.in_flight_kv[site] += sign * job.kv_bytes

    def _best_played(self, job: SimJob, cost: Floats, now_s: float) -> int | None:
        """Of the best by the estimate, the one that is best when played to the end. A model must be loaded for that."""
        fleet, best, lowest = self._fleet, None, math.inf
        for site in np.argsort(cost, kind="stable")[:PLAYED].tolist():
            if not math.isfinite(cost[site]):
                break
            found = float(cost[site])
            if fleet.state[job.model.number, site] == WARM:
                found = self._played_cost(job, site, now_s)
            if found < lowest:
                best, lowest = site, found
        return best

    def _played_cost(self, job: SimJob, site: int, now_s: float) -> float:
        machine, steps_left = self._world.machines[site], self._steps_left
        hidden = {other.number for other in self._unseen.get(site, ())}
        sent = [other for other in self._sent[site] if other.number not in hidden] if hidden else self._sent[site]
        without, n = self._ends_without.get(site), machine.jobs + len(self._sent[site]) - len(hidden)
        if without is None:
            alone = roll_out(machine, sent, None, now_s, steps_left=steps_left, hidden=hidden)
            without = self._ends_without[site] = alone.ends_s + n * now_s
        played = roll_out(machine, sent, job, now_s, steps_left=steps_left, hidden=hidden)
        own_s = float(self._fleet.rtt[job.gateway][site]) + played.finish_s
        others_s = self._slowdown_weight * (played.ends_s + n * now_s - without)
        odds, dies = float(self._fleet.failure_odds[site]), self._dies(site, now_s, own_s)
        return (own_s + others_s + self._usd(job, site)) * (1 + odds) + (DEATH_COST_S if dies else 0.0)

    def _dies(self, site: int, now_s: float, own_s: float) -> bool:
        return self._secrets.deaths and float(self._fleet.deaths[site]) < now_s + 1.5 * own_s + 1.0

    def _usd(self, job: SimJob, site: int) -> float:
        model, output = job.model.number, self._output_tokens(job)
        usd = self._price.prompt[model, site] * job.prompt_tokens + self._price.completion[model, site] * output
        return float(self._usd_weight * usd)

    @property
    def _steps_left(self) -> StepsLeft:
        return true_steps if self._secrets.lengths else self._believed_steps

    def _believed_steps(self, job: SimJob, left: float) -> float:
        """The mean length less what is written; an answer that is longer goes on for an eighth of the mean."""
        mean = self._mean_output(job)
        return max(mean / 8, mean - (job.output_tokens - left))

    def _output_tokens(self, job: SimJob) -> float:
        return job.output_tokens if self._secrets.lengths else self._mean_output(job)

    def _mean_output(self, job: SimJob) -> float:
        count, tokens = self._lengths.get(job.model.number, (0, 0))
        return (tokens + OUTPUT_TOKENS_FIRST) / (count + 1)

    def _cheapest(self, job: SimJob, cost: Floats, is_short: NDArray[np.bool_], now_s: float) -> int | None:
        """The cheapest site. The wait for memory is expensive to compute, so only sites that would win get it added."""
        for _ in range(len(cost)):
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                return None
            if not is_short[best]:
                return best
            is_short[best] = False
            machine = self._world.machines[best]
            cost[best] += machine.true_kv_wait_s(job, now_s, in_flight_kv=float(self._fleet.in_flight_kv[best]))
        return None

    def _cost(self, job: SimJob, now_s: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Seconds (and dollars as seconds) without the wait for memory, and at which sites there will be one."""
        fleet, model, output = self._fleet, job.model, self._output_tokens(job)
        state = fleet.state[model.number]
        read = fleet.prefill[model.number].seconds(job.prompt_tokens, self._cached(job))
        n, backlog = self._known_load(now_s)
        other = np.where(fleet.uses[model.number], 0.0, model.weights_bytes)
        reads = (fleet.active + other + fleet.kv_read + job.kv_read_bytes) / fleet.bandwidth
        step = (reads + fleet.fixed + fleet.per_job * (n + 1)) / (1 - fleet.prefill_share * STALL)
        loading = np.maximum(0.0, fleet.ready_at[model.number] - now_s)
        load = np.where(state == LOADING, loading, fleet.cold[model.number])
        cold = np.where(state == WARM, 0.0, load)
        slot = np.maximum(0.0, n - fleet.slots + 1) / fleet.slots * output * step
        own = fleet.rtt[job.gateway] + cold + backlog + read + slot + output * step
        per_step = fleet.per_job + job.prompt_tokens * model.kv_bytes_per_token / fleet.bandwidth
        slowdown = n * (read * STALL + output / 2 * per_step)
        usd_prompt, usd_completion = self._price.prompt[model.number], self._price.completion[model.number]
        price = self._usd_weight * (usd_prompt * job.prompt_tokens + usd_completion * output)
        cost = (own + self._slowdown_weight * slowdown + price) * (1 + fleet.failure_odds)
        if self._secrets.deaths:
            cost += np.where(fleet.deaths < now_s + 1.5 * own + 1.0, DEATH_COST_S, 0.0)
        cost = np.where(fleet.alive & fleet.honest & (state != ABSENT), cost, np.inf)
        return cost, (job.kv_bytes > fleet.kv_free - fleet.in_flight_kv) & (n > 0.5)

    def _known_load(self, now_s: float) -> tuple[Floats, Floats]:
        """Jobs, and seconds of prompts to read, of each machine, without those that cannot be known of."""
        fleet = self._fleet
        n: Floats = fleet.jobs + fleet.in_flight
        backlog: Floats = np.maximum(0.0, fleet.backlog - (now_s - fleet.backlog_at)) + fleet.in_flight_backlog
        for site, jobs in self._unseen.items():
            unread_s = sum(self._world.machines[site].prefill_s(job) for job in jobs)
            n[site] = max(0.0, n[site] - len(jobs))
            backlog[site] = max(0.0, backlog[site] - unread_s)
        return n, backlog

    def _cached(self, job: SimJob) -> Floats | float:
        """Tokens of the prompt that each machine really has cached."""
        if not job.prefix:
            return 0.0
        return np.array([machine.cache.tokens_of(job) for machine in self._world.machines], np.float64)

    def on_first_token(self, job: SimJob, now_s: float) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> None: ...

    def on_end(self, job: SimJob, now_s: float, *, end: AttemptEnd, report: None) -> None:  # noqa: ARG002 (Scheduler)
        if end is AttemptEnd.DONE:
            count, tokens = self._lengths.get(job.model.number, (0, 0))
            self._lengths[job.model.number] = count + 1, tokens + job.output_tokens

    def on_models_change(self, site: int, now_s: float) -> None:
        self.on_machine_change(site, now_s)

    def on_machine_change(self, site: int, now_s: float) -> None:
        self._ends_without.pop(site, None)
        self._fleet.update(site, now_s)
