"""What a node that was never timed may have, whatever it says of itself."""

from __future__ import annotations

from collections import Counter

import pytest

from sparewatt.core.ids import AccountId, MatchId, NodeId
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED, NEURALGRID
from sparewatt.inference.matcher.model import AllowedNodes, Decision, Rejection
from sparewatt.inference.matcher.newcomers import FIRST_JOBS_MAX, TIMED_JOBS, TRIAL_SHARE, TRIALS_AHEAD
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.trials import match_fairly
from sparewatt.protocol.link.node_report import NodeSpecs, Speed
from tests.unit.inference.nodes import MODEL, NOW_S, SPEED, a_job, a_model, make_timed, node_id, situation, some_specs

LIAR = some_specs(a_model(measured=Speed(1e7, 1e6), prompt_price_nano=0, completion_price_nano=0), slots=1000)
"""A million tokens a second at no price, by its own word."""
SLOW = some_specs(a_model(measured=Speed(10.0, 0.5)))
LIARS = range(101, 106)


class Network:
    """Timed honest nodes, and newcomers of one owner each."""

    def __init__(self, *, honest: int = 3) -> None:
        self.table = NodeTable()
        self.now_s = NOW_S
        self.sent = 0
        for number in range(1, honest + 1):
            self.join(number)
            make_timed(self.table, node_id(number))

    def join(self, number: int, specs: NodeSpecs | None = None, *, owner: str | None = None) -> None:
        self.table.connect(node_id(number), specs or some_specs(), now_s=self.now_s)
        self.table.set_owner(node_id(number), AccountId(owner or f"owner-{number}"))

    def match(self, **context: object) -> Decision:
        self.sent += 1
        job = a_job(id=MatchId(f"match-{self.sent}"))
        return match_fairly(job, self.table, situation(now_s=self.now_s, **context), ranking=BALANCED, seed=1)

    def send(self, *, takes_s: float = 4.0, liar_takes_s: float = 4.0, fails: bool = False) -> NodeId:
        """One job of 200 tokens, alone: matched, and answered, or failed by a liar."""
        best = self.match().best
        assert best is not None
        held = self.table.reserve(best.node_id, a_job(), now_s=self.now_s)
        is_liar = best.node_id in {node_id(number) for number in LIARS}
        self.now_s += SPEED.prefill_s(a_job().prompt_tokens)
        if fails and is_liar:
            self.table.note_failure(best.node_id, model=MODEL, now_s=self.now_s)
        else:
            self.table.note_first_token(held, now_s=self.now_s)
            self.now_s += liar_takes_s if is_liar else takes_s
            self.table.note_answer(held, steps=200, now_s=self.now_s)
            self.table.note_success(best.node_id, model=MODEL, output_tokens=200)
        self.table.release(held, now_s=self.now_s)
        for row in self.table:
            row.last_heard_s = self.now_s
            self.table.set_rtt(row.id, 0.01, now_s=self.now_s)
        return best.node_id


def numbers(nodes: list[NodeId]) -> Counter[int]:
    return Counter(int(node, 16) for node in nodes)


def test_a_liar_that_fails_every_job_gets_ten_of_them_and_a_small_share() -> None:
    network = Network()
    for number in LIARS:
        network.join(number, LIAR)
    taken = numbers([network.send(fails=True) for _ in range(400)])
    assert 0 < sum(taken[number] for number in LIARS) <= TRIALS_AHEAD + TRIAL_SHARE * 400


def test_a_liar_that_answers_is_as_fast_as_it_was_timed() -> None:
    """A million tokens a second by its own word, a tenth of the others' speed by the clock."""
    network = Network()
    network.join(101, LIAR)
    taken = numbers([network.send(liar_takes_s=40.0) for _ in range(60)])
    assert TIMED_JOBS <= taken[101] <= TIMED_JOBS + 1
    row = network.table.get(node_id(101))
    assert row is not None
    assert 1.0 / row.positions[MODEL].timing().step_s == pytest.approx(5.0, rel=0.1)


def test_a_newcomer_counts_as_no_faster_than_the_median_of_the_timed_nodes() -> None:
    network = Network()
    for _ in range(12):
        network.send()
    network.join(101, LIAR)
    best = network.match(allowed=AllowedNodes(frozenset({node_id(101)}))).best
    assert best is not None
    assert best.predicted_finish_s >= 0.9 * 200 / SPEED.decode_tps


