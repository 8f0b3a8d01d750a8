"""A renter's changes on the real contracts: the meter, the warning, an empty deposit, the cap, and the books."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest

from sparewatt.api.leases.money_replies import write_ending, write_money
from sparewatt.core.errors import IdReused, MaxSpendReached, UnprocessableContent
from sparewatt.evm.model import bytes_of
from sparewatt.leasing.changes.change_rules import LeaseChange
from sparewatt.leasing.changes.change_service import LeaseChangeService
from sparewatt.leasing.orders.order_service import LeaseOrderService
from sparewatt.market.chain_records import LeaseState, UpdateTerms
from sparewatt.protocol.api.lease_changes import LeaseMoney
from sparewatt.protocol.link.lease_offer import LeaseOffer, LeasePrice
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.lease_orders import LeaseOrderRow
from tests.integration.chain.offering import SPECS
from tests.integration.chain.settling import USER
from tests.integration.chain.stepped_chain import DOLLAR_MICRO, STAKER
from tests.integration.chain.test_lease_pay import PRICE, Renting, renting

__all__ = ["renting"]
OFFER = LeaseOffer(prices=(LeasePrice(1, PRICE),), longest_s=2**32 - 1)
_T = TypeVar("_T")


class Changing:
    """A lease of two dollars an hour that runs, with a deposit of one dollar: half an hour."""

    def __init__(self, renting: Renting, order_id: str) -> None:
        self.renting, self.order_id = renting, order_id
        specs = msgspec.structs.replace(SPECS, lease_offer=OFFER)
        settling = renting.books.settling
        orders = LeaseOrderService(
            database=settling.database, requests=settling.leases, market=renting.index, connected_specs=lambda _: specs
        )
        self.changes = LeaseChangeService(orders)

    @classmethod
    async def started(cls, renting: Renting) -> Changing:
        order_id = await renting.books.order(1, "lease")
        await renting.start(order_id)
        await renting.books.check()
        changing = cls(renting, order_id)
        assert (await renting.lease(order_id)).state is LeaseState.ACTIVE
        return changing

    async def row(self, **changes: Any) -> LeaseOrderRow:
        return replace(await self.changes.orders.find(USER, self.order_id), **changes)

    async def done(self, asking: Coroutine[Any, Any, _T]) -> _T:
        async def with_index() -> _T:
            task = asyncio.ensure_future(asking)
            while not task.done():
                await self.renting.index.follow()
                await asyncio.sleep(0.02)
            return task.result()

        return await self.renting.offering.done(with_index())

    async def sent(self, contract: str, function: str, *args: object, by_node: bool = True) -> None:
        settling = self.renting.books.settling
        key = self.renting.offering.keys[self.renting.node_id] if by_node else STAKER
        await settling.send(settling.contracts[contract].encode_call(function, bytes_of(self.order_id), *args), key)
        await self.renting.books.check()
        await self.renting.index.follow()

    async def money(self) -> LeaseMoney:
        await self.renting.books.check()
        await self.renting.index.follow()
        view = self.renting.index.view()
        return write_money(view, view.latest.orders[self.order_id], "lease", unix_s=0)

    async def proposed(self) -> UpdateTerms:
        for _ in range(1_000):
            found = self.renting.index.view().latest.leases[self.order_id].proposed
            if found is not None:
                return found
            await asyncio.sleep(0.02)
        raise AssertionError("nothing was proposed")

    async def kinds(self) -> list[str]:
        return [entry.kind.value for entry in await self.changes.history(await self.row())]


async def gathered(*asking: Coroutine[Any, Any, _T]) -> list[_T | BaseException]:
    return list(await asyncio.gather(*asking, return_exceptions=True))


async def test_a_pause_stands_the_meter_and_an_extension_is_paid_for_before_it_is_proposed(renting: Renting) -> None:
    changing = await Changing.started(renting)
    changes, settling = changing.changes, renting.books.settling
    await changing.done(changes.pause(await changing.row(), reference="p"))
    spent = (await changing.money()).spent_usd
    await settling.pass_time(10_000)
    assert (await changing.money()).spent_usd == spent, "a pause costs nothing"
    with pytest.raises(UnprocessableContent, match="Resume it first"):
        changes.plan(await changing.row(), LeaseChange(added_s=3_600))
    assert (await changing.done(changes.pause(await changing.row(), reference="p"))).state.value == "done"
    await changing.done(changes.resume(await changing.row(), reference="r"))
    await changing.sent("deployment_order", "confirm_start", b"\5" * 32)
    assert (await changing.money()).paused_s >= 10_000

    before = renting.index.view().latest.streams[changing.order_id]
    change = LeaseChange(added_s=3_600)
    asking = asyncio.ensure_future(changing.done(changes.change(await changing.row(), change, reference="e")))
    proposed = await changing.proposed()
    terms = (bytes_of(proposed.spec_hash), proposed.rate_uusd, proposed.duration_s, proposed.seq)
    key = renting.offering.keys[renting.node_id]
    call = settling.contracts["lease_moves"].encode_call("accept_update", bytes_of(changing.order_id), *terms)
    await settling.send(call, key)
    made = await asking
    assert made.is_accepted
    assert made.top_up is not None
    after = renting.index.view().latest.streams[changing.order_id]
    assert after.end_at >= before.end_at + 3_600
    assert after.deposited_uusd == before.deposited_uusd + made.top_up.micro
    assert 2 * DOLLAR_MICRO <= made.top_up.micro <= 2 * DOLLAR_MICRO * 11 // 10, "an hour, and a little"
    again = await changing.done(changes.change(await changing.row(), change, reference="e"))
    assert again.update.id == made.update.id
    with pytest.raises(IdReused):
        await changes.change(await changing.row(), LeaseChange(added_s=7_200), reference="e")
    assert (await changing.kinds())[-3:] == ["deposit_added", "update_proposed", "updated"]
    await renting.books.check()


async def test_an_empty_deposit_is_warned_of_paused_and_saved_by_a_top_up_within_the_cap(renting: Renting) -> None:
    changing = await Changing.started(renting)
    changes, settling = changing.changes, renting.books.settling
    await settling.pass_time(1_440 + 60)
    await changing.sent("escrow", "settle", by_node=False)
    assert (await changing.money()).warning == "deposit_low"
    assert "deposit_low" in await changing.kinds()
    with pytest.raises(MaxSpendReached):
        await changes.top_up(
            await changing.row(max_spend_micro=DOLLAR_MICRO), micro=1, max_spend_micro=None, reference="x"
        )
    await settling.pass_time(1_800)
    await changing.sent("escrow", "settle", by_node=False)
    money = await changing.money()
    assert (money.warning, money.left_usd, money.hourly_usd) == ("deposit_empty", "0", "0")
    assert money.grace_ends_at is not None
    assert money.next_step is not None
    with pytest.raises(UnprocessableContent, match="top-up"):
        await changes.resume(await changing.row(), reference="r")

    capped = await changing.row(max_spend_micro=DOLLAR_MICRO)
    two = 2 * DOLLAR_MICRO
    added, refused = await changing.done(
        gathered(
            changes.top_up(capped, micro=DOLLAR_MICRO, max_spend_micro=two, reference="t"),
            changes.top_up(capped, micro=DOLLAR_MICRO, max_spend_micro=two, reference="u"),
        )
    )
    assert isinstance(added, ChainRequestRow)
    assert isinstance(refused, MaxSpendReached), "two at once do not pass one cap"
    assert (await changing.row()).max_spend_micro == 2 * DOLLAR_MICRO
    assert (await changing.money()).warning is None
    await changing.sent("deployment_order", "resume", by_node=False)  # anyone may: the chain's process does
    await changing.sent("deployment_order", "confirm_start", b"\5" * 32)
    assert (await renting.lease(changing.order_id)).state is LeaseState.ACTIVE

    await renting.close(changing.order_id)
    await changing.money()
    view = renting.index.view()
    ending = write_ending(view, view.latest.orders[changing.order_id])
    assert ending is not None
    assert (ending.reason, ending.who) == ("RENTER", "renter")
    assert float(ending.paid_usd) + float(ending.refunded_usd or 0) == pytest.approx(2)
    kinds = await changing.kinds()
    assert kinds[-6:] == ["deposit_low", "paused", "deposit_added", "resumed", "started", "closed"]
    await renting.books.check()
