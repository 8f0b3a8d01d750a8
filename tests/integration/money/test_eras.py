"""Eras of rewards in a real Postgres: closed once, from what others paid and gateways counted, to the nano-dollar."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.deposit_adapters import TEST_ADAPTER, ConfirmedDeposit
from sparewatt.ledger.era_draft import ProviderStanding
from sparewatt.ledger.eras import ChainStanding, EraService, NoChainStanding
from sparewatt.ledger.payouts import payout_tree
from sparewatt.protocol.api.rewards import ValidatorEraInputs
from sparewatt.store.check_counts import CheckCount
from sparewatt.store.database import Database
from sparewatt.store.eras import EraRow
from sparewatt.store.history import HistoryCounts
from sparewatt.store.node_results import NodeResultCount
from sparewatt.testing.clocks import ManualClock
from sparewatt.trust.rewards.era import reward_era
from sparewatt.trust.rewards.rule import read_inputs, write_inputs
from sparewatt.trust.tiers import Tier
from tests.integration.money.samples import (
    ANN,
    BEN,
    DOLLAR,
    HIS,
    NODE,
    NOON_S,
    OLE,
    OTHER_NODE,
    RULES,
    delivery,
    job,
    make_people,
    settle,
)

ERA_S = 600
TODAY = dt.datetime.fromtimestamp(NOON_S, tz=dt.UTC).date()
PAYERS = [ANN, *(AccountId(f"acc_payer{number}") for number in range(3))]
VALIDATOR = "0x" + "c" * 40


async def own(database: Database, node_id: NodeId, account: AccountId) -> None:
    async with database._pool.transaction() as connection:
        await connection.execute("INSERT INTO nodes (id, account_id) VALUES ($1, $2)", node_id, account)


async def count_up(database: Database, node_id: NodeId, up_s: float, *, known_s: float = ERA_S) -> None:
    figures = HistoryCounts(up_s=up_s, known_s=known_s)
    await database.history.add({("node", node_id): figures}, unix_s=NOON_S)


async def balance(database: Database, name: str) -> int:
    return (await database.ledger.balances([name]))[name]


async def pay(database: Database, name: str, *, payer: AccountId, owner: AccountId = BEN, at: float) -> None:
    """A quarter of a dollar for an answer of a machine without a GPU; half as much as one payer may verify."""
    done = delivery(owner, prompt=0, written=6_250_000)
    await settle(database, job(name, done, paid=250_000_000, account=payer, at=at))


@pytest.fixture
async def eras(database: Database, clock: ManualClock) -> EraService:
    await make_people(database)
    credits_ = CreditService(database.ledger, rules=RULES, clock=clock)
    for payer in PAYERS:
        await credits_.deposit(payer, ConfirmedDeposit(f"one:{payer}", Nano(10 * DOLLAR)), adapter=TEST_ADAPTER)
    await credits_.deposit(BEN, ConfirmedDeposit("ben", Nano(10 * DOLLAR)), adapter=TEST_ADAPTER)
    await own(database, NODE, BEN)
    await own(database, OTHER_NODE, OLE)
    return EraService(database=database, chain=NoChainStanding(), clock=clock, era_s=ERA_S)


async def close(eras: EraService, clock: ManualClock) -> EraRow:
    clock.advance(ERA_S + 60)
    row = await eras.close_due()
    assert row is not None
    return row


async def test_an_era_pays_a_share_of_its_fees_and_the_books_agree(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    for payer in PAYERS:
        await pay(database, payer, payer=payer, at=NOON_S + 5)
    await count_up(database, NODE, ERA_S)
    fees = await balance(database, chart.FEES)
    assert fees == 50_000_000
    row = await close(eras, clock)
    assert (row.era, row.pool_micro) == (1, 25_000)
    assert await balance(database, chart.FEES) == row.fees_left_nano == 25_000_000
    assert await balance(database, chart.REWARDS) == row.carried_nano
    assert await balance(database, chart.REWARD_PAYOUTS) == row.given_micro * 1_000 > 0
    assert row.given_micro * 1_000 + row.carried_nano == 25_000_000
    (leaf,) = await database.reward_payouts.leaves_at(1)
    assert (leaf.address, leaf.account_id, leaf.earned_micro) == (HIS, BEN, row.given_micro)
    batch = await database.reward_payouts.find_batch(1)
    assert batch is not None
    assert batch.root == payout_tree([leaf]).root
    assert (await database.ledger.audit()).is_clean
    assert await database.payouts.find_batch(1) is None  # what was earned is another pool's


async def test_the_published_inputs_alone_give_the_same_amounts_and_bytes(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    for payer in PAYERS:
        await pay(database, payer, payer=payer, at=NOON_S + 5)
    await count_up(database, NODE, 590)
    row = await close(eras, clock)
    inputs = read_inputs(row.inputs)
    assert write_inputs(inputs) == row.inputs
    assert ANN not in row.inputs
    rewards = reward_era(inputs)
    assert (rewards.pool_micro, rewards.given_micro, rewards.carried_nano) == (
        row.pool_micro,
        row.given_micro,
        row.carried_nano,
    )
    (stored,) = await database.eras.rewards_of(BEN, before=None, limit=10)
    (computed,) = rewards.nodes
    assert (stored.availability_micro, stored.uptime_micro, stored.quality_micro) == (
        computed.availability_micro,
        computed.uptime_micro,
        computed.quality_micro,
    )


async def test_nothing_is_lost_between_eras_and_nothing_is_counted_twice(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    await pay(database, "first", payer=ANN, at=NOON_S + 5)
    await count_up(database, NODE, 300, known_s=600)
    first = await close(eras, clock)
    for payer in PAYERS:
        await pay(database, f"second-{payer}", payer=payer, at=NOON_S + ERA_S + 5)
    await count_up(database, NODE, 500, known_s=500)
    second = await close(eras, clock)
    (node,) = read_inputs(second.inputs).nodes
    assert (node.up_s, node.known_s, node.done, node.days) == (500, 500, 4, 1)
    assert second.since == first.until
    assert read_inputs(second.inputs).inference_fees_nano == 50_000_000
    assert read_inputs(second.inputs).held_nano == first.carried_nano
    leaves = await database.reward_payouts.leaves_at(2)
    assert [leaf.earned_micro for leaf in leaves] == [first.given_micro + second.given_micro]
    assert (await database.ledger.audit()).is_clean


async def test_two_gateways_close_an_era_once(database: Database, eras: EraService, clock: ManualClock) -> None:
    await pay(database, "one", payer=ANN, at=NOON_S + 5)
    clock.advance(ERA_S + 60)
    closed = await asyncio.gather(eras.close_due(), eras.close_due(), eras.close_due())
    assert [row.era for row in closed if row is not None] == [1]
    assert await eras.close_due() is None
    assert len(await database.eras.list(before=None, limit=10)) == 1


async def test_jobs_of_an_owner_for_its_own_nodes_count_for_nothing(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    await pay(database, "own", payer=BEN, at=NOON_S + 5)
    await count_up(database, NODE, ERA_S)
    row = await close(eras, clock)
    (node,) = read_inputs(row.inputs).nodes
    assert (node.done, node.payers_micro, node.fees_micro) == (0, [], 0)
    assert (row.given_micro, row.carried_nano) == (0, 6_250_000)
    assert row.epoch is None


async def test_free_credits_verify_nothing(database: Database, eras: EraService, clock: ManualClock) -> None:
    given = delivery(BEN, prompt=0, written=1_000)
    await settle(database, job("free", given, promo=40_000, account=ANN, at=NOON_S + 5))
    await count_up(database, NODE, ERA_S)
    (node,) = read_inputs((await close(eras, clock)).inputs).nodes
    assert (node.done, node.payers_micro, node.payers_done) == (1, [0], [1])


async def test_failures_and_checks_are_counted_once_per_era(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    await database.node_results.add([NodeResultCount(NODE, TODAY, "timed_out", 3, NOON_S)])
    await database.check_counts.add([CheckCount(NODE, TODAY, "rerun", 5, 1, NOON_S)])
    await count_up(database, NODE, ERA_S)
    first = read_inputs((await close(eras, clock)).inputs).nodes[0]
    assert (first.failed, first.checks_passed, first.checks_failed, first.days) == (3, 5, 1, 0)
    await database.check_counts.add([CheckCount(NODE, TODAY, "probe", 2, 0, NOON_S)])
    await count_up(database, NODE, ERA_S)
    second = read_inputs((await close(eras, clock)).inputs).nodes[0]
    assert (second.failed, second.checks_passed, second.checks_failed, second.days) == (0, 2, 0, 1)


async def test_what_the_operator_deposits_is_given_in_the_next_era(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    credits_ = CreditService(database.ledger, rules=RULES, clock=clock)
    assert await credits_.fund_rewards(Nano(DOLLAR), reference="may")
    assert not await credits_.fund_rewards(Nano(DOLLAR), reference="may")
    for payer in PAYERS:
        await pay(database, payer, payer=payer, at=NOON_S + 5)
    await count_up(database, NODE, ERA_S)
    row = await close(eras, clock)
    assert row.pool_micro == 1_025_000
    assert row.given_micro == 50_000  # never more than the fees that the node's work brought
    assert await balance(database, chart.REWARDS) == row.carried_nano == 975_000_000


class FixedStanding:
    def __init__(self, standing: ChainStanding | None) -> None:
        self.value = standing

    async def standing(self, *, since: int, until: int) -> ChainStanding | None:
        assert since < until
        return self.value


async def test_an_era_waits_while_the_chain_is_being_read(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    source = FixedStanding(None)
    eras.chain = source
    clock.advance(ERA_S + 60)
    assert await eras.close_due() is None
    source.value = ChainStanding()
    assert await eras.close_due() is not None


async def test_validators_are_paid_at_their_own_address(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    voter = ValidatorEraInputs(operator=VALIDATOR, stake_micro=5, votes=1, due=2, jailed=False)
    eras.chain = FixedStanding(ChainStanding(validators=[voter]))
    await CreditService(database.ledger, rules=RULES, clock=clock).fund_rewards(Nano(DOLLAR), reference="may")
    row = await close(eras, clock)
    assert row.given_micro == 100_000
    (leaf,) = await database.reward_payouts.leaves_at(1)
    assert (leaf.address, leaf.account_id, leaf.earned_micro) == (VALIDATOR, "", 100_000)
    assert (await database.ledger.audit()).is_clean


async def test_a_tier_follows_from_the_eras_and_counts_in_the_next(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    """Ten days of ten hours each, so to say: what is counted is days, not hours."""
    eras.era_s = 86_400
    eras.chain = FixedStanding(ChainStanding(providers={NODE: ProviderStanding(bond_micro=10_000_000)}))
    for number in range(7):
        at = NOON_S + number * 86_400
        day = TODAY + dt.timedelta(days=number)
        await database.history.add({("node", NODE): HistoryCounts(up_s=86_000.0, known_s=86_400.0)}, unix_s=at)
        await database.check_counts.add([CheckCount(NODE, day, "probe", 3, 0, at)])
        done = [job(f"{number}-{each}", delivery(BEN), paid=10_000, account=ANN, at=at) for each in range(15)]
        await settle(database, *done)
        clock.advance(86_400)
        row = await eras.close_due()
        assert row is not None
        assert read_inputs(row.inputs).nodes[0].tier == "community"
        assert read_inputs(row.inputs).nodes[0].days == number + 1
    assert (await database.node_tiers.all())[NODE].tier is Tier.VERIFIED
    await database.history.add({("node", NODE): HistoryCounts(up_s=9.0, known_s=10.0)}, unix_s=NOON_S + 7 * 86_400)
    clock.advance(86_400)
    row = await eras.close_due()
    assert row is not None
    assert read_inputs(row.inputs).nodes[0].tier == "verified"


async def test_the_matcher_reads_what_eras_say_of_completion(
    database: Database, eras: EraService, clock: ManualClock
) -> None:
    await pay(database, "one", payer=ANN, at=NOON_S + 5)
    await database.node_results.add([NodeResultCount(NODE, TODAY, "timed_out", 2, NOON_S)])
    row = await close(eras, clock)
    (found,) = await database.eras.completion_sums(now_unix_s=float(row.until))
    assert (found.node_id, found.done, found.failed) == (NODE, 1.0, 2.0)
    (later,) = await database.eras.completion_sums(now_unix_s=row.until + 14 * 86_400.0)
    assert (later.done, later.failed) == (0.5, 1.0)
    (day,) = await database.eras.record_days(NODE, since=0.0)
    assert (day.good_units, day.bad_units) == (1_000_000, 2_000_000)
