"""Admission control: a job starts now, waits in its model's line, or is refused. Callbacks and timers, no tasks.

1 a free slot and an empty line: start → 2 otherwise load shedding, bounds, then the line → 3 a slot is freed
(`on_freed`): the next in line starts → 4 too long in line: refused. A ticket starts or is refused exactly once, unless
it is cancelled first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import JobShed, NoCapacity, QueueFull, ShuttingDown, SparewattError
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.rng import Rng
from sparewatt.inference.admission.model import AdmissionRequest, AdmissionRules, CapacityView, Priority, TicketState
from sparewatt.inference.admission.rules import is_shed, retry_after_s
from sparewatt.inference.admission.waiting_line import WaitingLine

PACE_S_DEFAULT = 0.5
PACE_EWMA = 0.2
STOPPING_RETRY_S = 2.0


class Ticket:
    """One job's claim to be started."""

    __slots__ = ("_leave", "job", "position", "queued_s", "refuse", "since_s", "start", "state", "timer")

    def __init__(
        self,
        job: AdmissionRequest,
        *,
        start: Callable[[], None],
        refuse: Callable[[SparewattError], None],
        leave: Callable[[Ticket], None],
    ) -> None:
        self.job = job
        self.start = start
        self.refuse = refuse
        self._leave = leave
        self.state = TicketState.WAITING
        self.position: int | None = None
        """Its place in line: when it joined, or when it was refused. None if it never had to wait."""
        self.queued_s = 0.0
        self.since_s = 0.0
        self.timer: Timer | None = None

    def settle(self, state: TicketState) -> None:
        """Final. Drops the callbacks: they refer to the owner, and the cycle would wait for the garbage collector."""
        self.state = state
        self.start = self.refuse = _nothing

    def cancel(self) -> None:
        """The client is gone. Does nothing once the job has started or was refused."""
        if self.state is TicketState.WAITING:
            self._leave(self)


class ModelQueue:
    """The line for one model, and how fast it moves."""

    __slots__ = ("line", "moved_at_s", "pace_s")

    def __init__(self, rules: AdmissionRules, *, now_s: float) -> None:
        self.line: WaitingLine[Ticket] = WaitingLine(rules)
        self.moved_at_s = now_s
        self.pace_s = PACE_S_DEFAULT

    def note_move(self, now_s: float) -> None:
        self.pace_s += PACE_EWMA * (now_s - self.moved_at_s - self.pace_s)
        self.moved_at_s = now_s