def test_a_newcomer_that_failed_once_gets_another_turn_when_its_breaker_lets_it() -> None:
    network = Network()
    network.join(101)
    network.table.note_failure(node_id(101), model=MODEL, now_s=network.now_s)
    assert network.send() != node_id(101), "its breaker is open"
    network.now_s += 10.0
    assert node_id(101) in {network.send() for _ in range(5)}


def test_a_crowd_of_failing_newcomers_keeps_no_honest_one_from_its_turn() -> None:
    network = Network()
    for number in range(200, 230):
        network.join(number, LIAR)
        for _ in range(3):
            network.table.note_failure(node_id(number), model=MODEL, now_s=network.now_s)
            network.now_s += 0.1
    for number in range(200, 230):
        network.table.note_failure(node_id(number), model=MODEL, now_s=network.now_s + 60.0)
    network.now_s += 61.0
    network.join(4)
    for row in network.table:
        network.table.set_rtt(row.id, 0.01, now_s=network.now_s)
    assert node_id(4) in {network.send() for _ in range(3)}


def test_an_honest_newcomer_is_timed_and_then_ranked_with_the_others() -> None:
    network = Network()
    network.join(4)
    taken = numbers([network.send() for _ in range(80)])
    assert network.table.newcomers.count(MODEL) == 0
    assert 10 <= taken[4] <= 50


def test_where_no_node_was_timed_all_share_the_jobs_equally() -> None:
    network = Network(honest=0)
    network.join(1, LIAR)
    for number in (2, 3, 4):
        network.join(number)
    assert set(numbers([network.send() for _ in range(8)]).values()) == {2}


def test_two_jobs_wait_for_a_newcomer_and_the_third_goes_elsewhere() -> None:
    network = Network(honest=1)
    network.join(101, LIAR)
    taken = []
    for _ in range(12):
        best = network.match().best
        assert best is not None
        network.table.reserve(best.node_id, a_job(), now_s=network.now_s)
        taken.append(best.node_id)
    assert numbers(taken)[101] == FIRST_JOBS_MAX


def test_a_lone_newcomer_gets_every_job() -> None:
    network = Network(honest=0)
    network.join(1)
    for _ in range(10):
        best = network.match().best
        assert best is not None
        network.table.reserve(best.node_id, a_job(), now_s=network.now_s)


def test_newcomers_help_where_the_others_have_long_queues() -> None:
    network = Network(honest=1)
    for _ in range(40):  # no trial is left
        network.table.newcomers.note_job(MODEL, node_id(101))
    network.join(101)
    network.table.newcomers._turns[MODEL].trials = 0.0
    for _ in range(4):
        network.table.reserve(node_id(1), a_job(prompt_tokens=4000), now_s=network.now_s)
    best = network.match().best
    assert best is not None
    assert best.node_id == node_id(101)


def test_a_node_that_says_it_is_slow_is_not_tried() -> None:
    network = Network()
    network.join(101, SLOW)
    assert numbers([network.send() for _ in range(40)])[101] == 0


def test_a_second_attempt_is_no_trial() -> None:
    network = Network()
    network.join(101, LIAR)
    best = network.match(tried=frozenset({node_id(1)})).best
    assert best is not None
    assert best.node_id in {node_id(2), node_id(3)}


def test_a_trial_keeps_to_the_policy() -> None:
    network = Network()
    network.join(101, LIAR)
    best = network.match(allowed=AllowedNodes(frozenset({node_id(1)}))).best
    assert best is not None
    assert best.node_id == node_id(1)


def test_who_waits_to_be_timed_is_told_so() -> None:
    network = Network()
    network.join(101, LIAR)
    network.table.newcomers._turns[MODEL].trials = 0.0
    decision = network.match()
    assert [item.reason for item in decision.rejected] == [Rejection.NOT_TIMED]
    assert decision.rejected_by_reason == {Rejection.NOT_TIMED: 1}


def test_an_explanation_says_that_it_was_a_newcomers_turn() -> None:
    network = Network()
    assert not describe(network.match(), {}).is_trial
    network.join(101, LIAR)
    told = describe(network.match(), {})
    assert (told.is_trial, told.chosen) == (True, node_id(101))


def test_the_published_formula_is_left_as_it_is() -> None:
    network = Network()
    network.join(101, LIAR)
    context = situation(now_s=network.now_s)
    decision = match_fairly(a_job(), network.table, context, ranking=NEURALGRID, seed=1)
    assert decision.ranked_count == 4


def test_a_node_that_must_load_the_model_waits_for_no_turn() -> None:
    network = Network()
    network.join(101, some_specs(a_model(state="on_disk")))
    assert network.table.newcomers.count(MODEL) == 0
    network.table.set_specs(node_id(101), some_specs())
    assert network.table.newcomers.count(MODEL) == 1


