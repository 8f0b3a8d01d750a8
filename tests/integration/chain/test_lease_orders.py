"""A renter's orders on the real contracts: all of a batch or none, each with its document, its renter's alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sparewatt.api.leases.replies import phase_of, write_changed, write_created, write_details
from sparewatt.core.errors import (
    ChainUnavailable,
    IdReused,
    InsufficientCredits,
    InvalidField,
    LeaseNotFound,
    RateLimited,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId
from sparewatt.leasing.lease_requests import request_id
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.orders.order_fields import LeaseOrder, read_order
from sparewatt.leasing.orders.order_service import LeaseOrderService, OrderedLeases, is_placed
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.contracts.lease_content import content_hash_of, read_content
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.lease_orders import LeaseOrderRow
from sparewatt.store.request_params import ChainRequestKind
from tests.integration.chain.requesting import Requesting, open_requesting
from tests.integration.chain.stepped_chain import DOLLAR


@dataclass(slots=True)
class Renting:
    requesting: Requesting
    index: MarketIndex
    service: LeaseOrderService

    async def until_placed(self, account: AccountId, reference: str) -> list[LeaseOrderRow]:
        """The orders of a batch once the index has folded each."""

        async def are_placed() -> bool:
            await self.index.follow()
            found = await self.rows(account, reference)
            return all(is_placed(row) for row in found) and all(
                row.order_id is None or row.order_id in self.index.view().latest.orders for row in found
            )

        await self.requesting.until(are_placed, "some are not on the chain")
        return await self.rows(account, reference)

    async def rows(self, account: AccountId, reference: str) -> list[LeaseOrderRow]:
        return await self.requesting.database.lease_orders.find_batch(account, reference, limit=32)

    async def held(self, account: AccountId) -> int:
        return (await self.requesting.database.credit_holds.held_by(account)).get("request", 0)

    async def done(self, asking: Coroutine[Any, Any, ChainRequestRow]) -> ChainRequestRow:
        """What a gateway answers, while the chain's process works."""
        task = asyncio.ensure_future(asking)

        async def is_done() -> bool:
            await asyncio.sleep(0.01)
            await self.index.follow()
            return task.done()

        await self.requesting.until(is_done, "no answer")
        return task.result()


@pytest.fixture
async def renting(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Renting]:
    async with open_requesting(anvil.url, dsn, tmp_path / "chain") as requesting:
        await requesting.post_snapshot()
        index = MarketIndex(requesting.database.market_events, has_chain=True)

        async def is_open() -> bool:
            await index.follow()
            with suppress(ChainUnavailable):
                return index.view().latest.latest_snapshot is not None
            return False

        await requesting.until(is_open, "there is no snapshot")
        yield Renting(
            requesting,
            index,
            LeaseOrderService(
                database=requesting.database,
                requests=requesting.leases,
                market=index,
                connected_specs=lambda _: None,
            ),
        )


def order(**fields: Any) -> LeaseOrder:
    """A dollar an hour at most, for an hour."""
    asked = {"image": "ghcr.io/me/train:1", "env": {"A": "ü"}, "policy": {"max_hourly": 1}} | fields
    return read_order(asked)


async def test_orders_of_one_name_reach_the_chain_with_their_document(renting: Renting) -> None:
    account, service = await renting.requesting.make_account(1, promo=10 * DOLLAR), renting.service
    made = await service.create(account, order(count=2, secrets=["HF_TOKEN"]), reference="a/b c")
    assert made.is_new
    assert await renting.held(account) == 2 * DOLLAR
    assert [phase_of(renting.index.view(), row) for row in made.rows] == ["sending", "sending"]

    first, second = await renting.until_placed(account, "a/b c")
    view = renting.index.view()
    assert first.order_id != second.order_id
    on_chain = view.latest.orders[first.order_id or ""]
    assert (on_chain.spec_hash, on_chain.max_attempts) == (first.spec_hash, 0)  # secrets: only the renter reopens
    documents = renting.requesting.database.lease_orders
    spec = await documents.find_spec(on_chain.spec_hash, renter=on_chain.renter)
    assert spec is not None
    assert await documents.find_spec(on_chain.spec_hash, renter="0x" + "9" * 40) is None  # who only copies the hash
    assert content_hash_of(spec.content) == spec.specification.content_hash
    assert read_content(spec.content).secrets == ("HF_TOKEN",)
    assert spec.specification.secrets == 1

    reply = write_created(view, [first, second], reference="a/b c", is_new=True, notes=[], unix_s=0)
    assert [(each.phase, each.deposit_usd) for each in reply.leases] == [("open", "1"), ("open", "1")]
    assert reply.total_usd == "2"
    row = await service.find(account, first.order_id or "")
    shown = write_details(view, row, missing_secrets=[], unix_s=0)
    assert shown.content["env"] == {"A": "ü"}
    assert shown.order is not None


