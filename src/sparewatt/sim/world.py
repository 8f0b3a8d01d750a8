"""The simulation's event loop on a virtual clock: jobs arrive and are dispatched, machines work, die and return.

Which machine gets a job is decided by a `Scheduler`.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from sparewatt.core.limits import ATTEMPTS_MAX
from sparewatt.inference.dispatch.node_selection import RETRY_AFTER_S
from sparewatt.inference.dispatch.reply import StreamReply
from sparewatt.sim.fleet.machine import NEVER, MachineCallbacks, SimMachine
from sparewatt.sim.fleet.node import SimNode
from sparewatt.sim.scenario import MTTR_S, Hostility, Scenario
from sparewatt.sim.traffic import SimJob

NOTICE_LOST_S = 5.0
"""Delay until the gateway notices that a machine died in the middle of an answer."""
NOTICE_DEAD_S = 2.0
"""Delay until the gateway notices that a job was sent to a dead machine."""
GIVE_UP_S = 300.0
"""How long a client retries."""
FIRST_TOKEN_FACTOR, FIRST_TOKEN_LEAST_S = 4.0, 2.0
"""As in dispatch: how long the gateway waits for a first token, by what it predicted."""
STALL_S = 3.0
"""Silence in an answer after which another node continues it."""
SLEEPER_JOBS = 10
"""Jobs that a sleeper serves before it shows what it is."""
NONSENSE_S = 0.1
MALFORMED_REPLY = b"data: lorem ipsum\n\n"
"""The reply of a node with malformed answers."""


class AttemptEnd(Enum):
    """How one attempt ended, as the gateway sees it."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


Start = Callable[[SimJob], None]
Refuse = Callable[[SimJob, float], None]
"""With the seconds after which the client may retry."""


class Scheduler(Protocol):
    """Chooses machines for jobs, from what it was notified of. Only the oracle reads the world itself."""

    def admit(self, job: SimJob, *, start: Start, refuse: Refuse) -> None:
        """Calls one of the two, now or later, once."""

    def choose(self, job: SimJob, now_s: float) -> int | None:
        """The machine to which the job is sent now."""

    def on_arrived(self, job: SimJob, site: int) -> None: ...

    def on_first_token(self, job: SimJob, now_s: float) -> None: ...

    def report(self, gateway: int, site: int, now_s: float) -> Any:
        """What the node attaches to a reply that it sends now."""

    def on_end(self, job: SimJob, now_s: float, *, end: AttemptEnd, report: Any) -> None: ...

    def on_machine_change(self, site: int, now_s: float) -> None: ...

    def on_models_change(self, site: int, now_s: float) -> None: ...


