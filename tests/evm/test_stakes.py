"""Stake versions, unbonding, bonds, slashing and its access rights."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey
from tests.evm.machine import deploy, now, refused, wait
from tests.evm.network import DEPLOYER, GUARDIAN, INSURANCE, MIN_STAKE, OPERATOR, UNBOND_S, Network, key

ZERO = "0x" + "0" * 40
NEW = key(41)


def proof(network: Network, operator: str, vote_key: SigningKey) -> tuple[str, bytes]:
    return vote_key.address, network.signed(vote_key, network.stakes, VoteKey(operator, vote_key.address))


def weight(network: Network, vote_key: str, index: int, version: int) -> int:
    found: int = network.stakes.weight_of([vote_key], [index], version)
    return found


def test_each_change_makes_a_version_and_old_versions_stay(network: Network) -> None:
    one = network.validators[0]
    before = network.stakes.version()
    total = network.stakes.total_at(before)
    network.add_stake(one.operator.address, 5)
    assert network.stakes.version() == before + 1
    assert network.stakes.total_at(before + 1) == total + 5
    assert network.stakes.total_at(before) == total
    assert weight(network, one.vote_key.address, 0, before) == MIN_STAKE
    assert weight(network, one.vote_key.address, 1, before + 1) == MIN_STAKE + 5


def test_a_history_entry_counts_for_its_versions_only(network: Network) -> None:
    one = network.validators[0]
    network.add_stake(one.operator.address, 5)
    version, vote_key = network.stakes.version(), one.vote_key.address
    assert network.stakes.history_at(vote_key, 1) == (version, MIN_STAKE + 5)
    with refused("HISTORY_TOO_OLD"):
        weight(network, vote_key, 0, version)
    with refused("HISTORY_TOO_NEW"):
        weight(network, vote_key, 1, version - 1)
    with refused("NO_SUCH_HISTORY"):
        weight(network, vote_key, 2, version)
    with refused("UNKNOWN_VERSION"):
        weight(network, vote_key, 1, version + 1)
    with refused("UNKNOWN_VERSION"):
        network.stakes.was_current(version + 1, 0, now())
    with refused("LENGTHS_DIFFER"):
        network.stakes.weight_of([vote_key], [], version)


def test_a_new_vote_key_counts_from_the_next_version_and_the_old_one_stays_known(network: Network) -> None:
    one = network.validators[0]
    operator, old = one.operator.address, one.vote_key.address
    version = network.stakes.version()
    network.stakes.set_vote_key(*proof(network, operator, NEW), who=operator)
    assert weight(network, old, 0, version) == MIN_STAKE
    assert weight(network, old, 1, version + 1) == 0
    assert weight(network, NEW.address, 0, version + 1) == MIN_STAKE
    assert network.stakes.total_at(version + 1) == network.stakes.total_at(version)
    assert network.stakes.operator_of(old) == operator


def test_a_vote_key_belongs_to_one_operator_and_agrees(network: Network) -> None:
    one, two = network.validators[:2]
    with refused("KEY_TAKEN"):
        network.stakes.set_vote_key(*proof(network, one.operator.address, two.vote_key), who=one.operator.address)
    with refused("NOT_SIGNED_BY_VOTE_KEY"):
        network.stakes.set_vote_key(*proof(network, two.operator.address, NEW), who=one.operator.address)
    with refused("NOT_VALIDATOR"):
        network.stakes.set_vote_key(*proof(network, NEW.address, key(42)), who=NEW.address)


def test_joining_takes_a_key_a_url_and_enough_stake(network: Network) -> None:
    network.fund(NEW.address)
    vote = key(43)
    with refused("STAKE_TOO_SMALL"):
        network.stakes.join(*proof(network, NEW.address, vote), "http://v", MIN_STAKE - 1, who=NEW.address)
    with refused("NO_URL"):
        network.stakes.join(*proof(network, NEW.address, vote), "", MIN_STAKE, who=NEW.address)
    network.stakes.join(*proof(network, NEW.address, vote), "http://v", MIN_STAKE, who=NEW.address)
    assert network.stakes.url_of(NEW.address) == "http://v"
    with refused("ALREADY_JOINED"):
        network.stakes.join(*proof(network, NEW.address, key(44)), "http://v", MIN_STAKE, who=NEW.address)


def test_only_validators_have_a_url_and_stake(network: Network) -> None:
    network.fund(NEW.address)
    with refused("NOT_VALIDATOR"):
        network.stakes.set_url("http://v", who=NEW.address)
    with refused("NOT_VALIDATOR"):
        network.stakes.deposit(MIN_STAKE, who=NEW.address)
    network.stakes.set_url("http://new", who=network.validators[0].operator.address)
    assert network.stakes.url_of(network.validators[0].operator.address) == "http://new"


def test_unbonding_takes_weight_at_once_and_money_later(network: Network) -> None:
    one = network.validators[0]
    operator, vote_key = one.operator.address, one.vote_key.address
    with refused("STAKE_TOO_SMALL"):
        network.stakes.request_unbond(1, who=operator)
    with refused("STAKE_TOO_SMALL"):
        network.stakes.request_unbond(MIN_STAKE + 1, who=operator)
    with refused("ZERO_AMOUNT"):
        network.stakes.request_unbond(0, who=operator)
    with refused("NOTHING_UNBONDING"):
        network.stakes.finish_unbond(who=operator)
    network.stakes.request_unbond(MIN_STAKE, who=operator)
    assert weight(network, vote_key, 1, network.stakes.version()) == 0
    wait(UNBOND_S - 1)
    with refused("TOO_EARLY"):
        network.stakes.finish_unbond(who=operator)
    wait(1)
    before = network.token.balanceOf(operator)
    network.stakes.finish_unbond(who=operator)
    network.stakes.withdraw(operator, who=operator)
    assert network.token.balanceOf(operator) == before + MIN_STAKE
    with refused("NOTHING_OWED"):
        network.stakes.withdraw(operator, who=operator)


def test_a_provider_gets_its_free_bond_back_after_the_delay(network: Network) -> None:
    me = network.providers[0].address
    free = network.stakes.free_bond(me)
    with refused("BOND_TOO_SMALL"):
        network.stakes.unbond_bond(free + 1, who=me)
    with refused("ZERO_AMOUNT"):
        network.stakes.unbond_bond(0, who=me)
    with refused("NOTHING_UNBONDING"):
        network.stakes.finish_unbond_bond(me)
    network.stakes.unbond_bond(free, who=me)
    with refused("TOO_EARLY"):
        network.stakes.finish_unbond_bond(me)
    wait(UNBOND_S)
    network.stakes.finish_unbond_bond(me)
    with refused("ZERO_ADDRESS"):
        network.stakes.withdraw(ZERO, who=me)
    network.stakes.withdraw(me, who=me)
    assert network.stakes.bond_of(me)[:3] == (0, 0, 0)


def test_only_the_order_contract_locks_and_only_disputes_slash(network: Network) -> None:
    me = network.providers[0].address
    with refused("NOT_ORDERS"):
        network.stakes.lock(me, 1, 1, who=me)
    with refused("NOT_ORDERS"):
        network.stakes.release(me, 1, who=me)
    with refused("NOT_ORDERS"):
        network.stakes.take_bond(me, 1, me, who=me)
    with refused("NOT_DISPUTE"):
        network.stakes.forfeit_bond(me, 1, me, me, who=me)
    with refused("NOT_DISPUTE"):
        network.stakes.slash(network.validators[0].vote_key.address, 1, 0, 1, me, me, who=me)


def test_a_slash_is_split_and_jails(network: Network) -> None:
    one = network.validators[0]
    version, vote_key, operator = network.stakes.version(), one.vote_key.address, one.operator.address
    challenger, harmed = key(45).address, key(46).address
    network.stakes.slash(vote_key, version, 0, 5000, challenger, harmed, who=network.dispute.address)
    half = MIN_STAKE // 2
    owed = [network.stakes.owed(a) for a in (challenger, harmed, INSURANCE)]
    assert owed == [half // 10, half * 4 // 10, half // 2]
    assert weight(network, vote_key, 1, network.stakes.version()) == 0
    with refused("JAILED"):
        network.stakes.deposit(1, who=operator)
    network.stakes.request_unbond(half, who=operator)
    assert network.stakes.solvent()


def test_unbonding_stake_can_still_be_slashed_but_not_below_nothing(network: Network) -> None:
    one = network.validators[0]
    version, vote_key, operator = network.stakes.version(), one.vote_key.address, one.operator.address
    network.stakes.request_unbond(MIN_STAKE, who=operator)
    for _ in range(3):
        network.stakes.slash(vote_key, version, 0, 5000, operator, ZERO, who=network.book.address)
    assert network.stakes.validator_of(operator)[1:3] == (0, 0)
    assert network.stakes.owed(operator) == MIN_STAKE // 10  # half, then the rest: a tenth of what was lost
    wait(UNBOND_S)
    with refused("NOTHING_UNBONDING"):
        network.stakes.finish_unbond(who=operator)


def test_a_key_without_weight_cannot_be_slashed(network: Network) -> None:
    one = network.validators[0]
    version, operator = network.stakes.version(), one.operator.address
    network.stakes.request_unbond(MIN_STAKE, who=operator)
    with refused("HAD_NO_WEIGHT"):
        network.stakes.slash(
            one.vote_key.address, version + 1, 1, 5000, operator, operator, who=network.dispute.address
        )
    with refused("TOO_MUCH"):
        network.stakes.slash(one.vote_key.address, version, 0, 10_001, operator, operator, who=network.dispute.address)


@pytest.mark.parametrize(
    ("there", "asked", "left"),
    [
        ((10, 0), (4, 4), (6, 4, 0)),
        ((3, 9), (5, 1), (0, 5, 7)),  # free money first, then what is on its way out
        ((3, 4), (9, 7), (0, 7, 0)),  # all there is, if that is enough
        ((3, 4), (9, 8), (3, 0, 4)),  # one unit less than the least: nothing
        ((0, 0), (9, 0), (0, 0, 0)),
    ],
)
def test_a_lock_takes_what_there_is_down_to_the_least(
    network: Network, there: tuple[int, int], asked: tuple[int, int], left: tuple[int, ...]
) -> None:
    """`there` is what is free and what unbonds, `asked` what is wanted and the least."""
    me, orders, (free, unbonding) = NEW.address, network.orders.address, there
    network.fund(me)
    if free + unbonding:
        network.stakes.deposit_bond(me, free + unbonding, who=me)
    if unbonding:
        network.stakes.unbond_bond(unbonding, who=me)
    assert network.stakes.lock(me, *asked, who=orders) == left[1]
    assert network.stakes.bond_of(me)[:3] == left


def test_bond_that_unbonds_is_bound_until_it_has_left(network: Network) -> None:
    """A bidder that unbonds after its commit is placed all the same, and pays the same."""
    me, orders = network.providers[0].address, network.orders.address
    free = network.stakes.free_bond(me)
    network.stakes.unbond_bond(free, who=me)
    wait(UNBOND_S)
    assert network.stakes.lock(me, 7, 7, who=orders) == 7
    network.stakes.finish_unbond_bond(me)
    assert network.stakes.bond_of(me)[:3] == (0, 7, 0)
    network.stakes.release(me, 7, who=orders)
    assert network.stakes.owed(me) == free - 7
    assert network.stakes.lock(me, 8, 8, who=orders) == 0


def test_what_is_not_locked_is_neither_released_nor_taken(network: Network) -> None:
    me, orders = network.providers[0].address, network.orders.address
    with refused("NOT_LOCKED"):
        network.stakes.release(me, 1, who=orders)
    with refused("NOT_LOCKED"):
        network.stakes.take_bond(me, 1, me, who=orders)


def test_a_forfeited_bond_is_shared_as_a_slash_is(network: Network) -> None:
    """Whoever owns bidder, claimant and renter still loses half."""
    me, claimant, renter = network.providers[0].address, key(45).address, key(46).address
    assert network.stakes.forfeit_bond(me, 1001, claimant, renter, who=network.book.address) == 1001
    assert [network.stakes.owed(a) for a in (claimant, renter, INSURANCE)] == [100, 400, 501]


def test_contracts_are_wired_once_by_their_deployer(network: Network) -> None:
    orders, pair = network.orders.address, [network.dispute.address, network.book.address]
    with refused("NOT_DEPLOYER"):
        network.stakes.wire(orders, pair)
    with refused("ALREADY_WIRED"):
        network.stakes.wire(orders, pair, who=DEPLOYER)
    for contract in (network.escrow, network.tasks):
        with refused("NOT_DEPLOYER"):
            contract.wire(orders)
        with refused("ALREADY_WIRED"):
            contract.wire(orders, who=DEPLOYER)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("stake_registry", ("token", INSURANCE, 1, 60, 600, 1319, 2), "UNBONDING_TOO_SHORT"),
        ("stake_registry", ("token", INSURANCE, 0, 60, 600, 3600, 2), "ZERO_AMOUNT"),
        ("stake_registry", ("token", ZERO, 1, 60, 600, 3600, 2), "ZERO_ADDRESS"),
        ("stake_registry", ("token", INSURANCE, 1, 0, 600, 3600, 2), "ZERO_TIME"),
        ("stake_registry", ("token", INSURANCE, 1, 60, 600, 3600, 0), "ZERO_TIME"),
        ("stake_registry", (INSURANCE, INSURANCE, 1, 60, 600, 3600, 2), "NO_TOKEN"),
        ("escrow", ("token", ZERO, 0), "ZERO_ADDRESS"),
        ("escrow", ("token", INSURANCE, 1001), "FEE_TOO_HIGH"),
        ("settlement", ("token", ZERO, OPERATOR, GUARDIAN, 0, 60, 60), "ZERO_ADDRESS"),
        ("settlement", ("token", "stakes", ZERO, GUARDIAN, 0, 60, 60), "ZERO_ADDRESS"),
        ("settlement", ("token", "stakes", OPERATOR, ZERO, 0, 60, 60), "ZERO_ADDRESS"),
        ("settlement", ("token", "stakes", OPERATOR, OPERATOR, 0, 60, 60), "SAME_KEY"),
        ("settlement", ("token", "stakes", OPERATOR, GUARDIAN, 500, 1059, 60), "EXIT_TOO_SHORT"),
        ("provider_registry", (GUARDIAN, ZERO), "ZERO_ADDRESS"),
        ("task_manager", (ZERO, INSURANCE, 1), "ZERO_ADDRESS"),
        ("deployment_order", (ZERO, "stakes", INSURANCE, INSURANCE, "token"), "ZERO_ADDRESS"),
        ("deployment_order", (INSURANCE, "stakes", INSURANCE, INSURANCE, ZERO), "ZERO_ADDRESS"),
        ("dispute", ("stakes", ZERO, INSURANCE, INSURANCE), "ZERO_ADDRESS"),
        ("dispute_book", ("token", "stakes", INSURANCE, INSURANCE, INSURANCE, 331, 1), "BOOK_TIME_TOO_LONG"),
        ("dispute_book", ("token", "stakes", INSURANCE, INSURANCE, INSURANCE, 60, 0), "ZERO_AMOUNT"),
    ],
)
def test_a_deployment_with_invalid_terms_is_refused(
    network: Network, name: str, arguments: tuple[object, ...], reason: str
) -> None:
    known = {"token": network.token.address, "stakes": network.stakes.address}
    with refused(reason):
        deploy(name, *(known.get(a, a) if isinstance(a, str) else a for a in arguments))


@pytest.mark.parametrize("name", ["escrow", "task_manager"])
def test_the_zero_address_is_never_wired(network: Network, name: str) -> None:
    arguments = {
        "escrow": (network.token.address, INSURANCE, 0),
        "task_manager": (network.stakes.address, network.registry.address, 1),
    }[name]
    with refused("ZERO_ADDRESS"):
        deploy(name, *arguments, who=DEPLOYER).wire(ZERO, who=DEPLOYER)
    stakes = deploy("stake_registry", network.token.address, INSURANCE, 1, 60, 600, 3600, 2, who=DEPLOYER)
    with refused("ZERO_ADDRESS"):
        stakes.wire(network.orders.address, [ZERO, DEPLOYER], who=DEPLOYER)
