"""The market's part of a gateway around real validators: it relays lookups and collects matches.

The chain's index is a real database; nodes are links that only remember what they were sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sparewatt.chain.client import ChainClient
from sparewatt.chain.follower import ChainFollower
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.collector import MatchCollector
from sparewatt.leasing.relay.lookup_relay import LookupRelay
from sparewatt.leasing.relay.lookups import OrderedContent
from sparewatt.leasing.relay.market_relay import MarketRelay
from sparewatt.leasing.relay.match_service import LeaseFinder, MatchService
from sparewatt.leasing.running.task_relay import TaskRelay
from sparewatt.machine.stranger_http import DialRules, StrangerClient
from sparewatt.protocol.api.lease_match import LeaseMatch
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.store.database import Database
from tests.integration.chain.market_scene import NODE_KEYS
from tests.integration.validator.validator_network import ValidatorNetwork
from tests.unit.leasing.relay.test_lookup_relay import FakeLink

CONTENT = '{"image":"busybox"}'
SPECIFICATION = Specification(keccak256(CONTENT.encode()), 1, 1_000, 1_024, 1_024, 0, 0)
ANYBODY = AccountId("acc_anybody")
STEP_S = 0.02


@dataclass
class RelayGateway:
    database: Database
    follower: MarketRelay
    index: MarketIndex
    links: dict[NodeId, FakeLink]

    def link_of(self, provider: SigningKey) -> FakeLink:
        return self.links[NodeId(NODE_KEYS[provider.address].address)]

    async def collected(self, order_id: str) -> LeaseMatch:
        """The match, once a validator's record is kept."""
        async with asyncio.timeout(20.0):
            while not (reply := await self.service().show(ANYBODY, order_id)).record:  # noqa: ASYNC110 (has a ceiling)
                await asyncio.sleep(STEP_S)
        return reply

    def service(self) -> MatchService:
        def nobody() -> LeaseFinder:
            raise AssertionError("by its id only")

        return MatchService(index=self.index, matches=self.database.lease_matches, leases=nobody, clock=SystemClock())


@asynccontextmanager
async def open_gateway(network: ValidatorNetwork, dsn: str) -> AsyncIterator[RelayGateway]:
    client, database, clock = ChainClient(network.validators[0].chain_url), await Database.connect(dsn), SystemClock()
    chain = ChainFollower(
        client, database.chain, network.market.contracts, start_block=network.market.start_block, depth=1
    )
    await chain.begin()
    await database.chain.set_attempt_s(60)
    links = {NodeId(each.address): FakeLink() for each in NODE_KEYS.values()}
    validators = StrangerClient(DialRules(allows_loopback=True))

    async def content_of(spec_hash: str, _: str) -> OrderedContent | None:
        is_ours = spec_hash == "0x" + struct_hash(SPECIFICATION).hex()
        return OrderedContent(SPECIFICATION, CONTENT) if is_ours else None

    lookups = LookupRelay(
        links=links,
        links_version=lambda: 1,
        offers_leases=lambda _: True,
        speaks_for=lambda _: True,
        content_of=content_of,
        beat_ms=2_000,
        clock=clock,
    )
    collector = MatchCollector(
        validators=validators,
        store=database.lease_matches,
        is_collector=lambda: True,
        asked_count=lambda order_id, attempt: lookups.asked_counts.get((order_id, attempt), 0),
        clock=clock,
    )
    index = MarketIndex(database.market_events, has_chain=True)
    follower = MarketRelay(
        index=index,
        changes=database.market_events,
        chain=database.chain,
        lookups=lookups,
        collector=collector,
        tasks=TaskRelay(
            link_of=lookups.link_of,
            content_of=content_of,
            renter_nonce=lookups.renter_nonce,
            store=database.lease_acts,
            clock=clock,
        ),
    )

    async def follow_chain() -> None:
        while True:
            if not await chain.step():
                await asyncio.sleep(STEP_S)

    tasks = [asyncio.create_task(follow_chain()), asyncio.create_task(follower.run())]
    try:
        yield RelayGateway(database, follower, index, links)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await collector.close()
        await validators.close()
        await client.close()
        await database.close()
