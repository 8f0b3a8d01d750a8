from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.core.errors import JobShed, NoCapacity, QueueFull, ShuttingDown
from sparewatt.core.ids import ModelId
from sparewatt.inference.admission.model import AdmissionRules, Priority, TicketState
from tests.trying import walks
from tests.unit.inference.waiting_line import MODEL, Desk, an_applicant

SMALL = AdmissionRules(per_band=4, per_account=3, bytes_max=1000)
OTHER = ModelId("other")


def test_with_room_a_job_starts_at_once_and_no_line_is_touched() -> None:
    desk = Desk(free=1)
    desk.come()
    assert desk.started == [0]
    assert desk.tickets[0].position is None
    assert (desk.admission.waiting, desk.clock.pending) == (0, 0)


def test_without_room_a_job_waits_and_starts_when_a_place_comes_free() -> None:
    desk = Desk()
    desk.come()
    assert (desk.started, desk.admission.waiting, desk.tickets[0].position) == ([], 1, 1)
    desk.clock.advance(1.5)
    desk.make_room()
    assert desk.started == [0]
    assert desk.tickets[0].queued_s == 1.5
    assert desk.clock.pending == 0


def test_nobody_waits_for_nodes_that_are_not_there() -> None:
    desk = Desk(nodes=0)
    desk.come()
    assert desk.started == [0]  # dispatch knows what to say


def test_who_comes_later_does_not_pass_those_who_wait() -> None:
    desk = Desk()
    first = desk.come()
    desk.room.change(1)  # nobody has said so yet
    second = desk.come()
    assert desk.started == []
    desk.clock.advance(0)
    assert desk.started == [first]
    desk.make_room()
    assert desk.started == [first, second]


def test_a_line_moves_in_a_turn_of_its_own() -> None:
    """Whoever gives a place back may be in the middle of ending a job."""
    desk = Desk()
    desk.come()
    desk.room.change(1)
    desk.admission.on_freed([MODEL])
    desk.admission.on_freed([MODEL])
    assert desk.started == []
    desk.clock.advance(0)
    assert desk.started == [0]
    assert desk.clock.pending == 0


def test_the_line_of_one_model_holds_up_no_other() -> None:
    desk = Desk()
    desk.come()
    desk.room.change(1, OTHER)
    desk.come(an_applicant(model=OTHER))
    assert desk.started == [1]


def test_no_more_start_than_there_is_room_for() -> None:
    desk = Desk()
    desk.come_all([an_applicant()] * 5)
    desk.make_room(3)
    assert len(desk.started) == 3
    assert desk.admission.waiting == 2


def test_a_job_that_waits_too_long_is_told_so_with_its_position() -> None:
    desk = Desk()
    desk.come_all([an_applicant(), an_applicant()])
    desk.clock.advance(60)
    error = desk.refused[1]
    assert isinstance(error, NoCapacity)
    assert error.retry_after_s is not None
    assert "60 s" in error.message
    assert desk.tickets[1].position == 1  # the other was told first
    assert desk.tickets[1].queued_s == 60
    desk.make_room(2)
    assert desk.started == []
    assert (desk.admission.waiting, desk.clock.pending) == (0, 0)


def test_a_job_that_leaves_frees_its_place_and_is_told_nothing() -> None:
    desk = Desk()
    desk.come_all([an_applicant(), an_applicant()])
    desk.tickets[0].cancel()
    desk.tickets[0].cancel()
    assert desk.admission.waiting == 1
    desk.make_room(2)
    assert (desk.started, desk.refused) == ([1], {})
    assert desk.tickets[0].state is TicketState.LEFT
    assert desk.clock.pending == 0


def test_a_ticket_that_has_started_can_be_cancelled_without_effect() -> None:
    desk = Desk(free=1)
    desk.come()
    desk.tickets[0].cancel()
    assert desk.tickets[0].state is TicketState.STARTED


def test_an_account_cannot_have_more_in_line_than_its_share() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant("a")] * 4)
    assert list(desk.refused) == [3]
    error = desk.refused[3]
    assert isinstance(error, QueueFull)
    assert (error.status, error.code, error.kind) == (429, "queue_full", "rate_limit_error")
    assert error.retry_after_s is not None
    assert desk.tickets[3].position == 4
    assert "This account has 3 requests waiting" in error.message


