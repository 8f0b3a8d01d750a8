"""Credits in a real Postgres: each cause once, limits kept, chores that race, and books that stay in order."""

from __future__ import annotations

import asyncio

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditRules, CreditService
from sparewatt.ledger.deposit_adapters import TEST_ADAPTER, ConfirmedDeposit, adapter_named, adapters_for
from sparewatt.store.database import Database
from sparewatt.testing.clocks import ManualClock
from tests.integration.money.samples import ANN, BEN, DOLLAR, OLE, RULES, delivery, job, settle

DAY_S = 86_400.0


@pytest.fixture
def credits_(database: Database, clock: ManualClock) -> CreditService:
    return CreditService(database.ledger, rules=RULES, clock=clock)


async def in_order(database: Database) -> bool:
    return (await database.ledger.audit()).is_clean


async def test_who_signs_up_gets_free_credits_once(
    database: Database, credits_: CreditService, clock: ManualClock
) -> None:
    for _ in range(2):
        await credits_.on_signup(ANN, address="192.0.2.1")
    balance = await credits_.balance(ANN)
    assert (balance.promo, balance.paid, balance.granted) == (DOLLAR, 0, DOLLAR)
    assert balance.promo_ends_unix_s == clock.unix_s() + 30 * DAY_S
    assert await in_order(database)


async def test_an_address_gets_so_many_grants_a_day_and_others_get_theirs(
    credits_: CreditService, clock: ManualClock
) -> None:
    async def promo_of(name: str, address: str) -> Nano:
        told = await credits_.on_signup(AccountId(name), address=address)
        promo = (await credits_.balance(AccountId(name))).promo
        assert (told is None) == (promo > 0)
        return promo

    assert [await promo_of(f"acc_{i}", "192.0.2.1") for i in range(5)] == [DOLLAR] * 3 + [0, 0]
    assert await promo_of("acc_else", "192.0.2.2") == DOLLAR
    assert [await promo_of(f"acc_six{i}", f"2001:db8::{i}") for i in range(1, 5)] == [DOLLAR] * 3 + [0]
    clock.advance(DAY_S)
    assert await promo_of("acc_tomorrow", "192.0.2.1") == DOLLAR


async def test_a_network_that_gives_nothing_grants_nothing(database: Database, clock: ManualClock) -> None:
    stingy = CreditRules(signup=Nano(0), promo_days=30, grants_per_address_day=3, treasury_daily=Nano(0))
    await CreditService(database.ledger, rules=stingy, clock=clock).on_signup(ANN, address="192.0.2.1")
    assert await database.ledger.transfer_totals(ANN) == {}


async def test_a_thousand_signups_at_once_get_three_grants(database: Database, credits_: CreditService) -> None:
    names = [AccountId(f"acc_{i}") for i in range(100)]
    await asyncio.gather(*(credits_.on_signup(name, address="192.0.2.1") for name in names))
    held = await database.ledger.balances([chart.promo_of(name) for name in names])
    assert sum(held.values()) == 3 * DOLLAR


async def test_the_same_reference_is_granted_once(credits_: CreditService) -> None:
    assert await credits_.grant(ANN, DOLLAR, reference="welcome-ann")
    assert not await credits_.grant(ANN, DOLLAR, reference="welcome-ann")
    assert (await credits_.balance(ANN)).promo == DOLLAR


async def test_a_deposit_is_posted_once_and_is_no_promo(database: Database, credits_: CreditService) -> None:
    arrival = ConfirmedDeposit("tx1", DOLLAR)
    assert await credits_.deposit(ANN, arrival, adapter=TEST_ADAPTER)
    assert not await credits_.deposit(ANN, arrival, adapter=TEST_ADAPTER)
    balance = await credits_.balance(ANN)
    assert (balance.promo, balance.paid, balance.deposited) == (0, DOLLAR, DOLLAR)
    assert await in_order(database)


async def test_test_money_is_for_development_networks_only() -> None:
    adapters = adapters_for(development=True)
    arrival = await adapter_named(TEST_ADAPTER, adapters).confirm(ANN, reference="mine", nano=DOLLAR)
    assert arrival == ConfirmedDeposit("acc_ann:mine", DOLLAR)
    with pytest.raises(InvalidField, match="takes no deposits"):
        adapter_named(TEST_ADAPTER, adapters_for(development=False))
    with pytest.raises(InvalidField, match="Known: test"):
        adapter_named("cash", adapters)


async def test_credits_run_out_and_the_newer_stay(
    database: Database, credits_: CreditService, clock: ManualClock
) -> None:
    await credits_.grant(ANN, Nano(100), reference="old", days=1)
    await credits_.grant(ANN, Nano(40), reference="new", days=10)
    assert await credits_.expire() == 0
    clock.advance(2 * DAY_S)
    assert await credits_.expire() == 100
    assert await credits_.expire() == 0
    balance = await credits_.balance(ANN)
    assert (balance.promo, balance.expired, balance.spent) == (40, 100, 0)
    assert await in_order(database)


