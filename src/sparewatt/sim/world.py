"""The event loop: jobs arrive, are sent somewhere, machines work, die and come back. One virtual clock, no waiting."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from sparewatt.core.limits import REFUSALS_MAX
from sparewatt.core.refusal import would_refuse
from sparewatt.sim.physics import NEVER, Callbacks, Machine, SimJob
from sparewatt.sim.scenario import MTTR_S, Scenario

NOTICE_LOST_S = 5.0
"""A machine that vanishes in the middle of an answer is noticed this much later."""
NOTICE_DEAD_S = 2.0
"""Sending to a machine that is gone is noticed this much later."""
ATTEMPTS_MAX = 5
GIVE_UP_S = 300.0
TRY_AGAIN_S = 1.0


class End(Enum):
    """How one attempt ended, as the gateway learns it."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


class Chooser(Protocol):
    """A policy with everything it may know. The oracle's knows the world itself."""

    def choose(self, job: SimJob, now_s: float) -> int | None: ...

    def sent(self, job: SimJob, site: int, now_s: float) -> None: ...

    def arrived(self, job: SimJob, site: int) -> None: ...

    def first_token(self, job: SimJob, now_s: float) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> Any:
        """What the machine writes on a reply that leaves it now."""

    def over(self, job: SimJob, now_s: float, *, end: End, report: Any) -> None: ...

    def touched(self, site: int, now_s: float) -> None: ...

    def models_changed(self, site: int, now_s: float) -> None: ...


