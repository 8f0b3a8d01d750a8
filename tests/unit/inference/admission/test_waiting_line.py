"""Who is next: first come first served within a key, tokens shared by account, then key, no priority starved."""

from __future__ import annotations

from itertools import combinations, permutations, product

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.core.ids import KeyId
from sparewatt.inference.admission.model import AdmissionRules, Priority
from sparewatt.inference.admission.waiting_line import WaitingLine
from tests.trying import walks
from tests.unit.inference.waiting_line import Standing, an_applicant, standing

RULES = AdmissionRules()
costs = st.integers(1, 8000)
keys = st.sampled_from("abcd")
accounts = st.sampled_from(["x", "y"])


def line_of(*waiters: Standing, rules: AdmissionRules = RULES) -> WaitingLine[Standing]:
    line: WaitingLine[Standing] = WaitingLine(rules)
    for waiter in waiters:
        line.join(waiter)
    return line


def served(line: WaitingLine[Standing], count: int | None = None) -> list[Standing]:
    return [line.next() for _ in range(len(line) if count is None else count)]


def lane_of(waiter: Standing) -> tuple[str, str, Priority]:
    return waiter.job.account_id, waiter.job.key_id, waiter.job.priority


def of_account(waiters: list[Standing], account: str) -> int:
    return sum(waiter.job.cost_tokens for waiter in waiters if waiter.job.account_id == account)


def tokens(waiters: list[Standing], key: str) -> int:
    return sum(waiter.job.cost_tokens for waiter in waiters if waiter.job.key_id == key)


@given(st.lists(st.builds(standing, keys, costs, st.sampled_from(Priority), accounts), max_size=60))
def test_everybody_is_served_once_and_in_order_within_a_key(waiters: list[Standing]) -> None:
    order = served(line_of(*waiters))
    assert sorted(order, key=id) == sorted(waiters, key=id)
    for lane in product("xy", "abcd", Priority):
        assert [w.number for w in order if lane_of(w) == lane] == [w.number for w in waiters if lane_of(w) == lane]


@given(st.lists(st.lists(costs, min_size=25, max_size=25), min_size=2, max_size=4))
def test_while_keys_wait_none_gets_more_than_another_by_more_than_a_job_of_each(jobs: list[list[int]]) -> None:
    """Over every window. A job cannot be cut: one of each key's is the best that any order can promise."""
    names = "abcd"[: len(jobs)]
    line = line_of(*(standing(name, cost) for name, of in zip(names, jobs, strict=True) for cost in of))
    order = served(line, 25)  # nobody runs out
    largest = {name: max(of) for name, of in zip(names, jobs, strict=True)}
    for start, end in combinations(range(26), 2):
        window = order[start:end]
        for one, other in permutations(names, 2):
            allowed = largest[one] + largest[other] + RULES.quantum_tokens
            assert tokens(window, one) - tokens(window, other) <= allowed


@given(st.lists(st.lists(costs, min_size=20, max_size=20), min_size=2, max_size=4))
def test_from_when_all_wait_no_key_gets_more_than_its_share_and_one_job(jobs: list[list[int]]) -> None:
    names = "abcd"[: len(jobs)]
    line = line_of(*(standing(name, cost) for name, of in zip(names, jobs, strict=True) for cost in of))
    order = served(line, 20)
    largest = max(map(max, jobs))
    for end in range(21):
        share = sum(waiter.job.cost_tokens for waiter in order[:end]) / len(names)
        assert all(tokens(order[:end], name) <= share + largest + RULES.quantum_tokens for name in names)


@given(st.lists(costs, min_size=40, max_size=40), st.lists(costs, min_size=20, max_size=20), st.integers(1, 20))
def test_an_account_gets_no_more_by_having_more_keys(many: list[int], one: list[int], key_count: int) -> None:
    """Over every window, as between keys: but for a job of each, both have the same."""
    flood = [standing(f"flood{n % key_count}", cost, account="flood") for n, cost in enumerate(many)]
    line = line_of(*flood, *(standing("single", cost) for cost in one))
    order = served(line, 20)  # neither runs out
    allowed = max(many) + max(one) + RULES.quantum_tokens
    for start, end in combinations(range(21), 2):
        window = order[start:end]
        assert abs(of_account(window, "flood") - of_account(window, "single")) <= allowed


@given(st.lists(costs, min_size=20, max_size=20), st.lists(costs, min_size=20, max_size=20))
def test_within_an_account_its_keys_share(one: list[int], other: list[int]) -> None:
    waiters = [standing(key, cost, account="x") for key, of in (("a", one), ("b", other)) for cost in of]
    order = served(line_of(*waiters, *(standing("y", 1000) for _ in range(20))), 20)
    allowed = max(one) + max(other) + RULES.quantum_tokens
    for start, end in combinations(range(21), 2):
        window = order[start:end]
        assert abs(tokens(window, "a") - tokens(window, "b")) <= allowed


def test_many_small_jobs_of_one_key_do_not_outrun_a_large_one_of_another() -> None:
    line = line_of(*(standing("small", 100) for _ in range(100)), standing("large", 3000))
    order = [waiter.job.key_id for waiter in served(line)]
    assert order.index(KeyId("large")) in range(20, 41)  # 3,000 tokens of the other's


def test_a_key_that_floods_is_passed_by_one_that_comes_later() -> None:
    line = line_of(*(standing("flood", 1000) for _ in range(50)), standing("late", 1000))
    assert "late" in [waiter.job.key_id for waiter in served(line, 2)]