class AdmissionControl:
    def __init__(
        self,
        capacity: CapacityView,
        *,
        clock: Clock,
        rng: Rng,
        rules: AdmissionRules | None = None,
        on_waited: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """`on_waited`: called with the seconds that a job spent in line, however that ended."""
        capacity.subscribe(self.on_freed)
        self._capacity = capacity
        self._on_waited = on_waited
        self._clock = clock
        self._rng = rng
        self._rules = rules or AdmissionRules()
        self._lines: dict[str, ModelQueue] = {}
        """Only models with waiting jobs."""
        self._bytes_waiting = 0
        self._bytes_by_account: dict[AccountId, int] = {}
        """Only accounts with waiting jobs."""
        self._to_move: dict[str, None] = {}
        self._move_timer: Timer | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        return sum(self.waiting_by_model().values())

    def waiting_by_model(self) -> dict[str, int]:
        """Only models with waiting jobs."""
        return {model: len(found.line) for model, found in self._lines.items()}

    def must_wait(self, model: ModelId) -> bool:
        """Whether a new job would have to wait. False without any node: waiting would not help."""
        return model in self._lines or (self._capacity.free(model) <= 0 and self._capacity.nodes(model) > 0)

    def has_free_slot(self, model: ModelId) -> bool:
        """Whether a new job may start at once, without a ticket."""
        return not self._closed and model not in self._lines and self._capacity.free(model) > 0

    def admit(
        self, job: AdmissionRequest, *, start: Callable[[], None], refuse: Callable[[SparewattError], None]
    ) -> Ticket:
        """Calls `start` or `refuse`, at once or later, once; neither after `cancel`."""
        ticket = Ticket(job, start=start, refuse=refuse, leave=self._leave)
        if self._closed:
            _refuse(ticket, _stopping())
        elif not self.must_wait(job.model):
            _start(ticket)
        else:
            self._join_line(ticket)
        return ticket

    def on_freed(self, models: Iterable[str]) -> None:
        """A node with these models gained a free slot. Called often, and nearly always the lines are empty.

        Waiting jobs start in a later tick: the caller may be in the middle of ending a job.
        """
        if not self._lines:
            return
        self._to_move.update((model, None) for model in models if model in self._lines)
        if self._to_move and self._move_timer is None:
            self._move_timer = self._clock.call_later(0.0, self._move)

    def close(self) -> None:
        """The gateway stops: refuse all waiting and all later jobs."""
        self._closed = True
        for ticket in [ticket for found in self._lines.values() for ticket in found.line]:
            self._remove_and_refuse(ticket, _stopping())

    # joining the line

    def _join_line(self, ticket: Ticket) -> None:
        job = ticket.job
        found = self._lines.get(job.model) or ModelQueue(self._rules, now_s=self._clock.now_s())
        ticket.position = found.line.position_if_joined(job)
        error = self._refusal(ticket, found)
        if error is not None:
            _refuse(ticket, error)
            return
        self._lines[job.model] = found
        self._make_room(job, found)
        found.line.join(ticket)
        self._count_bytes(job, job.body_bytes)
        ticket.since_s = self._clock.now_s()
        ticket.timer = self._clock.call_later(self._rules.wait_s, lambda: self._time_out(ticket))
        if self._capacity.free(job.model) > 0:
            self.on_freed((job.model,))

    def _refusal(self, ticket: Ticket, found: ModelQueue) -> SparewattError | None:
        """Why a job may not wait, if so."""
        job, line = ticket.job, found.line
        if job.priority is Priority.LOW and is_shed(
            job.priority, saturation=line.saturation, chance=self._rng.random()
        ):
            text = f"{job.model!r} is busy, and low-priority requests are turned away first."
            return JobShed(text, retry_after_s=self._retry_after_s(ticket, found))
        if self._is_without_room(job, line) and line.displaced_by(job) is None:
            return self._full(ticket, found)
        own_bytes = self._bytes_by_account.get(job.account_id, 0)
        if own_bytes + job.body_bytes > self._rules.account_bytes_max:
            text = "Too many large requests of this account are waiting here already. Wait for one of them to start."
            return QueueFull(text, retry_after_s=self._retry_after_s(ticket, found))
        if self._bytes_waiting + job.body_bytes > self._rules.bytes_max:
            text = "Too many large requests are waiting here already."
            return QueueFull(text, retry_after_s=self._retry_after_s(ticket, found))
        return None

    @staticmethod
    def _is_without_room(job: AdmissionRequest, line: WaitingLine[Ticket]) -> bool:
        return line.account_is_full(job) or line.band_is_full(job)

    def _make_room(self, job: AdmissionRequest, found: ModelQueue) -> None:
        """Where there is no room, who has the most in line loses the newest job to one with fewer."""
        if not self._is_without_room(job, found.line):
            return
        displaced = found.line.displaced_by(job)
        if displaced is not None:
            displaced.position = found.line.position_of(displaced)
            self._remove_and_refuse(displaced, self._full(displaced, found))

    def _full(self, ticket: Ticket, found: ModelQueue) -> QueueFull:
        job, band = ticket.job, ticket.job.priority.value
        if found.line.account_is_full(job):
            share = f"{self._rules.per_account} requests waiting for {job.model!r}"
            text = f"This account has {share} already, over all of its keys, which is its share."
            return QueueFull(text, retry_after_s=self._retry_after_s(ticket, found))
        return QueueFull(
            f"The line for {ticket.job.model!r} is full: {self._rules.per_band} wait at priority {band!r}, "
            f"and this request would be number {ticket.position}.",
            retry_after_s=self._retry_after_s(ticket, found),
        )

    def _retry_after_s(self, ticket: Ticket, found: ModelQueue) -> float:
        return retry_after_s(ticket.position or 1, pace_s=found.pace_s)

    # leaving the line

    def _move(self) -> None:
        """Start the next jobs in line, while slots are free."""
        self._move_timer = None
        try:
            while self._to_move:
                model = next(iter(self._to_move))
                self._move_line(ModelId(model))
                self._to_move.pop(model, None)
        finally:
            self.on_freed(tuple(self._to_move))  # a start that broke must not hold up the others

    def _move_line(self, model: ModelId) -> None:
        while (found := self._lines.get(model)) is not None and self._capacity.free(model) > 0:
            found.note_move(self._clock.now_s())
            ticket = found.line.next()
            self._has_left(ticket)
            _start(ticket)

    def _leave(self, ticket: Ticket) -> None:
        self._lines[ticket.job.model].line.leave(ticket)
        self._has_left(ticket)
        ticket.settle(TicketState.LEFT)

    def _time_out(self, ticket: Ticket) -> None:
        found = self._lines[ticket.job.model]
        ticket.position = found.line.position_of(ticket)
        text = (
            f"No node had a free place for {ticket.job.model!r} within {self._rules.wait_s:.0f} s; "
            f"this request was number {ticket.position} in line."
        )
        self._remove_and_refuse(ticket, NoCapacity(text, retry_after_s=self._retry_after_s(ticket, found)))

    def _remove_and_refuse(self, ticket: Ticket, error: SparewattError) -> None:
        self._lines[ticket.job.model].line.leave(ticket)
        self._has_left(ticket)
        _refuse(ticket, error)

    def _has_left(self, ticket: Ticket) -> None:
        """Update the counts for a ticket that left the line."""
        ticket.queued_s = self._clock.now_s() - ticket.since_s
        self._on_waited(ticket.queued_s)
        self._count_bytes(ticket.job, -ticket.job.body_bytes)
        if ticket.timer is not None:
            ticket.timer.cancel()
        if not self._lines[ticket.job.model].line:
            del self._lines[ticket.job.model]

    def _count_bytes(self, job: AdmissionRequest, more: int) -> None:
        self._bytes_waiting += more
        left = self._bytes_by_account.get(job.account_id, 0) + more
        if left:
            self._bytes_by_account[job.account_id] = left
        else:
            self._bytes_by_account.pop(job.account_id, None)


def _start(ticket: Ticket) -> None:
    start = ticket.start
    ticket.settle(TicketState.STARTED)
    start()


def _refuse(ticket: Ticket, error: SparewattError) -> None:
    refuse = ticket.refuse
    ticket.settle(TicketState.REFUSED)
    refuse(error)


def _nothing(*_: object) -> None:
    """What a ticket calls that is settled."""


def _stopping() -> ShuttingDown:
    return ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=STOPPING_RETRY_S)