class World:
    """What is true. `outcomes` counts how accepted jobs left their machines: each exactly once."""

    def __init__(self, scenario: Scenario, *, seed: int, gateway_regions: Sequence[int]) -> None:
        self.scenario = scenario
        self.now_s = 0.0
        tell = Callbacks(self._first_token, self._finished, self._models_changed)
        gateways = len(gateway_regions)
        self.machines = [Machine(site, scenario.models, tell, gateways=gateways) for site in scenario.sites]
        self.deaths_s = [NEVER] * len(self.machines)
        self.gateway_regions = tuple(gateway_regions)
        self._rtt_s = [
            [scenario.rtt_s[region][site.region] + site.last_mile_s for site in scenario.sites]
            for region in gateway_regions
        ]
        self._seed = seed
        self._rng = random.Random(f"world {seed}")
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._wakes = [0] * len(self.machines)
        self.outcomes: Counter[str] = Counter()
        self.open_jobs = 0
        self.chooser: Chooser | None = None
        for site in range(len(self.machines)):
            self._plan_death(site)

    # time

    def at(self, when_s: float, what: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (when_s, self._order, what, args))

    def run(
        self,
        jobs: Sequence[SimJob],
        chooser: Chooser,
        *,
        until_s: float,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Until every job has its end, or time is up."""
        self.chooser = chooser
        self.open_jobs = len(jobs)
        for job in jobs:
            self.at(job.arrived_s, self.dispatch, job)
        events, pop, told_s = self._events, heapq.heappop, 0.0
        while self.open_jobs and events and events[0][0] <= until_s:
            self.now_s, _, what, args = pop(events)
            what(*args)
            if progress is not None and self.now_s - told_s > 1.0:
                told_s = self.now_s
                progress(self.now_s)

    def rtt_s(self, gateway: int, site: int) -> float:
        return self._rtt_s[gateway][site]

    # jobs

    def dispatch(self, job: SimJob) -> None:
        if self.now_s - job.arrived_s > GIVE_UP_S or job.attempts >= ATTEMPTS_MAX:
            self.open_jobs -= 1
            return
        site = self._chooser.choose(job, self.now_s)
        if site is None:
            self.at(self.now_s + TRY_AGAIN_S, self.dispatch, job)
            return
        job.site = site
        job.attempts += 1
        job.tried.add(site)
        job.first_token_s = None
        self._chooser.sent(job, site, self.now_s)
        self.at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._arrive, job, site)

    def _arrive(self, job: SimJob, site: int) -> None:
        machine = self.machines[site]
        self._chooser.arrived(job, site)
        if not machine.alive:
            self.at(self.now_s + NOTICE_DEAD_S, self._lost, job)
        elif self._refuses(machine, job):
            job.refusals += 1
            job.attempts -= 1
            self.outcomes["refused"] += 1
            report = self._chooser.report(job.gateway, site, self.now_s)
            self.at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._refused, job, report)
        else:
            self.outcomes["accepted"] += 1
            machine.accept(job, self.now_s)
            self._touch(site)

    def _refuses(self, machine: Machine, job: SimJob) -> bool:
        """The rule of the product's node, on what this machine knows about itself."""
        if job.promised_ttft_s == NEVER or job.refusals >= REFUSALS_MAX:
            return False
        own_s = machine.own_ttft_s(job, self.now_s)
        return would_refuse(own_ttft_s=own_s, promised_ttft_s=job.promised_ttft_s)

    def _refused(self, job: SimJob, report: Any) -> None:
        self._chooser.over(job, self.now_s, end=End.REFUSED, report=report)
        self.dispatch(job)

    def _lost(self, job: SimJob) -> None:
        self._chooser.over(job, self.now_s, end=End.FAILED, report=None)
        self.dispatch(job)

    def _first_token(self, job: SimJob, now_s: float) -> None:
        site = job.site or 0
        if job.fails or self._is_broken(job, site):
            job.fails = False
            self.at(now_s, self._fail, job, site)
            return
        job.first_token_s = now_s + self._rtt_s[job.gateway][site] / 2
        self._chooser.first_token(job, now_s)

    def _is_broken(self, job: SimJob, site: int) -> bool:
        """Chance from (seed, job, site), so that every policy meets the same luck."""
        share = self.scenario.sites[site].fail_share
        return share > 0 and random.Random(f"flaky {self._seed} {job.number} {site}").random() < share

    def _fail(self, job: SimJob, site: int) -> None:
        """The job breaks by itself at its first token, unless its machine broke at the same moment."""
        if not self.machines[site].alive:
            return
        self.machines[site].remove(job, self.now_s)
        self.outcomes["failed"] += 1
        self._touch(site)
        self.at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._lost, job)

    def _finished(self, job: SimJob, now_s: float) -> None:
        site = job.site or 0
        self.outcomes["finished"] += 1
        job.finished_s = now_s + self._rtt_s[job.gateway][site] / 2
        self.at(job.finished_s, self._done, job, self._chooser.report(job.gateway, site, now_s))

    def _done(self, job: SimJob, report: Any) -> None:
        self.open_jobs -= 1
        self._chooser.over(job, self.now_s, end=End.DONE, report=report)

    # machines

    def _touch(self, site: int) -> None:
        """A machine changed: plan its next event anew."""
        self._wakes[site] += 1
        due_s = self.machines[site].next_event_s()
        if due_s < NEVER:
            self.at(due_s, self._wake, site, self._wakes[site])
        self._chooser.touched(site, self.now_s)

    def _wake(self, site: int, number: int) -> None:
        if number == self._wakes[site]:
            self.machines[site].wake(self.now_s)
            self._touch(site)

    def _models_changed(self, site: int) -> None:
        if self.chooser is not None:
            self.chooser.models_changed(site, self.now_s)

    def _plan_death(self, site: int) -> None:
        self.deaths_s[site] = self.now_s + self._rng.expovariate(1 / self.scenario.sites[site].mtbf_s)
        self.at(self.deaths_s[site], self._die, site)

    def _die(self, site: int) -> None:
        for job in self.machines[site].die(self.now_s):
            self.outcomes["lost"] += 1
            self.at(self.now_s + NOTICE_LOST_S, self._lost, job)
        self._touch(site)
        self.at(self.now_s + self._rng.expovariate(1 / MTTR_S), self._revive, site)

    def _revive(self, site: int) -> None:
        self.machines[site].revive(self.now_s)
        self._plan_death(site)
        self._touch(site)

    @property
    def _chooser(self) -> Chooser:
        if self.chooser is None:
            raise RuntimeError("the world runs with a policy")
        return self.chooser