def test_coming_back_again_and_again_wins_no_turns() -> None:
    """A key that is never two in line gets one turn in two, not more."""
    line = line_of(*(standing("steady", 1000) for _ in range(40)))
    order = []
    line.join(standing("hopper", 1000))
    for _ in range(40):
        order.append(line.next().job.key_id)
        if order[-1] == "hopper":
            line.join(standing("hopper", 1000))
    assert abs(order.count(KeyId("hopper")) - order.count(KeyId("steady"))) <= 2


def test_priorities_go_first_to_last() -> None:
    line = line_of(
        standing(priority=Priority.LOW), standing(priority=Priority.NORMAL), standing(priority=Priority.HIGH)
    )
    assert [waiter.job.priority for waiter in served(line)] == list(Priority)


@given(
    st.lists(costs, min_size=80, max_size=80),
    st.lists(costs, min_size=80, max_size=80),
    st.sampled_from([Priority.HIGH, Priority.NORMAL]),
)
def test_a_lower_band_has_its_share_but_for_a_job(above: list[int], below: list[int], higher: Priority) -> None:
    line = line_of(*(standing("a", c, higher) for c in above), *(standing("b", c, Priority.LOW) for c in below))
    order, share = served(line, 80), RULES.guaranteed[Priority.LOW]
    for end in range(81):
        due = share * tokens(order[:end], "a")
        assert tokens(order[:end], "b") >= due - max(below) - share * max(above)


def test_a_band_that_was_empty_has_saved_nothing_up() -> None:
    line = line_of(*(standing("a", 8000, Priority.HIGH) for _ in range(4)), standing("b", 10, Priority.LOW))
    served(line, 4)
    line.join(standing("c", 10, Priority.LOW))
    line.join(standing("a", 10, Priority.HIGH))
    assert line.next().job.priority is Priority.HIGH


def test_a_full_band_pushes_out_the_newest_of_the_longest_lane() -> None:
    rules = AdmissionRules(per_band=4, per_account=4)
    waiters = [standing("a"), standing("a"), standing("b"), standing("a")]
    line = line_of(*waiters, rules=rules)
    assert line.band_is_full(an_applicant("c"))
    assert line.displaced_by(an_applicant("c")) is waiters[3]
    assert line.displaced_by(an_applicant("b")) is waiters[3]
    assert line.displaced_by(an_applicant("a")) is None


def test_nobody_is_pushed_out_for_a_key_that_has_as_many() -> None:
    line = line_of(standing("a"), standing("a"), standing("b"), standing("b"), rules=AdmissionRules(per_band=4))
    assert line.displaced_by(an_applicant("a")) is None
    assert line.displaced_by(an_applicant("b")) is None
    assert line.displaced_by(an_applicant("c")) is not None


def test_in_an_accounts_share_the_longest_of_its_keys_makes_room() -> None:
    waiters = [standing("a1", account="a"), standing("a1", account="a"), standing("a2", account="a")]
    line = line_of(*waiters, standing("b"), rules=AdmissionRules(per_band=9, per_account=3))
    assert line.account_is_full(an_applicant("a3", account="a"))
    assert line.displaced_by(an_applicant("a3", account="a")) is waiters[1]
    assert line.displaced_by(an_applicant("a2", account="a")) is None
    assert not line.account_is_full(an_applicant("b"))


def test_a_full_band_pushes_out_of_the_account_with_the_most_however_many_keys_it_has() -> None:
    flood = [standing(f"flood{n}", account="flood") for n in range(5)]
    line = line_of(*flood, standing("b"), standing("b"), rules=AdmissionRules(per_band=7))
    assert line.displaced_by(an_applicant("b")) is flood[4]
    assert line.displaced_by(an_applicant("flood9", account="flood")) is None


def test_a_position_counts_an_accounts_keys_as_one() -> None:
    line = line_of(*(standing(f"flood{n}", 1000, account="flood") for n in range(30)))
    late = standing("b", 1000)
    assert line.position_if_joined(late.job) == 2
    assert line.position_if_joined(an_applicant("flood99", account="flood")) == 31
    line.join(late)
    assert served(line, 2)[1] is late


def test_a_position_is_what_it_comes_to_with_equal_jobs() -> None:
    waiters = [standing("a", 1000) for _ in range(5)]
    line = line_of(*waiters, standing("h", 1000, Priority.HIGH))
    late = standing("b", 1000)
    assert line.position_if_joined(late.job) == 3  # the high one, one of a's, then it
    line.join(late)
    assert line.position_of(late) == 3
    assert served(line, 3)[2] is late


class ComingAndGoing(RuleBasedStateMachine):
    """Whatever order they come and go in, the line knows who is there."""

    def __init__(self) -> None:
        super().__init__()
        self.line: WaitingLine[Standing] = WaitingLine(RULES)
        self.there: list[Standing] = []

    @rule(key=keys, account=accounts, cost=costs, priority=st.sampled_from(Priority))
    def join(self, key: str, account: str, cost: int, priority: Priority) -> None:
        waiter = standing(key, cost, priority, account)
        self.line.join(waiter)
        self.there.append(waiter)

    @precondition(lambda self: self.there)
    @rule()
    def serve(self) -> None:
        waiter = self.line.next()
        assert next(other for other in self.there if lane_of(other) == lane_of(waiter)) is waiter
        self.there.remove(waiter)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.there))
        self.line.leave(waiter)
        self.there.remove(waiter)

    @invariant()
    def knows_who_is_there(self) -> None:
        assert sorted(self.line, key=id) == sorted(self.there, key=id)
        assert len(self.line) == len(self.there)
        assert all(1 <= self.line.position_of(waiter) <= len(self.there) for waiter in self.there)


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = walks(30, steps=40)
