"""Credits for leases that were down, in a real Postgres: each once, within limit and fund, and never to a liar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import asyncpg
import pytest

from sparewatt.core.errors import IdReused
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.leasing.uptime_credits import LOOK_BACK_S, UptimeCredits
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.uptime_fund import UptimeFund
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import (
    LeaseRecord,
    LeaseState,
    LeaseTerm,
    NodeKeyChange,
    ProviderRecord,
    RegistryStatus,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.market.lease_uptime import UptimeSpan, UptimeTally
from sparewatt.store.database import Database
from sparewatt.store.uptime_credits import uptime_cause
from sparewatt.testing.clocks import ManualClock
from tests.integration.money.samples import ANN, BEN, DOLLAR, HER, HIS, NODE, NOON_S, OLE, RULES, make_people

DAY_S = 86_400.0
WALLET = "0x" + "c" * 40
TENTH = Nano(DOLLAR // 10)
LOW = UptimeTally(span=UptimeSpan.ENDED, running_s=9_000, down_s=1_000, lost_uusd=500_000, outages=1)
"""90 %: half a dollar was lost; the fee of the stream below is ten cents."""
PAID = PaymentStream(0, charged_uusd=2_000_000, fee_uusd=100_000)


@dataclass
class Market:
    built: ChainView | None = field(default_factory=lambda: ChainView(depth=1))
    is_complete: bool = True

    def end(self, order_id: str, *providers: str, tally: UptimeTally = LOW, at: float = NOON_S - 60) -> None:
        assert self.built is not None
        state = self.built.final
        state.leases[order_id] = LeaseRecord(
            lease_id=order_id,
            renter=HER,
            state=LeaseState.CLOSED,
            provider=None,
            term=1,
            position=0,
            rate_uusd=1_800_000,
            locked_uusd=0,
            confirm_by=0,
            created_at=int(at) - 10_000,
            uptime=tally,
            terms=tuple(LeaseTerm(provider, int(at) - 9_000, int(at)) for provider in providers or (HIS,)),
            closed_at=int(at),
        )
        state.streams[order_id] = PAID
        state.ended_orders[order_id] = None


@dataclass
class Scene:
    database: Database
    market: Market
    clock: ManualClock
    connection: asyncpg.Connection[asyncpg.Record]

    def service(self, *, daily: int = DOLLAR) -> UptimeCredits:
        store = self.database.uptime_credits
        fund = UptimeFund(self.database.ledger, store, Nano(daily), self.clock)
        return UptimeCredits(market=self.market, store=store, fund=fund, clock=self.clock)

    async def order(self, order_id: str, account: AccountId = ANN) -> str:
        await self.connection.execute(
            "INSERT INTO lease_specs (spec_hash, specification, content) VALUES ('0x1', '{}', '{}') "
            "ON CONFLICT DO NOTHING"
        )
        await self.connection.execute(
            "INSERT INTO chain_requests (id, kind, account_id, address, micro, state, result) "
            "VALUES ($1, 'order', $2, $3, 5, 'done', $4)",
            order_id,
            account,
            HER,
            json.dumps({"order_id": order_id}),
        )
        await self.connection.execute(
            "INSERT INTO lease_orders (request_id, account_id, lease_id, batch, name, asked_hash, spec_hash) "
            "VALUES ($1, $2, $1, $1, 'job', '', '0x1')",
            order_id,
            account,
        )
        return order_id

    async def credited(self, account: AccountId = ANN) -> int:
        name = chart.credits_of(account)
        return (await self.database.ledger.balances([name]))[name]

    async def is_in_order(self) -> bool:
        owe = await self.database.chain_audit.books_owe()
        return (await self.database.ledger.audit()).is_clean and owe.owed == owe.elsewhere


@pytest.fixture
async def scene(database: Database, clock: ManualClock, dsn: str) -> AsyncIterator[Scene]:
    await make_people(database)
    connection = await asyncpg.connect(dsn)
    yield Scene(database, Market(), clock, connection)
    await connection.close()


async def test_a_lease_below_its_uptime_is_credited_once_out_of_the_operators_fund(scene: Scene) -> None:
    service = scene.service()
    await service.fund.add(DOLLAR, reference="november")
    scene.market.end(await scene.order("o1"))
    for _ in range(3):
        await service.run()
        await scene.service().run()
    assert await scene.credited() == TENTH
    status = await service.fund.status()
    assert (status.balance, status.credited_today) == (DOLLAR - TENTH, TENTH)
    row = (await scene.database.uptime_credits.find(["o1"]))["o1"]
    assert (row.ppm, row.due_nano, row.paid_nano, row.lease_id) == (900_000, TENTH, TENTH, "o1")
    balance = await CreditService(scene.database.ledger, rules=RULES, clock=scene.clock).balance(ANN)
    assert (balance.received, balance.spent) == (TENTH, 0)
    assert await scene.is_in_order()


async def test_a_lease_that_met_its_uptime_or_has_not_ended_is_not_ruled_on(scene: Scene) -> None:
    service = scene.service()
    await service.fund.add(DOLLAR, reference="a")
    scene.market.end(await scene.order("good"), tally=replace(LOW, running_s=9_999_000))
    scene.market.end(await scene.order("old"), at=NOON_S - LOOK_BACK_S - 1)
    await service.run()
    assert await scene.database.uptime_credits.recent(limit=9) == []


async def test_a_network_without_a_limit_rules_on_nothing(scene: Scene) -> None:
    scene.market.end(await scene.order("o1"))
    await scene.service(daily=0).run()
    assert await scene.database.uptime_credits.recent(limit=9) == []


async def test_a_renter_that_is_its_own_provider_cannot_mint_credits(scene: Scene) -> None:
    """By an address that the network holds for it, by its node's key under a wallet of its own, or by one of several
    providers that had the lease."""
    await scene.connection.execute("INSERT INTO nodes (id, account_id) VALUES ($1, $2)", NODE, ANN)
    key = NodeKeyChange(NODE, 1)
    record = ProviderRecord(provider=WALLET, status=RegistryStatus.ACTIVE, registered_at=1, node_keys=(key,))
    assert scene.market.built is not None
    scene.market.built.final.providers[WALLET] = record
    service = scene.service()
    await service.fund.add(DOLLAR, reference="a")
    for order_id, providers in {"own": (HER,), "wallet": (WALLET,), "second": (HIS, HER)}.items():
        scene.market.end(await scene.order(order_id), *providers)
    await service.run()
    rows = await scene.database.uptime_credits.recent(limit=9)
    assert {(row.reason, row.due_nano) for row in rows} == {("own_provider", 0)}
    assert (len(rows), await scene.credited()) == (3, 0)


async def test_credits_wait_for_the_next_day_in_the_order_of_their_leases(scene: Scene) -> None:
    service = scene.service(daily=250_000_000)
    await service.fund.add(DOLLAR, reference="a")
    for number in range(4):
        scene.market.end(await scene.order(f"o{number}"), at=NOON_S - 60 + number)
    await service.run()
    assert await scene.credited() == 2 * TENTH
    ruled, fund = await service.told_of(["o1", "o2"])
    assert fund is not None
    assert (ruled["o1"].paid_nano, ruled["o2"].paid_nano, fund.left_today) == (TENTH, None, 50_000_000)
    scene.clock.advance(DAY_S)
    await service.run()
    assert await scene.credited() == 4 * TENTH
    assert (await scene.database.uptime_credits.waiting()).leases == 0
    assert await scene.is_in_order()


async def test_a_credit_above_a_whole_days_limit_is_that_limit(scene: Scene) -> None:
    service = scene.service(daily=TENTH // 2)
    await service.fund.add(DOLLAR, reference="a")
    scene.market.end(await scene.order("o1"))
    await service.run()
    assert await scene.credited() == TENTH // 2


async def test_an_empty_fund_pays_when_it_is_filled(scene: Scene) -> None:
    service = scene.service()
    scene.market.end(await scene.order("o1"))
    await service.run()
    assert (await scene.credited(), (await scene.database.uptime_credits.waiting()).nano) == (0, TENTH)
    await service.fund.add(DOLLAR, reference="a")
    await service.run()
    assert await scene.credited() == TENTH


async def test_gateways_that_pay_at_once_keep_limit_and_fund(scene: Scene) -> None:
    await scene.service().fund.add(DOLLAR, reference="a")
    for number in range(6):
        scene.market.end(await scene.order(f"o{number}", OLE if number % 2 else ANN), at=NOON_S - 60 + number)
    gateways = [scene.service(daily=3 * TENTH) for _ in range(5)]
    for _ in range(4):
        await asyncio.gather(*(gateway.run() for gateway in gateways))
    assert await scene.credited(ANN) + await scene.credited(OLE) == 3 * TENTH
    assert await scene.is_in_order()


async def test_a_gateway_that_died_after_the_transfer_does_not_pay_again(scene: Scene) -> None:
    """Killed between the posting and the note of it: the cause of the transfer is what counts."""
    service = scene.service()
    await service.fund.add(DOLLAR, reference="a")
    scene.market.end(await scene.order("o1"))
    await service.run()
    await scene.connection.execute("UPDATE uptime_credits SET paid_at = NULL")
    assert len(await scene.database.uptime_credits.due(limit=9)) == 1
    await scene.service().run()
    assert await scene.credited() == TENTH
    assert await scene.database.uptime_credits.due(limit=9) == []
    assert await scene.database.ledger.find_transfer(uptime_cause("o1")) == (ANN, TENTH)


async def test_the_fund_cannot_be_overdrawn_and_an_id_is_used_once(scene: Scene) -> None:
    fund = scene.service().fund
    assert await fund.add(TENTH, reference="a")
    assert not await fund.add(TENTH, reference="a")
    with pytest.raises(IdReused):
        await fund.add(DOLLAR, reference="a")
    for number in range(3):
        scene.market.end(await scene.order(f"o{number}", BEN), WALLET, at=NOON_S - 60 + number)
    await scene.service().run()
    assert (await fund.status()).balance == 0
    assert await scene.credited(BEN) == TENTH
    assert await scene.is_in_order()


async def test_a_lease_that_ends_later_is_found_and_what_was_ruled_on_is_not_looked_at_again(scene: Scene) -> None:
    service = scene.service()
    await service.fund.add(DOLLAR, reference="a")
    for number in range(3):
        scene.market.end(await scene.order(f"o{number}"), at=NOON_S - 60 + number)
        await service.run()
    assert await scene.credited() == 3 * TENTH


async def test_an_order_whose_id_is_noted_a_moment_later_is_credited_all_the_same(scene: Scene) -> None:
    service = scene.service()
    await service.fund.add(DOLLAR, reference="a")
    scene.market.end("late")
    await service.run()
    assert await scene.credited() == 0
    await scene.order("late")
    await service.run()
    assert await scene.credited() == TENTH


async def test_a_stranger_without_an_account_is_passed_over(scene: Scene) -> None:
    service = scene.service()
    scene.market.end("of_nobody_here")
    await service.run()
    assert await scene.database.uptime_credits.recent(limit=9) == []