def test_more_keys_give_an_account_no_more_room() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant(f"a{n}", account="a") for n in range(4)])
    assert list(desk.refused) == [3]
    assert isinstance(desk.refused[3], QueueFull)
    assert "over all of its keys" in desk.refused[3].message


def test_sixty_keys_of_one_account_leave_a_bystander_his_place() -> None:
    """The cheapest way to fill a line: keys cost nothing, and each brings one job at a time."""
    desk = Desk()
    flood = desk.come_all([an_applicant(f"flood{n % 60}", 1000, account="flood") for n in range(240)])
    bystander = desk.come_all([an_applicant("bystander", 1000)] * 20)
    assert not set(bystander) & set(desk.refused)
    assert set(flood) & set(desk.refused)
    desk.make_room(10)
    assert len(set(bystander) & set(desk.started)) == 5  # every other turn


def test_in_an_accounts_full_share_its_longest_key_makes_room_for_one_with_fewer() -> None:
    desk = Desk(rules=SMALL)
    first = desk.come_all([an_applicant("a1", account="a")] * 3)
    other_key = desk.come(an_applicant("a2", account="a"))
    assert list(desk.refused) == [first[-1]]
    assert other_key not in desk.refused
    assert desk.admission.waiting == 3


def test_one_account_cannot_take_all_bytes_that_may_wait() -> None:
    desk = Desk(rules=SMALL)
    desk.come(an_applicant("a1", account="a", body_bytes=300))
    refused = desk.come(an_applicant("a2", account="a", body_bytes=300))
    assert isinstance(desk.refused[refused], QueueFull)
    assert "of this account" in desk.refused[refused].message
    desk.come(an_applicant("b", body_bytes=300))
    desk.tickets[0].cancel()
    desk.come(an_applicant("a2", account="a", body_bytes=300))
    assert list(desk.refused) == [refused]


def test_in_a_full_band_the_longest_lane_makes_room_for_a_key_with_fewer() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant("a")] * 3 + [an_applicant("b")])
    newcomer = desk.come(an_applicant("c"))
    assert list(desk.refused) == [2]
    assert isinstance(desk.refused[2], QueueFull)
    assert newcomer not in desk.refused
    assert desk.admission.waiting == 4


def test_a_full_band_of_equals_takes_nobody_else() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant(key) for key in "abcd"])
    newcomer = desk.come(an_applicant("e"))
    assert isinstance(desk.refused[newcomer], QueueFull)
    assert "would be number 5" in desk.refused[newcomer].message
    assert desk.tickets[newcomer].position == 5


def test_the_bands_are_bounded_apart() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant(key) for key in "abcd"])
    desk.come_all([an_applicant(key, priority=Priority.HIGH) for key in "abcd"])
    assert desk.refused == {}


def test_bodies_that_wait_are_bounded_in_bytes_over_all_models() -> None:
    desk = Desk(rules=SMALL)
    desk.come_all([an_applicant(key, body_bytes=450) for key in "ab"])
    desk.come(an_applicant("c", body_bytes=200, model=OTHER))
    assert isinstance(desk.refused[2], QueueFull)
    desk.tickets[0].cancel()
    desk.come(an_applicant("c", body_bytes=200, model=OTHER))
    assert list(desk.refused) == [2]


def test_low_priority_is_shed_by_chance_when_the_line_fills_up() -> None:
    desk = Desk(chance=0.5)
    desk.come_all([an_applicant(f"key{n % 30}") for n in range(90)])
    low = desk.come(an_applicant(priority=Priority.LOW))
    assert isinstance(desk.refused[low], JobShed)
    assert desk.refused[low].retry_after_s is not None
    desk.chance.value = 0.99
    assert desk.come(an_applicant(priority=Priority.LOW)) not in desk.refused


def test_low_priority_waits_like_the_others_in_a_short_line() -> None:
    desk = Desk(chance=0.01)
    desk.come_all([an_applicant(priority=Priority.LOW)] * 3)
    assert desk.refused == {}


def test_when_to_come_back_follows_the_pace_of_the_line() -> None:
    def told(pace_s: float) -> float:
        desk = Desk(rules=AdmissionRules(per_band=20, per_account=20, wait_s=3600))
        desk.come_all([an_applicant()] * 20)
        for _ in range(10):
            desk.clock.advance(pace_s)
            desk.make_room()
            desk.come()
        return desk.refused[desk.come()].retry_after_s or 0.0

    assert 1 <= told(0.1) < told(1.0) < told(30.0) <= 60