async def test_an_order_has_its_id_from_the_block_on_that_has_it(renting: Renting) -> None:
    """An auction is over in a second: its renter sees it run only if the id does not wait for the next round."""
    requesting, service = renting.requesting, renting.service
    account = await requesting.make_account(1, promo=2 * DOLLAR)
    await service.create(account, order(), reference="r")
    await requesting.worker.step()  # decides on the transactions, and is not asked again

    async def is_seen() -> bool:
        await requesting.sender.step()
        await requesting.follower.step()
        return all(is_placed(row) for row in await renting.rows(account, "r"))

    for _ in range(10):
        if await is_seen():
            break
    (row,) = await renting.rows(account, "r")
    request = await requesting.database.chain_requests.find(request_id(ChainRequestKind.ORDER, account, row.lease_id))
    assert request is not None
    assert (request.state, request.result) == (ChainRequestState.DECIDED, {})
    assert row.order_id is not None
    assert (await service.find(account, row.order_id)).lease_id == row.lease_id
    (later,) = await renting.until_placed(account, "r")
    assert later.order_id == row.order_id


async def orders_none_with_credits_for_two_of_three(renting: Renting, account: AccountId) -> None:
    with pytest.raises(InsufficientCredits, match=r"\$3\b"):
        await renting.service.create(account, order(count=3), reference="r")
    assert await renting.held(account) == 0
    assert await renting.rows(account, "r") == []
    made = await renting.service.create(account, order(count=2), reference="r")  # the id was not used up
    assert made.is_new


async def orders_an_id_once_and_never_for_something_else(renting: Renting, account: AccountId) -> None:
    service = renting.service
    twice = await asyncio.gather(*(service.create(account, order(), reference="r") for _ in range(4)))
    assert sum(made.is_new for made in twice) == 1
    assert len({made.rows[0].lease_id for made in twice}) == 1
    assert await renting.held(account) == DOLLAR
    for other in (order(count=2), order(env={"A": "x"}), order(policy={"max_hourly": 2})):
        with pytest.raises(IdReused):
            await service.create(account, other, reference="r")
    assert await renting.held(account) == DOLLAR


