from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import ChainUnavailable, InvalidField, NoChain, NotFound
from sparewatt.core.ids import AccountId
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay import match_service
from sparewatt.leasing.relay.match_service import MatchService
from sparewatt.market.chain_view import ChainView
from sparewatt.store.lease_matches import LeaseMatchRow
from sparewatt.store.lease_orders import LeaseOrderRow
from sparewatt.testing.clocks import InstantClock
from tests.unit.leasing.relay.auction import PROVIDERS, VOTE_KEYS, Auction
from tests.unit.leasing.relay.test_match_reply import collected
from tests.unit.leasing.test_market_index import MemoryEvents
from tests.unit.market.market_events import an_event, in_blocks

AUCTION = Auction()
ID = AUCTION.id_text
ME = AccountId("acc_me")


@dataclass
class Stored:
    rows: dict[tuple[str, int], LeaseMatchRow] = field(default_factory=dict)
    records: dict[tuple[str, int], str] = field(default_factory=dict)
    looks: int = 0

    async def find(self, order_id: str, attempt: int) -> LeaseMatchRow | None:
        return self.rows.get((order_id, attempt))

    async def find_version(self, order_id: str, attempt: int) -> int:
        self.looks += 1
        row = self.rows.get((order_id, attempt))
        return row.version if row is not None else 0

    async def find_record(self, order_id: str, attempt: int) -> str | None:
        return self.records.get((order_id, attempt))

    async def list_attempts(self, order_id: str) -> list[int]:
        return [attempt for found, attempt in self.rows if found == order_id]

    def put(self, *, version: int = 1, record_from: str | None = None) -> None:
        evidence = msgspec.json.encode(collected().evidence).decode()
        self.rows[ID, 0] = LeaseMatchRow(ID, 0, version, evidence, None, record_from)


@dataclass
class Leases:
    order_id: str | None = ID

    async def find(self, account: AccountId, wanted: str) -> LeaseOrderRow:
        if (account, wanted) != (ME, "trainer"):
            raise NotFound("You have no such lease.")
        row: Any = LeaseOrderRow.__new__(LeaseOrderRow)
        object.__setattr__(row, "order_id", self.order_id)
        found: LeaseOrderRow = row
        return found


class Scene:
    def __init__(self) -> None:
        self.index = MarketIndex(MemoryEvents(), has_chain=True)
        self.view = ChainView(depth=1)
        self.view.advance(in_blocks(AUCTION.events(), per_block=100), to_block=1)
        self.view.advance(in_blocks([AUCTION.lookup_event()], first=2), to_block=2)
        self.index.built, self.index.is_complete, self.index.attempt_s = self.view, True, 60
        self.stored, self.leases = Stored(), Leases()
        self.service = MatchService(
            index=self.index, matches=self.stored, leases=lambda: self.leases, clock=InstantClock()
        )

    def end(self) -> None:
        gone = an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=97)
        self.view.advance(in_blocks([gone], first=3), to_block=3)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_anybody_may_see_an_order_by_its_id_and_only_the_renter_by_its_name(scene: Scene) -> None:
    scene.stored.put()
    assert (await scene.service.show(ME, "trainer")).order.id == ID
    assert (await scene.service.show(AccountId("acc_other"), ID.upper().replace("X", "x"))).order.id == ID
    with pytest.raises(NotFound):
        await scene.service.show(AccountId("acc_other"), "trainer")


async def test_what_is_not_there_is_not_found(scene: Scene) -> None:
    with pytest.raises(NotFound, match="There is no order"):
        await scene.service.show(ME, "0x" + "ee" * 32)
    scene.leases.order_id = None
    with pytest.raises(NotFound, match="not on the chain yet"):
        await scene.service.show(ME, "trainer")


async def test_an_attempt_that_has_not_been_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidField, match="0 to 0"):
        await scene.service.show(ME, ID, attempt=1)


async def test_without_a_chain_or_before_it_is_read_the_error_says_so(scene: Scene) -> None:
    scene.index.is_complete = False
    with pytest.raises(ChainUnavailable):
        await scene.service.show(ME, ID)
    scene.index.has_chain = False
    with pytest.raises(NoChain):
        await scene.service.show(ME, ID)


async def test_before_anything_is_collected_the_chain_alone_is_shown(scene: Scene) -> None:
    reply = await scene.service.show(ME, ID)
    assert (reply.phase.name, reply.bids, reply.record) == ("commit", [], False)
    scene.stored.put()
    assert {bid.provider for bid in (await scene.service.show(ME, ID)).bids} == set(PROVIDERS[:2])


async def test_a_caller_that_has_all_waits_for_more(scene: Scene) -> None:
    scene.stored.put(version=4)
    have = (await scene.service.show(ME, ID)).version
    assert (await scene.service.show(ME, ID, have=have, wait_ms=1_000)).version == have, "nothing came"
    assert scene.stored.looks >= 4
    waiting = asyncio.create_task(scene.service.show(ME, ID, have=have, wait_ms=60_000))
    await asyncio.sleep(0)
    scene.stored.put(version=5)
    assert (await waiting).version > have


async def test_the_chain_s_decision_is_a_change_too(scene: Scene) -> None:
    have = (await scene.service.show(ME, ID)).version
    waiting = asyncio.create_task(scene.service.show(ME, ID, have=have, wait_ms=60_000))
    await asyncio.sleep(0)
    scene.end()
    reply = await waiting
    assert (reply.phase.name, reply.version > have) == ("unmatched", True)


async def test_too_many_callers_do_not_wait(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_service, "WAITS_MAX", 0)
    reply = await scene.service.show(ME, ID)
    await scene.service.show(ME, ID, have=reply.version, wait_ms=60_000)
    assert scene.stored.looks == 0


async def test_one_account_leaves_waits_to_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_service, "WAITS_PER_ACCOUNT_MAX", 1)
    have = (await scene.service.show(ME, ID)).version
    waiting = asyncio.create_task(scene.service.show(ME, ID, have=have, wait_ms=60_000))
    await asyncio.sleep(0)
    looks = scene.stored.looks
    await scene.service.show(ME, ID, have=have, wait_ms=60_000)
    assert scene.stored.looks == looks, "its second wait is answered at once"
    other = asyncio.create_task(scene.service.show(AccountId("acc_other"), ID, have=have, wait_ms=60_000))
    await asyncio.sleep(0)
    scene.end()
    assert (await waiting).version > have
    assert (await other).version > have
    assert not scene.service._waiting


async def test_a_record_comes_with_the_name_of_who_said_it(scene: Scene) -> None:
    with pytest.raises(NotFound, match="no record"):
        await scene.service.record(ME, ID)
    scene.stored.put(record_from=VOTE_KEYS[0].address)
    scene.stored.records[ID, 0] = '{"notes":[]}'
    found = await scene.service.record(ME, ID)
    assert (found.validator, bytes(found.record)) == (VOTE_KEYS[0].address, b'{"notes":[]}')
    assert (await scene.service.show(ME, ID)).record