def test_a_gateway_that_stops_sends_everybody_away() -> None:
    desk = Desk()
    desk.come_all([an_applicant(), an_applicant(model=OTHER)])
    desk.admission.close()
    desk.come()
    assert {type(error) for error in desk.refused.values()} == {ShuttingDown}
    assert len(desk.refused) == 3
    assert (desk.admission.waiting, desk.clock.pending) == (0, 0)


def test_a_start_that_breaks_does_not_hold_up_the_next() -> None:
    desk = Desk()

    def broken() -> None:
        raise RuntimeError("a bug")

    desk.admission.admit(an_applicant(), start=broken, refuse=lambda _: None)
    desk.come()
    desk.room.change(1)
    desk.admission.on_freed([MODEL])
    with pytest.raises(RuntimeError):
        desk.clock.advance(0)
    desk.clock.advance(0)
    assert desk.started == [0]


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: bounds hold, no place stays empty while somebody waits, one outcome each."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds = AdmissionRules(per_band=5, per_account=3, bytes_max=400)
        self.desk = Desk(free=2, rules=self.bounds)
        self.left: set[int] = set()

    @rule(
        key=st.sampled_from(["a", "b", "b2", "b3", "c"]),
        cost=st.integers(1, 5000),
        priority=st.sampled_from(Priority),
        model=st.sampled_from([MODEL, OTHER]),
        body_bytes=st.integers(0, 60),
        chance=st.floats(0, 0.999),
    )
    def come(self, *, key: str, cost: int, priority: Priority, model: str, body_bytes: int, chance: float) -> None:
        self.desk.chance.value = chance
        self.desk.come(an_applicant(key, cost, priority, account=key[0], model=model, body_bytes=body_bytes))

    @rule(places=st.integers(1, 3), model=st.sampled_from([MODEL, OTHER]))
    def make_room(self, places: int, model: ModelId) -> None:
        self.desk.make_room(places, model)

    @rule(places=st.integers(1, 3))
    def lose_room(self, places: int) -> None:
        self.desk.room.change(-places)

    @precondition(lambda self: self.desk.tickets)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.desk.tickets) - 1))
        if self.desk.tickets[number].state is TicketState.WAITING:
            self.left.add(number)
        self.desk.tickets[number].cancel()

    @rule(seconds=st.floats(0, 40))
    def pass_time(self, seconds: float) -> None:
        self.desk.clock.advance(seconds)

    @invariant()
    def one_outcome_each(self) -> None:
        started, refused = self.desk.started, set(self.desk.refused)
        waiting = {n for n, ticket in enumerate(self.desk.tickets) if ticket.state is TicketState.WAITING}
        assert waiting | set(started) | refused | self.left == set(range(len(self.desk.tickets)))
        assert len(waiting) + len(started) + len(refused) + len(self.left) == len(self.desk.tickets)
        assert len(waiting) == self.desk.admission.waiting

    @invariant()
    def bounds_hold(self) -> None:
        waiting = [ticket.job for ticket in self.desk.tickets if ticket.state is TicketState.WAITING]
        assert sum(job.body_bytes for job in waiting) <= self.bounds.bytes_max
        for job in waiting:
            band = [other for other in waiting if (other.model, other.priority) == (job.model, job.priority)]
            assert len(band) <= self.bounds.per_band
            assert sum(other.account_id == job.account_id for other in band) <= self.bounds.per_account
        for account in {job.account_id for job in waiting}:
            of_account = sum(job.body_bytes for job in waiting if job.account_id == account)
            assert of_account <= self.bounds.account_bytes_max

    @invariant()
    def no_place_stays_empty_while_somebody_waits(self) -> None:
        self.desk.clock.advance(0)
        for ticket in self.desk.tickets:
            assert ticket.state is not TicketState.WAITING or self.desk.room.free(ticket.job.model) <= 0

    def teardown(self) -> None:
        self.desk.clock.advance(self.bounds.wait_s)
        assert self.desk.admission.waiting == 0
        self.desk.clock.advance(0)
        assert self.desk.clock.pending == 0
        self.one_outcome_each()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = walks(30, steps=40)