async def holds_what_the_winner_of_a_race_for_an_id_needs(renting: Renting, account: AccountId) -> None:
    """One order and three under the same id at the same moment: the credits of the losers are free at once."""
    for reference in ("a", "b"):
        before = await renting.held(account)
        races = (renting.service.create(account, order(count=count), reference=reference) for count in (1, 3))
        ends = await asyncio.gather(*races, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["IdReused", "OrderedLeases"]
        rows = await renting.rows(account, reference)
        assert await renting.held(account) == before + len(rows) * DOLLAR


async def never_releases_the_hold_of_another_request_with_its_id(renting: Renting, account: AccountId) -> None:
    """The cheapest double spend: order once, and let a batch with the same id fail for want of credits meanwhile."""
    service, made = renting.service, list[OrderedLeases]()

    async def order_meanwhile(_: AccountId) -> None:
        """Called when the batch has held what there is."""
        made.append(await service.create(account, order(), reference="r"))

    slow = replace(service, requests=replace(service.requests, free_idle_slices=order_meanwhile))
    with pytest.raises(InsufficientCredits):
        await slow.create(account, order(count=3), reference="r")
    assert made[0].is_new
    assert await renting.held(account) == DOLLAR


async def holds_nothing_beyond_the_limit(renting: Renting, account: AccountId) -> None:
    service = renting.service
    await service.create(account, order(count=16), reference="many")
    with pytest.raises(RateLimited, match="16 requests of this account are under way") as caught:
        await service.create(account, order(count=5), reference="more")  # 20 may be under way
    assert caught.value.retry_after_s is not None
    use = await renting.requesting.database.chain_requests.use_of(account, ChainRequestKind.ORDER, seconds=3_600)
    assert (use.under_way, len(use.recent_left_s)) == (16, 16)
    assert all(3_000 < left_s <= 3_600 for left_s in use.recent_left_s)
    assert await renting.held(account) == 16 * DOLLAR
    assert await renting.rows(account, "more") == []


async def test_another_account_finds_and_ends_nothing(renting: Renting) -> None:
    mine, other = [await renting.requesting.make_account(number, promo=5 * DOLLAR) for number in (1, 2)]
    made: OrderedLeases = await renting.service.create(mine, order(name="job"), reference="r")
    (row,) = await renting.until_placed(mine, "r")
    for wanted in (made.rows[0].lease_id, row.order_id or "", "job"):
        assert (await renting.service.find(mine, wanted)).lease_id == row.lease_id
        with pytest.raises(LeaseNotFound):
            await renting.service.find(other, wanted)
    assert await renting.service.list_of(other, before=None, limit=10) == []
    same = await renting.service.create(other, order(name="job"), reference="r")  # the same id of another account
    assert same.is_new
    assert same.rows[0].lease_id != row.lease_id


async def test_a_cancelled_order_gives_its_deposit_back_and_pays_for_the_next(renting: Renting) -> None:
    account, service = await renting.requesting.make_account(1, promo=3 * DOLLAR), renting.service
    await service.create(account, order(name="job"), reference="r")
    (row,) = await renting.until_placed(account, "r")
    with pytest.raises(UnprocessableContent, match="lease cancel"):
        await service.close(row, reference="c")
    done = await renting.done(service.cancel(row, reference="c"))
    assert write_changed(renting.index.view(), row, done, unix_s=0).request.state == "done"
    assert phase_of(renting.index.view(), row) == "closed"
    with pytest.raises(UnprocessableContent, match="has ended"):
        await service.cancel(row, reference="again")

    await service.create(account, order(name="job", duration="2h"), reference="next")  # a dollar is at the escrow
    assert await renting.held(account) == DOLLAR
    assert (await service.find(account, "job")).batch == "next", "the other one of the name has ended"
    await service.create(account, order(name="job"), reference="third")
    assert await renting.held(account) == 2 * DOLLAR, "the dollar at the escrow pays once"
    with pytest.raises(InvalidField, match="2 leases are called 'job'"):
        await service.find(account, "job")
    for reference in ("next", "third"):
        (placed,) = await renting.until_placed(account, reference)
        assert placed.order_id is not None


async def refuses_an_order_without_a_price_or_an_offer(renting: Renting, account: AccountId) -> None:
    with pytest.raises(InvalidField, match="No standing offer") as caught:
        await renting.service.create(account, order(policy={}), reference="r")
    assert caught.value.param == "policy.max_hourly"
    assert await renting.held(account) == 0
    quote = await renting.service.quote(order(policy={}))
    assert (quote.able, quote.providers, quote.max_hourly_usd) == (0, 0, None)


async def test_what_is_refused_leaves_nothing(renting: Renting) -> None:
    """One chain for all: none of these needs a block."""
    refusals = [
        (orders_none_with_credits_for_two_of_three, 2 * DOLLAR + DOLLAR // 2),
        (orders_an_id_once_and_never_for_something_else, 10 * DOLLAR),
        (holds_what_the_winner_of_a_race_for_an_id_needs, 10 * DOLLAR),
        (never_releases_the_hold_of_another_request_with_its_id, 2 * DOLLAR + DOLLAR // 2),
        (holds_nothing_beyond_the_limit, 100 * DOLLAR),
        (refuses_an_order_without_a_price_or_an_offer, 5 * DOLLAR),
    ]
    for number, (check, promo) in enumerate(refusals):
        await check(renting, await renting.requesting.make_account(number, promo=promo))
