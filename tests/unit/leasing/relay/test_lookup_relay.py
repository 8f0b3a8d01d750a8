"""Lookups reach the nodes that may bid, each once, over links that others may share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.leasing.relay import lookup_relay
from sparewatt.leasing.relay.lookup_relay import LookupRelay
from sparewatt.leasing.relay.lookups import OrderedContent
from sparewatt.market.chain_records import MarketState
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.link.lease_frames import HeldLease, LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask
from sparewatt.testing.clocks import ManualClock
from tests.unit.leasing.relay.auction import (
    ADDRESSES,
    CONTENT,
    NODE_KEYS,
    OPENED_AT,
    OPERATORS,
    PROVIDERS,
    RENTER_NONCE,
    SPECIFICATION,
    Auction,
)
from tests.unit.market.market_events import accepted, an_event, created, deposited, of_lease, weighed

NODES = [NodeId(NODE_KEYS[provider].address) for provider in PROVIDERS]
ORDERED = OrderedContent(SPECIFICATION, CONTENT)
AUCTION = Auction()
ID = AUCTION.id_text


@dataclass
class FakeLink:
    lookups: list[LeaseLookup] = field(default_factory=list)
    facts: list[MarketFacts] = field(default_factory=list)
    outcomes: list[LeaseOutcome] = field(default_factory=list)
    tasks: list[LeaseTask] = field(default_factory=list)

    def send_lookup(self, lookup: LeaseLookup) -> None:
        self.lookups.append(lookup)

    def send_market(self, facts: MarketFacts) -> None:
        self.facts.append(facts)

    def send_outcome(self, outcome: LeaseOutcome) -> None:
        self.outcomes.append(outcome)

    def send_task(self, task: LeaseTask) -> None:
        self.tasks.append(task)


class Scene:
    """A gateway with three nodes, all of which offer leases, and a chain that goes on by hand."""

    def __init__(self) -> None:
        self.links: dict[NodeId, FakeLink] = {node: FakeLink() for node in NODES}
        self.version = 1
        self.offering = set(NODES)
        self.silent = set[NodeId]()
        """Nodes for which another process speaks."""
        order = AUCTION.state().orders[ID]
        self.contents: dict[tuple[str, str], OrderedContent] = {(order.spec_hash, order.renter): ORDERED}
        self.clock = ManualClock()
        self.view = ChainView(depth=1)
        self.block = self.market_version = 0
        self.relay = self.make_relay()

    def make_relay(self) -> LookupRelay:
        async def content_of(spec_hash: str, renter: str) -> OrderedContent | None:
            return self.contents.get((spec_hash, renter))

        return LookupRelay(
            links=self.links,
            links_version=lambda: self.version,
            offers_leases=lambda node: node in self.offering,
            speaks_for=lambda node: node not in self.silent,
            content_of=content_of,
            beat_ms=2_000,
            clock=self.clock,
        )

    @property
    def state(self) -> MarketState:
        return self.view.latest

    async def happen(self, *events: ChainEvent, changed: set[str] | None = None) -> None:
        self.block += 1
        placed = [replace(event, block_number=self.block, log_index=number) for number, event in enumerate(events)]
        self.view.advance(placed, to_block=self.block)
        self.market_version += bool(placed)
        orders = {event.args.get("order_id", event.args.get("lease_id")) for event in events} - {None}
        await self.follow(changed if changed is not None else orders)

    async def follow(self, changed: set[str] | None) -> None:
        await self.relay.follow(self.view, changed, ADDRESSES, version=self.market_version, attempt_s=60)

    def tick(self) -> None:
        self.relay.tick(self.view, ADDRESSES, attempt_s=60)

    def told(self) -> list[int]:
        return [len(self.links[node].lookups) if node in self.links else -1 for node in NODES]


@pytest.fixture
async def scene() -> Scene:
    made = Scene()
    await made.happen(*AUCTION.events())
    return made


async def open_order(scene: Scene, auction: Auction = AUCTION, **changes: Any) -> None:
    await scene.happen(auction.lookup_event(**changes), deposited(ID))


async def test_a_lookup_goes_to_every_node_that_may_bid_once(scene: Scene) -> None:
    await open_order(scene)
    for _ in range(3):
        scene.market_version += 1
        await scene.follow({ID})
        scene.market_version += 1
        await scene.follow(None)
        scene.tick()
    assert scene.told() == [1, 1, 0], "the third has too little memory for this order"
    lookup = scene.links[NODES[0]].lookups[0]
    assert (lookup.order_id, lookup.attempt, lookup.renter_nonce) == (ID, 0, RENTER_NONCE)
    assert (lookup.content, lookup.opened_at) == (CONTENT, OPENED_AT)
    assert scene.relay.asked_counts[ID, 0] == 2
    assert scene.relay.has_open


async def test_a_new_attempt_is_a_new_lookup(scene: Scene) -> None:
    await open_order(scene)
    await scene.happen(an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=98))
    assert not scene.relay.has_open
    await open_order(scene, attempt=1)
    assert [each.attempt for each in scene.links[NODES[0]].lookups] == [0, 1]


async def test_of_several_processes_one_tells_a_node(scene: Scene) -> None:
    """Each process relays; for a node the first one with a link speaks. When that one is gone, the next does."""
    scene.silent = {NODES[0]}
    await open_order(scene)
    assert scene.told() == [0, 1, 0]
    scene.silent = set()
    scene.tick()
    assert scene.told() == [1, 1, 0]


async def test_a_node_that_comes_back_is_told_again(scene: Scene) -> None:
    """Its agent may have been killed before it read the first one; a node ignores what it knows."""
    await open_order(scene)
    old, scene.links[NODES[0]] = scene.links[NODES[0]], FakeLink()
    scene.tick()
    assert (len(old.lookups), scene.told()) == (1, [1, 1, 0])


async def test_a_node_that_joins_while_an_attempt_is_open_is_told(scene: Scene) -> None:
    late = scene.links.pop(NODES[1])
    await open_order(scene)
    assert scene.told() == [1, -1, 0]
    scene.links[NODES[1]] = late
    scene.tick()
    assert scene.told() == [1, 1, 0]


async def test_an_order_that_was_made_elsewhere_is_not_relayed(scene: Scene) -> None:
    scene.contents.clear()
    await open_order(scene)
    assert scene.told() == [0, 0, 0]
    order = scene.state.orders[ID]
    scene.contents = {(order.spec_hash, order.renter): ORDERED}
    scene.market_version += 1
    await scene.follow({ID})
    assert scene.told() == [0, 0, 0], "it is looked up once per attempt"


async def test_an_order_with_the_hash_of_anothers_document_gets_no_document(scene: Scene) -> None:
    """The cheapest way to another's environment: order by its public hash, from the own node only."""
    scene.contents = {(spec_hash, "0x" + "9" * 40): ordered for (spec_hash, _), ordered in scene.contents.items()}
    await open_order(scene)
    assert scene.told() == [0, 0, 0]


