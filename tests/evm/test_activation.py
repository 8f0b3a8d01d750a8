"""New stake weighs after a time, a full set gives its lowest place to a higher stake, and no way out is unslashable."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.match import ReputationSnapshot
from tests.evm.auction import place_order
from tests.evm.machine import now, refused, wait
from tests.evm.network import ACTIVATE_S, INSURANCE, MIN_STAKE, SPACING_S, UNBOND_S, USD, Network, Validator, key

PLACES = 32
ZERO = "0x" + "0" * 40


def money(network: Network, validator: Validator) -> tuple[int, int, int]:
    """Stake, pending, unbonding."""
    _, stake, unbonding, _, _, pending, _ = network.stakes.validator_of(validator.operator.address)
    return stake, pending, unbonding


def weight(network: Network, validator: Validator) -> int:
    """At the current version."""
    stakes, vote_key = network.stakes, validator.vote_key.address
    last = stakes.history_length(vote_key) - 1
    return int(stakes.weight_of([vote_key], [last], stakes.version())) if last >= 0 else 0


def require_sums(network: Network) -> None:
    """At each version the total is the sum of the weights, and no more validators have any than there are places."""
    weights = [weight(network, v) for v in network.validators]
    assert network.stakes.total_at(network.stakes.version()) == sum(weights)
    assert sum(1 for w in weights if w) == len(network.stakes.all_operators()) <= PLACES
    assert network.stakes.solvent()


@pytest.fixture
def full(network: Network) -> Network:
    """25 minimal stakes beside the seven that were there: every place is taken."""
    for number in range(len(network.validators), PLACES):
        network.add_validator(number)
    assert len(network.stakes.all_operators()) == PLACES
    return network


def test_stake_that_came_a_second_ago_weighs_nothing(network: Network) -> None:
    version, total = network.stakes.version(), network.stakes.total_at(network.stakes.version())
    rich = network.join(50, stake=100 * MIN_STAKE)
    assert network.stakes.version() == version
    assert money(network, rich) == (0, 100 * MIN_STAKE, 0)
    for seconds in (0, ACTIVATE_S - 1):
        wait(seconds)
        with refused("TOO_EARLY"):
            network.stakes.activate(rich.operator.address)
    wait(1)
    network.stakes.activate(rich.operator.address, who=key(99).address)  # anyone
    assert network.stakes.version() == version + 1
    assert network.stakes.total_at(version + 1) == total + 100 * MIN_STAKE
    assert network.stakes.total_at(version) == total
    assert money(network, rich) == (100 * MIN_STAKE, 0, 0)
    require_sums(network)
    with refused("NOTHING_PENDING"):
        network.stakes.activate(rich.operator.address)


def test_stake_that_arrives_decides_neither_an_open_match_nor_a_snapshot(network: Network) -> None:
    order = place_order(network)
    rich = network.join(50, stake=100 * MIN_STAKE)
    book = order.book({0: USD, 1: 2 * USD})
    with refused("NO_SUCH_HISTORY"):
        network.tasks.accept_match(*order.certificate(book, voters=[rich]))
    snapshot = ReputationSnapshot(network.epoch + 1, 0, b"\1" * 32, 1, b"\7" * 32)
    wait(SPACING_S)
    with refused("NO_SUCH_HISTORY"):
        network.tasks.post_snapshot(*snapshot.values(), network.votes(snapshot, voters=[rich]))
    network.stakes.activate(rich.operator.address)
    with refused("HISTORY_TOO_NEW"):
        network.tasks.accept_match(*order.certificate(book, voters=[rich]))
    seven = [v for v in network.validators if v is not rich]
    order = place_order(network)
    with refused("NO_QUORUM"):
        network.tasks.accept_match(*order.certificate(order.book({0: USD}), voters=seven))
    network.tasks.accept_match(*order.certificate(order.book({0: USD}), voters=[rich]))


def test_a_further_deposit_starts_the_time_anew_for_all_that_is_pending(network: Network) -> None:
    one = network.validators[0]
    operator = one.operator.address
    network.stakes.deposit(5, who=operator)
    wait(ACTIVATE_S - 1)
    network.stakes.deposit(7, who=operator)
    assert money(network, one) == (MIN_STAKE, 12, 0)
    wait(ACTIVATE_S - 1)
    with refused("TOO_EARLY"):
        network.stakes.activate(operator)
    assert weight(network, one) == MIN_STAKE
    wait(1)
    network.stakes.activate(operator)
    assert weight(network, one) == MIN_STAKE + 12
    require_sums(network)


def test_pending_stake_is_slashed_with_the_rest(network: Network) -> None:
    """A deposit made after a fault does not save the fault's share, and money on its way in is not out of reach."""
    one = network.validators[0]
    operator, vote_key, version = one.operator.address, one.vote_key.address, network.stakes.version()
    network.stakes.deposit(MIN_STAKE, who=operator)
    for taken in (MIN_STAKE, MIN_STAKE, 0):
        assert network.stakes.slash(vote_key, version, 0, 10_000, ZERO, ZERO, who=network.dispute.address) == taken
    assert money(network, one) == (0, 0, 0)
    assert network.stakes.owed(INSURANCE) == 2 * MIN_STAKE - 2 * (MIN_STAKE // 10)
    with refused("NOTHING_PENDING"):
        network.stakes.activate(operator)


def test_a_jailed_validator_does_not_come_back_by_activation(network: Network) -> None:
    one = network.validators[0]
    operator = one.operator.address
    network.stakes.deposit(MIN_STAKE, who=operator)
    network.stakes.slash(
        one.vote_key.address, network.stakes.version(), 0, 500, ZERO, ZERO, who=network.dispute.address
    )
    wait(ACTIVATE_S)
    with refused("JAILED"):
        network.stakes.activate(operator)
    stake, pending, _ = money(network, one)
    network.stakes.request_unbond(stake + pending, who=operator)
    assert weight(network, one) == 0
    require_sums(network)


def test_pending_stake_leaves_by_unbonding_and_first(network: Network) -> None:
    one = network.validators[0]
    operator, version = one.operator.address, network.stakes.version()
    network.stakes.deposit(9, who=operator)
    network.stakes.request_unbond(4, who=operator)
    assert money(network, one) == (MIN_STAKE, 5, 4)
    assert network.stakes.version() == version  # no weight was lost
    with refused("STAKE_TOO_SMALL"):
        network.stakes.request_unbond(6, who=operator)  # would leave less than the least stake
    with refused("STAKE_TOO_SMALL"):
        network.stakes.request_unbond(MIN_STAKE + 6, who=operator)
    network.stakes.request_unbond(MIN_STAKE + 5, who=operator)
    assert money(network, one) == (0, 0, MIN_STAKE + 9)
    wait(UNBOND_S - 1)
    with refused("TOO_EARLY"):
        network.stakes.finish_unbond(who=operator)
    wait(1)
    network.stakes.finish_unbond(who=operator)
    assert network.stakes.owed(operator) == MIN_STAKE + 9
    require_sums(network)


def test_a_rest_below_the_least_stake_does_not_activate(network: Network) -> None:
    newcomer = network.join(50)
    operator = newcomer.operator.address
    network.stakes.request_unbond(1, who=operator)
    wait(ACTIVATE_S)
    with refused("STAKE_TOO_SMALL"):
        network.stakes.activate(operator)
    network.add_stake(operator, 1)
    assert weight(network, newcomer) == MIN_STAKE


@pytest.mark.parametrize(("stake", "enters"), [(MIN_STAKE * 11 // 10, False), (MIN_STAKE * 11 // 10 + 1, True)])
def test_small_stakes_do_not_fill_the_set(full: Network, stake: int, enters: bool) -> None:  # noqa: FBT001
    """A newcomer with more than 11/10 of the lowest stake takes its place, in one version; with just that it waits."""
    version = full.stakes.version()
    newcomer = full.join(60, stake=stake)
    operator = newcomer.operator.address
    wait(ACTIVATE_S)
    if not enters:
        with refused("VALIDATORS_FULL"):
            full.stakes.activate(operator)
        assert money(full, newcomer) == (0, stake, 0)
        return
    before = set(full.stakes.all_operators())
    full.stakes.activate(operator)
    (replaced,) = before - set(full.stakes.all_operators())
    loser = next(v for v in full.validators if v.operator.address == replaced)
    assert full.stakes.version() == version + 1
    assert (weight(full, newcomer), weight(full, loser)) == (stake, 0)
    assert money(full, loser) == (0, MIN_STAKE, 0)  # not punished
    assert not full.stakes.validator_of(replaced)[4]
    assert full.stakes.owed(INSURANCE) == 0
    require_sums(full)


def test_the_lowest_place_is_the_one_that_is_taken(full: Network) -> None:
    for validator in full.validators[1:]:
        full.add_stake(validator.operator.address, MIN_STAKE)
    lowest = full.validators[0]
    full.add_validator(60, stake=3 * MIN_STAKE)
    assert lowest.operator.address not in full.stakes.all_operators()
    assert weight(full, lowest) == 0
    require_sums(full)


def test_who_was_replaced_adds_and_returns_or_leaves(full: Network) -> None:
    before = set(full.stakes.all_operators())
    full.add_validator(60, stake=2 * MIN_STAKE)
    (replaced,) = before - set(full.stakes.all_operators())
    loser = next(v for v in full.validators if v.operator.address == replaced)
    with refused("TOO_EARLY"):
        full.stakes.activate(replaced)
    wait(ACTIVATE_S)
    with refused("VALIDATORS_FULL"):
        full.stakes.activate(replaced)
    full.add_stake(replaced, MIN_STAKE)
    assert weight(full, loser) == 2 * MIN_STAKE
    (other,) = before - set(full.stakes.all_operators())
    full.stakes.request_unbond(MIN_STAKE, who=other)
    wait(UNBOND_S)
    full.stakes.finish_unbond(who=other)
    assert full.stakes.owed(other) == MIN_STAKE
    require_sums(full)


def test_who_was_replaced_votes_and_answers_in_the_attempts_of_its_time(full: Network) -> None:
    order = place_order(full)
    before = set(full.stakes.all_operators())
    full.add_validator(60, stake=2 * MIN_STAKE)
    (replaced,) = before - set(full.stakes.all_operators())
    loser = next(v for v in full.validators if v.operator.address == replaced)
    old = [v for v in full.validators if v.operator.address in before]
    full.tasks.accept_match(*order.certificate(order.book({0: USD}), voters=old))
    full.stakes.request_unbond(MIN_STAKE, who=replaced)
    wait(UNBOND_S - 1)
    arguments = (loser.vote_key.address, order.stake_version, 0, 5_000, ZERO, ZERO)
    assert full.stakes.slash(*arguments, who=full.dispute.address) == MIN_STAKE // 2


def test_a_member_of_a_full_set_adds_without_taking_a_place(full: Network) -> None:
    before = set(full.stakes.all_operators())
    full.add_stake(full.validators[0].operator.address, 1)
    assert set(full.stakes.all_operators()) == before
    require_sums(full)


def test_a_place_that_is_left_is_free_for_any_stake(full: Network) -> None:
    leaver = full.validators[3].operator.address
    newcomer = full.join(60)
    wait(ACTIVATE_S)
    full.stakes.request_unbond(MIN_STAKE, who=leaver)
    full.stakes.activate(newcomer.operator.address)
    assert weight(full, newcomer) == MIN_STAKE
    assert leaver not in full.stakes.all_operators()
    require_sums(full)


def test_a_version_was_current_for_its_time_and_shares_its_last_second(network: Network) -> None:
    stakes = network.stakes
    first = stakes.version()
    made = stakes.made_at(first)
    wait(50)
    network.add_stake(network.validators[0].operator.address, 1)
    changed = now()
    assert [stakes.was_current(first, t, t) for t in (made - 1, made, changed, changed + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert [stakes.was_current(first + 1, t, t) for t in (changed - 1, changed, changed + 9)] == [False, True, True]
    assert stakes.was_current(first, changed - 1, changed + 9)


def test_an_unknown_operator_has_nothing_to_activate(network: Network) -> None:
    with refused("NOTHING_PENDING"):
        network.stakes.activate(key(99).address)