async def test_what_a_gateway_has_reserved_does_not_run_out_under_it(
    database: Database, credits_: CreditService, clock: ManualClock
) -> None:
    await credits_.grant(ANN, Nano(100), reference="old", days=1)
    await settle(database, job("1", delivery(), promo=30))
    await reserve(database, chart.promo_of(ANN), 30)
    clock.advance(2 * DAY_S)
    assert await credits_.expire() == 40
    assert (await credits_.balance(ANN)).promo == 30
    await database.ledger.drop_slices("gw_test")
    assert await credits_.expire() == 30
    assert (await credits_.balance(ANN)).spent == 30


async def reserve(database: Database, account: str, nano: int) -> None:
    async with database.ledger._pool.transaction() as connection:
        await connection.execute(
            "INSERT INTO slices (account, instance, nano) VALUES ($1, 'gw_test', $2)", account, nano
        )


async def test_gateways_that_expire_at_once_take_it_once(
    database: Database, credits_: CreditService, clock: ManualClock
) -> None:
    await credits_.grant(ANN, Nano(100), reference="old", days=1)
    await credits_.grant(ANN, Nano(900), reference="new", days=10)
    clock.advance(2 * DAY_S)
    others = [
        CreditService(database.ledger, rules=RULES, clock=ManualClock(unix_s=clock.unix_s() + i)) for i in range(5)
    ]
    assert sum(await asyncio.gather(*(each.expire() for each in others))) == 100
    assert (await credits_.balance(ANN)).promo == 900


# promo income


async def earn_promo(database: Database, credits_: CreditService) -> None:
    """Ben 300,000 less the fee, Ole 100,000 less the fee."""
    await credits_.grant(ANN, DOLLAR, reference="ann")
    small = delivery(OLE, prompt=0, written=2_500, node_id="0x" + "33" * 20)
    await settle(
        database,
        job("1", delivery(BEN, prompt=0, written=7_500), promo=300_000),
        job("2", small, promo=100_000),
    )


async def earned(database: Database, owner: AccountId) -> tuple[int, int]:
    names = chart.earned_by(owner), chart.promo_earned_by(owner)
    held = await database.ledger.balances(names)
    return held[names[0]], held[names[1]]


async def test_promo_income_is_not_payable_until_the_treasury_is_funded(
    database: Database, credits_: CreditService
) -> None:
    await earn_promo(database, credits_)
    assert await credits_.redeem() == 0
    assert await earned(database, BEN) == (0, 285_000)


async def test_a_funded_treasury_pays_within_its_daily_budget_by_amount(
    database: Database, credits_: CreditService, clock: ManualClock
) -> None:
    rules = CreditRules(signup=DOLLAR, promo_days=30, grants_per_address_day=3, treasury_daily=Nano(400_000))
    till = CreditService(database.ledger, rules=rules, clock=clock)
    await earn_promo(database, credits_)
    await till.fund_treasury(DOLLAR, reference="one")
    assert not await till.fund_treasury(DOLLAR, reference="one")
    assert await till.redeem() == 200_000  # half of the day's budget at noon
    assert await earned(database, BEN) == (150_000, 135_000)
    assert await earned(database, OLE) == (50_000, 45_000)
    assert await till.redeem() == 0
    clock.advance(DAY_S)
    assert await till.redeem() == 180_000  # all that is still owed
    assert await earned(database, BEN) == (285_000, 0)
    assert (await till.treasury()).balance == DOLLAR - 380_000
    assert await in_order(database)


async def test_gateways_that_redeem_at_once_stay_within_the_budget(database: Database, clock: ManualClock) -> None:
    rules = CreditRules(signup=DOLLAR, promo_days=30, grants_per_address_day=3, treasury_daily=Nano(100_000))
    clocks = [ManualClock(unix_s=clock.unix_s() + i / 100) for i in range(5)]
    tills = [CreditService(database.ledger, rules=rules, clock=each) for each in clocks]
    await earn_promo(database, tills[0])
    await tills[0].fund_treasury(DOLLAR, reference="one")
    await asyncio.gather(*(till.redeem() for till in tills))
    redeemed = (await tills[0].treasury()).redeemed_today
    assert 0 < redeemed <= 50_001
    assert await in_order(database)


async def test_an_unfunded_treasury_never_goes_below_nothing(database: Database, credits_: CreditService) -> None:
    await earn_promo(database, credits_)
    await credits_.fund_treasury(Nano(10), reference="little")
    assert await credits_.redeem() == 10
    assert (await credits_.treasury()).balance == 0
    assert await credits_.redeem() == 0
