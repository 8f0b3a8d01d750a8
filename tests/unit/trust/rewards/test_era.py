"""An era's rewards: exact to the unit, never less for more uptime or quality, nothing for who is not verified."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparewatt.protocol.api.rewards import EraInputs, NodeEraInputs, ValidatorEraInputs
from sparewatt.trust.rewards.era import payments_of, pool_nano, reward_era
from sparewatt.trust.rewards.rule import DAY_S, inputs_hash, read_inputs, write_inputs
from tests.trying import at_least
from tests.unit.trust.rewards.eras import FEE_PERCENT, a_node, an_era, eras, payee

DOLLAR = 10**9


def total_of(inputs: EraInputs, name: str) -> int:
    return next(node.total_micro for node in reward_era(inputs).nodes if node.node == name)


def with_node(inputs: EraInputs, node: NodeEraInputs) -> EraInputs:
    return replace(inputs, nodes=[node if each.node == node.node else each for each in inputs.nodes])


# sums


@at_least(60)
@given(eras)
def test_what_is_given_and_what_is_carried_are_the_pool_to_the_unit(inputs: EraInputs) -> None:
    rewards = reward_era(inputs)
    given_micro = sum(node.total_micro for node in rewards.nodes) + sum(each.micro for each in rewards.validators)
    assert given_micro == rewards.given_micro == sum(payments_of(rewards).values())
    assert given_micro * 1_000 + rewards.carried_nano == pool_nano(inputs)
    assert rewards.carried_nano >= 0
    assert all(min(node.availability_micro, node.uptime_micro, node.quality_micro) >= 0 for node in rewards.nodes)


def test_where_all_lines_have_takers_everything_but_the_remainder_is_given() -> None:
    voting = [ValidatorEraInputs(operator=payee(9), stake_micro=10, votes=1, due=1, jailed=False)]
    rewards = reward_era(an_era(a_node(1), a_node(2), a_node(3), validators=voting, held_nano=7_001))
    assert rewards.given_micro == rewards.pool_micro
    assert rewards.carried_nano == 1


def test_a_line_that_nobody_qualifies_for_stays_for_the_next_era() -> None:
    inputs = an_era(a_node(1, up_s=DAY_S * 8 // 10))
    rewards = reward_era(inputs)
    (node,) = rewards.nodes
    assert (node.uptime_micro, node.quality_micro > 0) == (0, True)
    assert rewards.carried_nano > 0


def test_an_era_without_anybody_carries_everything() -> None:
    rewards = reward_era(an_era(held_nano=5 * DOLLAR))
    assert (rewards.given_micro, rewards.carried_nano) == (0, 5 * DOLLAR)


def test_half_of_the_fees_are_in_the_pool_and_all_of_what_is_held() -> None:
    assert pool_nano(an_era(held_nano=3, inference_fees_nano=100, lease_fees_nano=50)) == 78


# monotony


@at_least(60)
@given(eras, st.data())
def test_more_uptime_never_earns_less(inputs: EraInputs, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(inputs.nodes))
    better = replace(node, up_s=node.up_s + data.draw(st.integers(0, DAY_S)))
    assert total_of(with_node(inputs, better), node.node) >= total_of(inputs, node.node)


@at_least(60)
@given(eras, st.data())
def test_more_quality_never_earns_less(inputs: EraInputs, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(inputs.nodes))
    better = replace(
        node,
        done=node.done + data.draw(st.integers(0, 1_000)),
        failed=node.failed - data.draw(st.integers(0, node.failed)),
        checks_passed=node.checks_passed + data.draw(st.integers(0, 100)),
        checks_failed=node.checks_failed - data.draw(st.integers(0, node.checks_failed)),
    )
    assert total_of(with_node(inputs, better), node.node) >= total_of(inputs, node.node)


@given(eras, st.data())
def test_more_days_and_more_paid_work_never_earn_less(inputs: EraInputs, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(inputs.nodes))
    paid = data.draw(st.integers(0, 10**7))
    better = replace(
        node,
        days=node.days + data.draw(st.integers(0, 30)),
        payers_micro=[*node.payers_micro, paid],
        fees_micro=node.fees_micro + paid * FEE_PERCENT // 100,
    )
    assert total_of(with_node(inputs, better), node.node) >= total_of(inputs, node.node)


def test_each_line_is_a_reward_of_its_own() -> None:
    plain, steady, exact = a_node(1, up_s=DAY_S * 98 // 100, failed=20), a_node(2, failed=20), a_node(3)
    first, second, third = reward_era(an_era(plain, steady, exact)).nodes
    assert (first.uptime_micro, first.quality_micro) == (0, 0)
    assert second.uptime_micro > 0
    assert second.quality_micro == 0
    assert third.uptime_micro > second.uptime_micro
    assert third.quality_micro > 0


# lies


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (a_node(1, payers_micro=[], checks_passed=0, gpu_class="h100", gpu_units=8), "Nothing verified its cards"),
        (a_node(1, up_s=DAY_S * 49 // 100), "It was up for 49.0 % of the era; below 50 %"),
        (a_node(1, tier="datacenter", up_s=DAY_S * 96 // 100), "a node of the tier datacenter gets nothing"),
        (a_node(1, payee=None), "no address on the chain"),
    ],
)
def test_who_is_parked_or_away_or_cannot_be_paid_gets_nothing_and_reads_why(node: NodeEraInputs, why: str) -> None:
    reward = reward_era(an_era(node, a_node(2), held_nano=DOLLAR)).nodes[0]
    assert (reward.total_micro, reward.weight) == (0, 0)
    assert why in reward.why


def test_a_claim_beyond_what_was_verified_gains_nothing() -> None:
    honest = an_era(a_node(1), a_node(2, payers_micro=[100_000] * 10))
    boasting = an_era(a_node(1), a_node(2, payers_micro=[100_000] * 10, gpu_class="h100", gpu_units=8))
    assert total_of(boasting, "node2") == total_of(honest, "node2")


def test_an_idle_node_that_passed_checks_gets_its_floor_and_no_more() -> None:
    idle = a_node(1, payers_micro=[], checks_passed=1_000)
    reward = reward_era(an_era(idle, a_node(2), held_nano=100 * DOLLAR)).nodes[0]
    assert reward.verified_units == reward.idle_units == reward.claimed_units // 10
    assert reward.total_micro == reward.most_micro == 100_000


def test_the_idle_floor_tapers_one_for_one_with_work() -> None:
    def verified(paid: int) -> int:
        node = a_node(1, payers_micro=[paid], checks_passed=1_000)
        return reward_era(an_era(node)).nodes[0].verified_units

    assert [verified(paid) for paid in (0, 50_000, 100_000, 150_000)] == [100_000, 100_000, 100_000, 150_000]


@at_least(60)
@given(eras, st.integers(0, 10**13), st.lists(st.integers(0, 10**7), max_size=8), st.integers(1, 8))
def test_who_only_pays_himself_never_gets_back_more_than_the_fees(
    inputs: EraInputs, deposited: int, own_accounts: list[int], cards: int
) -> None:
    """However rich the pool is, and from however many accounts the owner sends himself jobs."""
    liar = a_node(99, payers_micro=own_accounts, checks_passed=0, gpu_class="h100", gpu_units=cards, tier="datacenter")
    era = replace(inputs, nodes=[*inputs.nodes, liar], held_nano=inputs.held_nano + deposited)
    assert total_of(era, "node99") <= liar.fees_micro


@at_least(60)
@given(eras, st.lists(st.integers(0, 10**7), max_size=8), st.data())
def test_a_second_account_gains_at_most_the_fees_of_honest_work(
    inputs: EraInputs, own_accounts: list[int], data: st.DataObject
) -> None:
    node = data.draw(st.sampled_from(inputs.nodes))
    paid_fees = sum(own_accounts) * FEE_PERCENT // 100
    lying = replace(node, payers_micro=[*node.payers_micro, *own_accounts], fees_micro=node.fees_micro + paid_fees)
    before, after = reward_era(inputs), reward_era(with_node(inputs, lying))
    index = inputs.nodes.index(node)
    gained = after.nodes[index].total_micro - before.nodes[index].total_micro - paid_fees
    assert gained <= before.nodes[index].most_micro - before.nodes[index].total_micro


def test_one_payer_verifies_a_quarter_of_a_claim_however_much_it_pays() -> None:
    reward = reward_era(an_era(a_node(1, payers_micro=[10**9]))).nodes[0]
    assert reward.worked_units == reward.claimed_units // 4


# validators


def voter(number: int, **changes: object) -> ValidatorEraInputs:
    given: dict[str, object] = {"operator": payee(number), "stake_micro": 1_000, "votes": 10, "due": 10}
    return msgspec.convert({**given, "jailed": False, **changes}, ValidatorEraInputs)


def test_validators_share_by_stake_and_votes_in_time_and_jailed_ones_get_nothing() -> None:
    voting = [voter(1), voter(2, votes=5), voter(3, jailed=True), voter(4, votes=0), voter(5, stake_micro=2_000)]
    rewards = reward_era(an_era(held_nano=35_000_000, validators=voting))
    assert [each.micro for each in rewards.validators] == [1_000, 500, 0, 0, 2_000]
    assert rewards.validators_micro == 3_500


def test_without_a_vote_the_validators_part_is_the_nodes() -> None:
    assert reward_era(an_era(a_node(1), validators=[voter(1, votes=0, due=0)])).validators_micro == 0


@given(eras, st.data())
def test_more_votes_in_time_never_earn_less(inputs: EraInputs, data: st.DataObject) -> None:
    assume(inputs.validators)
    each = data.draw(st.sampled_from(inputs.validators))
    better = replace(each, votes=each.votes + data.draw(st.integers(0, 10)))
    voting = [better if other.operator == each.operator else other for other in inputs.validators]
    index = inputs.validators.index(each)
    after = reward_era(replace(inputs, validators=voting)).validators[index].micro
    assert after >= reward_era(inputs).validators[index].micro


# payments and the document


def test_what_several_nodes_of_one_owner_get_is_one_payment() -> None:
    rewards = reward_era(an_era(a_node(1), a_node(2, payee=payee(1)), a_node(3)))
    paid = payments_of(rewards)
    assert list(paid) == [payee(1), payee(3)]
    assert paid[payee(1)] == sum(node.total_micro for node in rewards.nodes[:2])


@given(eras)
def test_the_document_gives_the_same_rewards_and_bytes_after_it_was_read(inputs: EraInputs) -> None:
    again = read_inputs(write_inputs(inputs))
    assert write_inputs(again) == write_inputs(inputs)
    assert inputs_hash(again) == inputs_hash(inputs)
    assert reward_era(again) == reward_era(inputs)