# what was timed stays true


def timed_speed(network: Network, number: int) -> float:
    row = network.table.get(node_id(number))
    assert row is not None
    position = row.positions[MODEL]
    return 1.0 / (position.figures.step_s * position.writing_factor)


def taught(*, takes_s: float = 8.0) -> Network:
    """One node, at half the speed that it claims."""
    network = Network(honest=0)
    network.join(1)
    for _ in range(10):
        network.send(takes_s=takes_s)
    assert timed_speed(network, 1) == pytest.approx(25.0, rel=0.1)
    return network


@pytest.mark.parametrize("detour", ["none", "unmeasured", "gone"])
def test_a_new_claim_does_not_wash_off_what_was_timed(detour: str) -> None:
    network = taught()
    before = timed_speed(network, 1)
    if detour == "unmeasured":
        network.table.set_specs(node_id(1), some_specs(a_model(measured=None)))
    elif detour == "gone":
        network.table.set_specs(node_id(1), some_specs(a_model(id="another")))
    network.table.set_specs(node_id(1), some_specs(a_model(measured=Speed(20_000.0, 1000.0, 0.1))))
    assert timed_speed(network, 1) == pytest.approx(before, rel=0.01)


def test_a_node_that_says_it_is_much_slower_is_believed_at_once() -> None:
    network = taught()
    before = timed_speed(network, 1)
    network.table.set_specs(node_id(1), some_specs(a_model(measured=Speed(100.0, 5.0, 0.1))))
    assert timed_speed(network, 1) == pytest.approx(before / 10, rel=0.01)


def test_timings_can_be_taken_up_by_another_table() -> None:
    network, other = taught(), Network(honest=0)
    other.join(1, LIAR)
    other.table.restore(node_id(1), network.table.timings_of(node_id(1)))
    assert other.table.newcomers.count(MODEL) == 0
    assert timed_speed(other, 1) == pytest.approx(timed_speed(network, 1), rel=0.01)


def test_timings_of_fewer_jobs_than_are_known_are_ignored() -> None:
    network = taught()
    before = timed_speed(network, 1)
    few = {
        model: timing._replace(jobs=1, step_s=1e-9) for model, timing in network.table.timings_of(node_id(1)).items()
    }
    network.table.restore(node_id(1), few)
    assert timed_speed(network, 1) == before


def test_a_node_that_always_says_that_it_must_load_is_timed_all_the_same() -> None:
    """The cheapest lie: a first token that is late because of loading teaches nothing."""
    network = Network(honest=0)
    network.join(1, some_specs(a_model(state="loading")))
    for _ in range(20):
        held = network.table.reserve(node_id(1), a_job(prompt_tokens=1000), now_s=network.now_s)
        network.now_s += 60.0
        network.table.note_first_token(held, now_s=network.now_s)
        network.table.release(held, now_s=network.now_s)
    row = network.table.get(node_id(1))
    assert row is not None
    assert row.positions[MODEL].reading.factor > 20


# faster than its card allows


def test_a_node_that_writes_faster_than_its_card_is_a_newcomer_again() -> None:
    """8 GiB of weights on an RTX 4090: 117 tokens a second at the most, and some more with speculative decoding."""
    network = taught(takes_s=4.0 * 25 / 12.5)
    held = network.table.reserve(node_id(1), a_job(), now_s=network.now_s)
    network.now_s += 0.1
    network.table.note_first_token(held, now_s=network.now_s)
    assert not network.table.note_answer(held, steps=200, now_s=network.now_s)
    assert network.table.newcomers.count(MODEL) == 1
    assert network.table.timings_of(node_id(1)) == {}


@pytest.mark.parametrize(
    ("steps", "took_s", "is_possible"), [(200, 1.8, True), (200, 0.3, False), (16, 0.001, False), (15, 0.0, True)]
)
def test_what_a_card_can_write(steps: int, took_s: float, is_possible: bool) -> None:  # noqa: FBT001 (a parameter)
    row = taught().table.get(node_id(1))
    assert row is not None
    assert row.positions[MODEL].figures.can_write(steps, took_s) is is_possible


def test_where_the_card_is_not_known_the_fastest_there_is_counts() -> None:
    network = Network(honest=0)
    network.join(1, some_specs(gpu="a card of my own", gpu_count=1))
    row = network.table.get(node_id(1))
    assert row is not None
    assert row.positions[MODEL].figures.can_write(200, 0.05)
    assert not row.positions[MODEL].figures.can_write(200, 0.0001)
