"""Pay of a lease that runs comes to the owner's credits, and earnings to claim become a bond; the books agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import UnprocessableContent
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.localnet.anvil import Anvil
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.market.rule import commit_of
from sparewatt.protocol.contracts.match import Profile
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.providers import BondAmounts
from sparewatt.store.request_params import ChainRequestKind
from tests.integration.chain.bookkeeping import Bookkeeping, quick_plan
from tests.integration.chain.market_scene import match_arguments
from tests.integration.chain.money_walk import rebuild_and_compare
from tests.integration.chain.offering import Offering
from tests.integration.chain.settling import OWNER, USER, open_settling
from tests.integration.chain.stepped_chain import DOLLAR, DOLLAR_MICRO, STAKER, snapshot_root

PRICE = 2 * DOLLAR_MICRO
"""An hour, as it is bid."""
FEE_BPS = 500
HALF_AN_HOUR_S = 1_800


@dataclass
class Renting:
    """A user with credits, and an owner whose node is a bonded provider in the validators' table."""

    books: Bookkeeping
    offering: Offering
    node_id: NodeId
    provider: str
    index: MarketIndex

    @property
    def owner_credits(self) -> ChainCreditService:
        return ChainCreditService(self.books.settling.database, SystemClock())

    async def collect(self, reference: str) -> ChainRequestRow:
        """`sparewatt credits collect` of the owner."""
        return await self.offering.done(self.owner_credits.collect(OWNER, reference=reference))

    async def lease(self, order_id: str) -> LeaseRecord:
        await self.index.follow()
        return self.index.view().latest.leases[order_id]

    async def start(self, order_id: str) -> None:
        """The match, by the validator; then the start, by the node's key."""
        settling, key = self.books.settling, self.offering.keys[self.node_id]
        await self.index.follow()
        profile = profile_of(self.provider)
        arguments = match_arguments(
            self.index.view().latest.orders[order_id],
            {self.provider: PRICE},
            [profile],
            snapshot_root="0x" + snapshot_root([profile]).hex(),
            commit=lambda bid: settling.signed(key, "task_manager", commit_of(bid)),
            votes=settling.votes,
        )
        await settling.send(settling.contracts["task_manager"].encode_call("accept_match", *arguments), STAKER)
        start = settling.contracts["deployment_order"].encode_call(
            "confirm_start", bytes.fromhex(order_id[2:]), b"\5" * 32
        )
        await settling.send(start, key)

    async def close(self, order_id: str) -> None:
        row = await self.books.settling.leases.act(USER, ChainRequestKind.CLOSE, order_id, reference="close")
        assert (await self.books.until_ended(row.id)).state is ChainRequestState.DONE


def profile_of(provider: str) -> Profile:
    return Profile(provider, 1, 49, 1, 2, 3, 4, 24, 1, 0, 990_000, 980_000)


@pytest.fixture
async def renting(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Renting]:
    plan = quick_plan(root_delay_s=0)
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True, plan=plan) as settling:
        books, offering = Bookkeeping(settling), Offering(settling)
        node_id = await offering.join(OWNER, 1)
        await offering.grant(OWNER, Nano(10 * DOLLAR))
        provider = (await offering.done(offering.service.register(OWNER, node_id))).provider.row.address
        await offering.done(offering.service.bond(OWNER, node_id, Nano(10 * DOLLAR), reference="first"))
        await settling.post_snapshot([profile_of(provider)])
        await books.deposit(20, "one")
        index = MarketIndex(settling.database.market_events, has_chain=True)
        yield Renting(books, offering, node_id, provider, index)


async def test_pay_of_a_running_lease_comes_to_the_owners_credits(renting: Renting) -> None:
    books, settling = renting.books, renting.books.settling
    order_id = await books.order(5, "lease")
    await renting.start(order_id)
    await books.check()
    assert (await renting.lease(order_id)).state is LeaseState.ACTIVE
    await settling.pass_time(HALF_AN_HOUR_S)
    settle = settling.contracts["escrow"].encode_call("settle", bytes.fromhex(order_id[2:]))
    await settling.send(settle, STAKER)  # anyone may
    await books.check()

    owed = await books.balance(f"owed:{OWNER}")
    dollar_net = PRICE * (10_000 - FEE_BPS) // 10_000 // 2 * 1_000  # half an hour of two dollars, less the fee
    assert dollar_net <= owed < dollar_net * 102 // 100
    assert (await renting.collect("while it runs")).tx is not None
    assert (await renting.lease(order_id)).state is LeaseState.ACTIVE
    assert await books.balance(f"credits:{OWNER}") == owed, "earned with a lease: paid credits, not free ones"
    assert await books.balance(f"owed:{OWNER}") == 0
    await books.check()

    await settling.pass_time(HALF_AN_HOUR_S)
    await renting.close(order_id)
    await books.check()
    left = await books.balance(f"owed:{OWNER}")
    assert left > 0
    await renting.collect("when it is over")
    await books.collect("refund")
    await books.check()
    earned = await books.balance(f"credits:{OWNER}")
    assert earned == owed + left
    paid_micro = (20 * DOLLAR - await books.balance(f"credits:{USER}")) // 1_000
    assert earned // 1_000 == paid_micro - paid_micro * FEE_BPS // 10_000, "what the renter paid, less the fee"
    assert (await books.balance(f"escrow:{USER}"), await books.balance(f"owed:{USER}")) == (0, 0)
    await rebuild_and_compare(books)


async def test_earnings_that_can_be_claimed_become_a_bond(renting: Renting) -> None:
    books, offering = renting.books, renting.offering
    await books.spend("answers", written=50_000_000)  # two dollars
    batch = await books.settling.payouts.make_batch()
    assert batch is not None

    async def is_claimable() -> bool:
        return bool(await books.settling.database.payouts.list_claimable(OWNER, limit=9))

    await offering.until(is_claimable, "nothing can be claimed")
    bonding = offering.service.bond(OWNER, renting.node_id, DOLLAR, reference="earned", source="earnings")
    bonded = await offering.done(bonding)
    assert bonded.provider.state.bond == BondAmounts(free=11 * DOLLAR_MICRO)
    assert not await is_claimable()
    await books.check()
    left = batch.added_micro * 1_000 - DOLLAR
    assert await books.balance(f"wallet:{OWNER}") == left > 0
    assert await books.balance(f"bond:{OWNER}") == 11 * DOLLAR
    with pytest.raises(UnprocessableContent, match="neither held"):
        await offering.done(
            offering.service.bond(OWNER, renting.node_id, DOLLAR, reference="more than there is", source="earnings")
        )
    await renting.collect("the rest")
    assert await books.balance(f"credits:{OWNER}") == left
    await books.check()