async def test_content_that_does_not_hash_to_the_order_is_not_relayed(scene: Scene) -> None:
    """Whoever can write it could have nodes run something that nobody ordered."""
    scene.contents = {key: OrderedContent(SPECIFICATION, '{"image":"miner"}') for key in scene.contents}
    await open_order(scene)
    assert scene.told() == [0, 0, 0]


async def test_an_order_whose_number_is_not_found_is_not_relayed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_relay, "NEAR_NONCES", 2)
    monkeypatch.setattr(lookup_relay, "NONCES_TRIED_MAX", RENTER_NONCE)
    await open_order(scene)
    assert scene.told() == [0, 0, 0]


async def test_a_far_number_is_found_by_a_longer_search(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_relay, "NEAR_NONCES", 2)
    await open_order(scene)
    assert scene.told() == [1, 1, 0]


async def test_only_so_many_attempts_are_relayed_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_relay, "OPEN_MAX", 0)
    await open_order(scene)
    assert scene.told() == [0, 0, 0]


async def test_a_node_is_whom_the_chain_says_not_whom_it_claims_to_be(scene: Scene) -> None:
    """A stranger's node with a link of its own, that offers leases, is asked for nothing and is no provider."""
    stranger = NodeId("0x" + "99" * 20)
    scene.links[stranger] = FakeLink()
    scene.offering.add(stranger)
    scene.version += 1
    await open_order(scene)
    assert scene.links[stranger].lookups == []
    assert [facts.provider for facts in scene.links[stranger].facts] == [None]
    assert scene.links[NODES[0]].facts[-1].provider == PROVIDERS[0]