class World:
    """The true state. `outcomes` counts what happened to jobs: each accepted one leaves its machine exactly once."""

    def __init__(self, scenario: Scenario, *, seed: int, gateway_regions: Sequence[int]) -> None:
        self.scenario = scenario
        self.now_s = 0.0
        callbacks = MachineCallbacks(self._first_token, self._finished, self._models_changed)
        gateways = len(gateway_regions)
        self.machines = [SimMachine(site, scenario.models, callbacks, gateways=gateways) for site in scenario.sites]
        self.nodes = [SimNode(machine) for machine in self.machines]
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
        self.scheduler: Scheduler | None = None
        self._slept: Counter[int] = Counter()
        """Jobs that each sleeper has served."""
        for site, machine in enumerate(self.machines):
            if machine.site.is_absent:
                machine.die(0.0)
            else:
                self._plan_death(site)

    # time

    def call_at(self, when_s: float, callback: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (when_s, self._order, callback, args))

    def run(
        self,
        jobs: Sequence[SimJob],
        scheduler: Scheduler,
        *,
        until_s: float,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Until every job has ended, or `until_s`."""
        self.scheduler = scheduler
        self.open_jobs = len(jobs)
        for job in jobs:
            self.call_at(job.arrived_s, self.submit, job)
        self.run_until(until_s=until_s, progress=progress)

    def run_until(self, *, until_s: float, progress: Callable[[float], None] | None = None) -> None:
        events, pop, shown_s = self._events, heapq.heappop, 0.0
        while self.open_jobs and events and events[0][0] <= until_s:
            self.now_s, _, callback, args = pop(events)
            callback(*args)
            if progress is not None and self.now_s - shown_s > 1.0:
                shown_s = self.now_s
                progress(self.now_s)

    def rtt_s(self, gateway: int, site: int) -> float:
        return self._rtt_s[gateway][site]

    # jobs

    def submit(self, job: SimJob) -> None:
        """A client sends its request, for the first time or again."""
        job.reset_attempts()
        self._scheduler.admit(job, start=self.dispatch, refuse=self._retry_later)

    def _retry_later(self, job: SimJob, after_s: float) -> None:
        """The client was refused. It retries after the given delay, for up to GIVE_UP_S."""
        self.outcomes["turned_away"] += 1
        if self.now_s + after_s - job.arrived_s > GIVE_UP_S:
            self.open_jobs -= 1
        else:
            self.call_at(self.now_s + after_s, self.submit, job)

    def dispatch(self, job: SimJob) -> None:
        if job.attempts >= ATTEMPTS_MAX:
            self.open_jobs -= 1
            return
        job.cached_tokens = 0
        site = self._scheduler.choose(job, self.now_s)
        if site is None and job.pinned is not None:
            self.open_jobs -= 1
            return
        if site is None:
            self._retry_later(job, RETRY_AFTER_S)
            return
        job.site, job.sent_s = site, self.now_s
        job.attempts += 1
        job.tried.add(site)
        job.first_token_s = None
        self.call_at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._arrive, job, site)

    def _arrive(self, job: SimJob, site: int) -> None:
        machine = self.machines[site]
        self._scheduler.on_arrived(job, site)
        if not machine.alive:
            self.call_at(self.now_s + NOTICE_DEAD_S, self._lost, job)
        elif (way := self._hostility(site)) is not None:
            self._harm(job, site, way)
        elif (late_s := self.nodes[site].late_ttft_s(job, self.now_s)) is not None:
            job.refusals += 1
            job.attempts -= 1
            job.late[site] = late_s
            self.outcomes["refused"] += 1
            report = self._scheduler.report(job.gateway, site, self.now_s)
            self.call_at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._refused, job, report)
        else:
            self.outcomes["accepted"] += 1
            self.nodes[site].begin(job, self.now_s)
            machine.accept(job, self.now_s)
            self._reschedule(site)

    def _hostility(self, site: int) -> Hostility | None:
        """What a hostile node does now; None while it does what it should."""
        way = self.scenario.sites[site].hostility
        if way is Hostility.SLEEPER:
            self._slept[site] += 1
            return None if self._slept[site] <= SLEEPER_JOBS else Hostility.REFUSES
        return way

    def _harm(self, job: SimJob, site: int, way: Hostility) -> None:
        back_s = self._rtt_s[job.gateway][site] / 2
        self.outcomes[way.value] += 1
        if way is Hostility.SILENT:
            deadline_s = max(FIRST_TOKEN_LEAST_S, FIRST_TOKEN_FACTOR * (job.predicted_ttft_s or 0.0))
            self.call_at(max(self.now_s, job.sent_s + deadline_s), self._lost, job)
        elif way is Hostility.STALLS:
            job.first_token_s = self.now_s + back_s
            self._scheduler.on_first_token(job, self.now_s)
            self.call_at(job.first_token_s + STALL_S, self._lost, job)
        elif way is Hostility.NONSENSE:
            job.first_token_s, job.is_nonsense = self.now_s + back_s, True
            job.finished_s = self.now_s + NONSENSE_S + back_s
            self._scheduler.on_first_token(job, self.now_s)
            self.call_at(job.finished_s, self._done, job, self._scheduler.report(job.gateway, site, self.now_s))
        else:
            self.call_at(self.now_s + back_s, self._lost, job)

    def _refused(self, job: SimJob, report: Any) -> None:
        self._scheduler.on_end(job, self.now_s, end=AttemptEnd.REFUSED, report=report)
        self.dispatch(job)

    def _lost(self, job: SimJob) -> None:
        """Before the first token the gateway fails over to another node; after it only the client can retry."""
        was_answering, job.was_retried = job.first_token_s is not None, True
        self._scheduler.on_end(job, self.now_s, end=AttemptEnd.FAILED, report=None)
        if job.pinned is not None:
            self.open_jobs -= 1
        elif was_answering:
            self._retry_later(job, 0.0)
        else:
            self.dispatch(job)

    def _first_token(self, job: SimJob, now_s: float) -> None:
        site = job.site or 0
        self.nodes[site].first_token(job, now_s)
        if job.fails or self._is_broken(job, site) or self._is_malformed(site):
            job.fails = False
            self.call_at(now_s, self._fail, job, site)
            return
        job.first_token_s = now_s + self._rtt_s[job.gateway][site] / 2
        self._scheduler.on_first_token(job, now_s)

    def _is_broken(self, job: SimJob, site: int) -> bool:
        """Drawn from (seed, job, site), so that every scheduler meets the same failures."""
        share = self.scenario.sites[site].fail_share
        return share > 0 and random.Random(f"flaky {self._seed} {job.number} {site}").random() < share

    def _is_malformed(self, site: int) -> bool:
        """Whether the product's parser rejects the replies of this node."""
        is_malformed = self.scenario.sites[site].is_malformed
        return is_malformed and StreamReply(wants_usage=False).feed(MALFORMED_REPLY).broken is not None

    def _fail(self, job: SimJob, site: int) -> None:
        """The job fails at its first token, unless its machine died at the same moment."""
        if not self.machines[site].alive:
            return
        self.machines[site].remove(job, self.now_s)
        self.nodes[site].end(job, self.now_s)
        self.outcomes["failed"] += 1
        self._reschedule(site)
        self.call_at(self.now_s + self._rtt_s[job.gateway][site] / 2, self._lost, job)

    def _finished(self, job: SimJob, now_s: float) -> None:
        site = job.site or 0
        self.outcomes["finished"] += 1
        self.nodes[site].end(job, now_s)
        job.is_nonsense = self.scenario.sites[site].is_garbage
        job.finished_s = now_s + self._rtt_s[job.gateway][site] / 2
        self.call_at(job.finished_s, self._done, job, self._scheduler.report(job.gateway, site, now_s))

    def _done(self, job: SimJob, report: Any) -> None:
        self.open_jobs -= 1
        self._scheduler.on_end(job, self.now_s, end=AttemptEnd.DONE, report=report)

    # machines

    def _reschedule(self, site: int) -> None:
        """After a change of the machine: schedule its next event again; the one before is void."""
        self._wakes[site] += 1
        due_s = self.machines[site].next_event_s()
        if due_s < NEVER:
            self.call_at(due_s, self._wake, site, self._wakes[site])
        self._scheduler.on_machine_change(site, self.now_s)

    def _wake(self, site: int, number: int) -> None:
        if number == self._wakes[site]:
            self.machines[site].wake(self.now_s)
            self._reschedule(site)

    def _models_changed(self, site: int) -> None:
        if self.scheduler is not None:
            self.scheduler.on_models_change(site, self.now_s)

    def _plan_death(self, site: int) -> None:
        self.deaths_s[site] = self.now_s + self._rng.expovariate(1 / self.scenario.sites[site].mtbf_s)
        self.call_at(self.deaths_s[site], self._die, site)

    def _die(self, site: int) -> None:
        for job in self.machines[site].die(self.now_s):
            self.outcomes["lost"] += 1
            self.call_at(self.now_s + NOTICE_LOST_S, self._lost, job)
        self.nodes[site].restart()
        self._reschedule(site)
        self.call_at(self.now_s + self._rng.expovariate(1 / MTTR_S), self._revive, site)

    def _revive(self, site: int) -> None:
        self.machines[site].revive(self.now_s)
        self._plan_death(site)
        self._reschedule(site)

    @property
    def _scheduler(self) -> Scheduler:
        if self.scheduler is None:
            raise RuntimeError("the world runs only with a scheduler")
        return self.scheduler


# the product's Clock, on the world's time


@dataclass(slots=True, eq=False)
class VirtualTimer:
    """Implements Timer."""

    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


@dataclass(frozen=True, slots=True)
class VirtualClock:
    """Implements Clock."""

    world: World

    def now_s(self) -> float:
        return self.world.now_s

    unix_s = now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        self.world.call_at(self.world.now_s + max(0.0, delay_s), timer.fire)
        return timer
