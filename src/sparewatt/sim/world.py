"""The event loop: jobs arrive, are sent somewhere, machines work, die and come back. One virtual clock, no waiting."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from sparewatt.sim.physics import NEVER, Callbacks, Machine, SimJob
from sparewatt.sim.scenario import MTTR_S, Scenario

NOTICE_LOST_S = 5.0
"""A machine that vanishes in the middle of an answer is noticed this much later."""
NOTICE_DEAD_S = 2.0
"""Sending to a machine that is gone is noticed this much later."""
ATTEMPTS_MAX = 5
GIVE_UP_S = 300.0
TRY_AGAIN_S = 1.0


class Chooser(Protocol):
    """A policy with everything it may know. The oracle's knows the world itself."""

    def choose(self, job: SimJob, now_s: float) -> int | None: ...

    def sent(self, job: SimJob, site: int, now_s: float) -> None: ...

    def arrived(self, job: SimJob, site: int) -> None: ...

    def first_token(self, job: SimJob, now_s: float) -> None: ...

    def over(self, job: SimJob, now_s: float, *, done: bool) -> None: ...

    def touched(self, site: int, now_s: float) -> None: ...


class World:
    def __init__(self, scenario: Scenario, *, seed: int, gateway_regions: Sequence[int]) -> None:
        self.scenario = scenario
        self.now_s = 0.0
        tell = Callbacks(self._first_token, self._finished, self._models_changed)
        self.machines = [Machine(site, scenario.models, tell) for site in scenario.sites]
        self.deaths_s = [NEVER] * len(self.machines)
        self.gateway_regions = tuple(gateway_regions)
        self._rng = random.Random(f"world {seed}")  # noqa: S311 (repeatable)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wakes = [0] * len(self.machines)
        self._on_site: dict[int, SimJob] = {}
        self.chooser: Chooser | None = None
        for site in range(len(self.machines)):
            self._plan_death(site)

    # time

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), what))

    def run(self, jobs: Sequence[SimJob], chooser: Chooser, *, until_s: float) -> None:
        self.chooser = chooser
        for job in jobs:
            self.at(job.arrived_s, lambda job=job: self.dispatch(job))  # type: ignore[misc]
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self._events)
            what()

    def rtt_s(self, gateway: int, site: int) -> float:
        place = self.scenario.sites[site]
        return self.scenario.rtt_s[self.gateway_regions[gateway]][place.region] + place.last_mile_s

    # jobs

    def dispatch(self, job: SimJob) -> None:
        if self.now_s - job.arrived_s > GIVE_UP_S or job.attempts >= ATTEMPTS_MAX:
            return
        site = self._chooser.choose(job, self.now_s)
        if site is None:
            self.at(self.now_s + TRY_AGAIN_S, lambda: self.dispatch(job))
            return
        job.site = site
        job.attempts += 1
        job.tried.add(site)
        job.first_token_s = None
        self._chooser.sent(job, site, self.now_s)
        self.at(self.now_s + self.rtt_s(job.gateway, site) / 2, lambda: self._arrive(job, site))

    def _arrive(self, job: SimJob, site: int) -> None:
        machine = self.machines[site]
        self._chooser.arrived(job, site)
        if not machine.alive:
            self.at(self.now_s + NOTICE_DEAD_S, lambda: self._lost(job))
            return
        self._on_site[job.number] = job
        job.started_here_s = self.now_s
        machine.accept(job, self.now_s)
        self._touch(site)

    def _lost(self, job: SimJob) -> None:
        self._chooser.over(job, self.now_s, done=False)
        self.dispatch(job)

    def _first_token(self, job: SimJob, now_s: float) -> None:
        if job.fails:
            job.fails = False
            self.at(now_s, lambda: self._fail(job))
            return
        job.first_token_s = now_s + self.rtt_s(job.gateway, job.site or 0) / 2
        self._chooser.first_token(job, now_s)

    def _fail(self, job: SimJob) -> None:
        """The job breaks by itself, before its first token."""
        site = job.site or 0
        if self._on_site.pop(job.number, None) is not None:
            self.machines[site].remove(job, self.now_s)
            self._touch(site)
        self.at(self.now_s + self.rtt_s(job.gateway, site) / 2, lambda: self._lost(job))

    def _finished(self, job: SimJob, now_s: float) -> None:
        self._on_site.pop(job.number, None)
        job.finished_s = now_s + self.rtt_s(job.gateway, job.site or 0) / 2
        self.at(job.finished_s, lambda: self._chooser.over(job, self.now_s, done=True))

    # machines

    def _touch(self, site: int) -> None:
        """A machine changed: plan its next event anew."""
        machine = self.machines[site]
        self._wakes[site] += 1
        number = self._wakes[site]
        due_s = machine.next_event_s()
        if due_s < NEVER:
            self.at(due_s, lambda: self._wake(site, number))
        self._chooser.touched(site, self.now_s)

    def _wake(self, site: int, number: int) -> None:
        if number == self._wakes[site]:
            self.machines[site].wake(self.now_s)
            self._touch(site)

    def _models_changed(self, site: int) -> None:
        if self.chooser is not None:
            self.chooser.touched(site, self.now_s)

    def _plan_death(self, site: int) -> None:
        self.deaths_s[site] = self.now_s + self._rng.expovariate(1 / self.scenario.sites[site].mtbf_s)
        self.at(self.deaths_s[site], lambda: self._die(site))

    def _die(self, site: int) -> None:
        for job in self.machines[site].die(self.now_s):
            self._on_site.pop(job.number, None)
            self.at(self.now_s + NOTICE_LOST_S, lambda job=job: self._lost(job))  # type: ignore[misc]
        self._touch(site)
        self.at(self.now_s + self._rng.expovariate(1 / MTTR_S), lambda: self._revive(site))

    def _revive(self, site: int) -> None:
        self.machines[site].revive(self.now_s)
        self._plan_death(site)
        self._touch(site)

    @property
    def _chooser(self) -> Chooser:
        if self.chooser is None:
            raise RuntimeError("the world runs with a policy")
        return self.chooser