async def test_a_node_that_offers_no_leases_gets_no_frame_that_it_may_not_know(scene: Scene) -> None:
    scene.offering.remove(NODES[0])
    scene.links[NODES[0]] = FakeLink()
    scene.version += 1
    await open_order(scene)
    assert scene.links[NODES[0]] == FakeLink()


async def test_everybody_who_was_asked_learns_how_it_ended(scene: Scene) -> None:
    await open_order(scene)
    await scene.happen(
        accepted(ID, providers=(PROVIDERS[1], PROVIDERS[0])), created(ID, provider=PROVIDERS[1]), changed={ID}
    )
    results = [[each.result for each in scene.links[node].outcomes] for node in NODES]
    assert results == [["standby"], ["won"], []]
    assert scene.links[NODES[1]].facts[-1].held == (HeldLease(ID, 1),)
    assert scene.links[NODES[0]].facts[-1].held == ()


async def test_whoever_had_a_lease_learns_that_it_is_over(scene: Scene) -> None:
    await open_order(scene)
    await scene.happen(accepted(ID, providers=(PROVIDERS[1],)), created(ID, provider=PROVIDERS[1]))
    await scene.happen(of_lease("LeaseClosed", ID, reason=1))
    assert [each.result for each in scene.links[NODES[1]].outcomes] == ["won", "ended"]
    assert scene.links[NODES[1]].facts[-1].held == ()
    assert [each.result for each in scene.links[NODES[0]].outcomes] == ["lost"]


async def test_facts_are_sent_when_they_change_and_the_block_once_a_second(scene: Scene) -> None:
    link = scene.links[NODES[0]]
    assert len(link.facts) == 1
    for _ in range(5):
        await scene.happen()
    assert len(link.facts) == 1, "nothing is open: the block alone is no news"
    await open_order(scene)
    before = len(link.facts)
    for _ in range(5):
        await scene.happen()
        scene.clock.advance(0.3)
        scene.tick()
    assert len(link.facts) == before + 1
    assert link.facts[-1].block_number > link.facts[-2].block_number


async def test_a_validator_that_joins_and_a_provider_that_registers_are_told_at_once(scene: Scene) -> None:
    """Their events name no order."""
    link, other = scene.links[NODES[0]], NODE_KEYS[PROVIDERS[1]].address
    before = len(link.facts)
    await scene.happen(weighed("0x" + "99" * 20, version=5, weight=1, total=401, operator=OPERATORS[0]))
    assert len(link.facts) == before + 1
    assert link.facts[-1].stake_version == 5
    taken = an_event("provider_registry.NodeKeyChanged", provider=PROVIDERS[1], node_key="0x" + "98" * 20)
    assert scene.links[NodeId(other)].facts[-1].provider == PROVIDERS[1]
    await scene.happen(taken)
    assert scene.links[NodeId(other)].facts[-1].provider is None


async def test_facts_reach_a_node_that_came_and_one_whose_owner_began_to_offer(scene: Scene) -> None:
    scene.offering.remove(NODES[2])
    scene.links[NODES[0]] = FakeLink()
    scene.version += 1
    scene.tick()
    assert len(scene.links[NODES[0]].facts) == 1
    fresh = scene.links[NODES[2]] = FakeLink()
    scene.offering.add(NODES[2])
    scene.tick()
    assert fresh.facts == []
    scene.clock.advance(lookup_relay.SCAN_S)
    scene.tick()
    assert len(fresh.facts) == 1
    assert fresh.facts[0].attempt_s == 60
