"""One call on its way through: in line if it must, then run, its reply in the sink."""

from __future__ import annotations

from typing import Generic, TypeVar

from sparewatt.core.errors import SparewattError
from sparewatt.gateway.openai.paying import drop_tab
from sparewatt.gateway.openai.routing import Routing
from sparewatt.gateway.services import Services
from sparewatt.inference.admission.model import Applicant, Priority
from sparewatt.inference.admission.rules import cost_tokens
from sparewatt.inference.admission.service import Ticket
from sparewatt.inference.dispatch.model import Job, Sink
from sparewatt.inference.dispatch.run import JobRun
from sparewatt.inference.matcher.model import Decision, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.metering.rules import deliveries_of
from sparewatt.inference.metering.service import RunningTab
from sparewatt.protocol.openai import TOKENS_MAX

_WORTH_WAITING = frozenset({Rejection.FULL, Rejection.NOT_MEASURED})
"""Reasons that pass by themselves, within seconds, on a node that is there."""


S = TypeVar("S", bound=Sink)


class Errand(Generic[S]):
    """`sink` hears of the reply once it has begun: perhaps before `begin` has returned."""

    def __init__(
        self,
        job: Job,
        sink: S,
        *,
        routing: Routing,
        policy: Policy,
        priority: Priority,
        tab: RunningTab | None,
        services: Services,
    ) -> None:
        self.job = job
        self.routing = routing
        self.tab = tab
        self.sink = sink
        self.run: JobRun | None = None
        self._policy = policy
        self._services = services
        self._priority = priority
        self.ticket: Ticket | None = None

    def begin(self) -> None:
        """Start, or stand in line. Raises only if something broke; then nothing is held any more."""
        try:
            self.ticket = self._admit()
        except BaseException:
            drop_tab(self.tab)
            raise

    def _admit(self) -> Ticket | None:
        admission = self._services.admission
        if admission.lets_through(self.job.match.model):
            self._start()
            return None
        if admission.must_wait(self.job.match.model) and not self._can_come_true():
            self._start()  # waiting would not help; dispatch says why
            return None
        return admission.admit(applicant_for(self.job, self._priority), start=self._start, refuse=self._refuse)

    def cancel(self) -> None:
        """The client is gone: out of the line, or off the node. Does nothing if the job is over."""
        if self.ticket is not None:
            self.ticket.cancel()
        if self.run is not None:
            self.run.cancel()
        else:
            drop_tab(self.tab)

    def consumed(self, n_bytes: int) -> None:
        """So much was taken from the sink and is gone: the node may send on."""
        if self.run is not None:
            self.run.consumed(n_bytes)

    def server(self) -> str:
        """The kind of model server that has it, once somebody has."""
        attempts = self.run.record.attempts if self.run is not None else ()
        row = self._services.table.get(attempts[-1].node_id) if attempts else None
        return row.specs.backend if row is not None else ""

    def used_tokens(self) -> int:
        """Read and written for the client by now, as the books count it; also where there are none."""
        if self.run is None:
            return 0
        if self.tab is not None:
            return self.tab.used_tokens()
        match = self.job.match
        bound = TOKENS_MAX if match.output_tokens else 0
        found = deliveries_of(self.run.record.attempts, prompt_estimate=match.prompt_tokens, output_bound=bound)
        prompt = max((delivery.prompt_tokens for delivery in found), default=0)  # one, however many nodes read it
        return prompt + sum(delivery.completion_tokens for delivery in found)

    def _can_come_true(self) -> bool:
        """Whether some node could have the job, if only it had room."""
        decision = self._services.dispatcher.dry_run(self.job.match, policy=self._policy, gate=self.job.gate)
        return is_worth_waiting(decision)

    def _start(self) -> None:
        if self.tab is None:
            self.run = self._services.dispatcher.dispatch(self.job, self.sink, policy=self._policy)
            return
        try:
            self.tab.start()
        except SparewattError as error:
            self._refuse(error)
            return
        self.run = self._services.dispatcher.dispatch(self.job, self.sink, policy=self._policy)
        self.tab.watch(self.run.record.attempts)

    def _refuse(self, error: SparewattError) -> None:
        self.sink.fail(error, {})


def is_worth_waiting(decision: Decision) -> bool:
    return decision.best is not None or any(decision.dropped.get(reason) for reason in _WORTH_WAITING)


def applicant_for(job: Job, priority: Priority) -> Applicant:
    return Applicant(
        key_id=job.key_id,
        model=job.match.model,
        cost_tokens=cost_tokens(job.match.prompt_tokens, job.match.output_tokens),
        priority=priority,
        body_bytes=len(job.body),
    )
