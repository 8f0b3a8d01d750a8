"""Reader, codec and fold on a real chain say what the contracts' own views say, also after reorgs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentRecord, shipped_artifacts, shipped_contracts, shipped_plan
from sparewatt.chain.deployment import Deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.core.clock import SystemClock
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.localnet.anvil import Anvil
from sparewatt.market.chain_records import LeaseState, OrderState, RegistryStatus
from sparewatt.protocol.contracts.match import Down
from sparewatt.store.database import Database
from tests.integration.chain.market_scene import (
    ALICE,
    BOB,
    DEPTH,
    NODE_KEYS,
    OPERATORS,
    RENTER,
    TERMS,
    USD,
    MarketScene,
    open_market,
)
from tests.integration.chain.setting import DEPLOYER, GUARDIAN, OPERATOR

STAKE = 100 * USD


async def deploy(url: str, folder: Path) -> DeploymentRecord:
    client = ChainClient(url)
    try:
        return await Deployment(
            client,
            folder,
            plan=shipped_plan(),
            artifacts=shipped_artifacts(),
            deployer=DEPLOYER,
            operator=OPERATOR.address,
            guardian=GUARDIAN,
            clock=SystemClock(),
        ).ensure()
    finally:
        await client.close()


@pytest.fixture
async def record(anvil: Anvil, tmp_path: Path) -> DeploymentRecord:
    return await deploy(anvil.url, tmp_path / "deployed")


@pytest.fixture
async def market(anvil: Anvil, record: DeploymentRecord) -> AsyncIterator[MarketScene]:
    """Two providers, two validators whose stake weighs, and a first snapshot."""
    async with open_market(anvil.url, record) as scene:
        await scene.add_provider(ALICE, bond=10 * USD)
        await scene.add_provider(BOB, bond=4 * USD)
        for number, operator in enumerate(OPERATORS):
            await scene.add_validator(operator, stake=STAKE + number)
        await scene.wait(3)
        for operator in OPERATORS:
            await scene.send(RENTER, "stake_registry", "activate", operator.address)
        await scene.follow()
        await scene.post_snapshot()
        await scene.wait(1)
        await scene.follow()
        yield scene


async def test_an_order_from_its_lookup_to_its_end(market: MarketScene) -> None:
    """Deploy, register, bond, stake, order, match, run, pause, close; and an order that is cancelled."""
    await market.check()
    cancelled = await market.order()
    await market.check()
    assert market.view.latest.orders[cancelled].state is OrderState.OPEN
    await market.send(RENTER, "deployment_order", "cancel_order", bytes.fromhex(cancelled[2:]))
    order = await market.order()
    await market.check()
    await market.match(order, {ALICE.address: 2 * USD})
    await market.check()
    lease = market.view.latest.leases[order]
    assert (lease.state, lease.provider) == (LeaseState.PENDING, ALICE.address)
    lease_id, node_key = bytes.fromhex(order[2:]), NODE_KEYS[ALICE.address]
    await market.send(node_key, "deployment_order", "confirm_start", lease_id, b"\5" * 32)
    await market.wait(60)
    await market.send(RENTER, "escrow", "settle", lease_id)
    await market.follow()
    await market.check()
    assert market.view.latest.leases[order].state is LeaseState.ACTIVE
    assert market.view.latest.streams[order].paid_uusd > 0
    await market.send(RENTER, "deployment_order", "pause", lease_id)
    await market.send(node_key, "deployment_order", "give_notice", lease_id)
    await market.follow()
    await market.check()
    await market.send(RENTER, "deployment_order", "resume", lease_id)
    await market.send(node_key, "deployment_order", "confirm_start", lease_id, b"\5" * 32)
    await market.send(RENTER, "deployment_order", "close", lease_id, 1)
    await market.follow()
    await market.check()
    states = {order_id: order.state for order_id, order in market.view.latest.orders.items()}
    assert states == {cancelled: OrderState.CLOSED, order: OrderState.CLOSED}
    assert market.view.latest.leases[order].close_reason == 1


async def test_a_lease_that_moves_to_a_stand_in_and_is_updated(market: MarketScene) -> None:
    """The winner never starts; the second claims; both sides then agree on another price and time."""
    order = await market.order(terms=replace(TERMS, ignore=()))
    await market.match(order, {ALICE.address: USD, BOB.address: 2 * USD})
    record = market.view.latest.orders[order].certificate
    assert record is not None
    lease_id, none = bytes.fromhex(order[2:]), b""
    await market.wait(31)
    await market.send(RENTER, "lease_moves", "hand_over", lease_id, record.record.values(), 16, 0, [], none)
    await market.follow()
    await market.check()
    assert market.view.latest.leases[order].state is LeaseState.VACANT
    assert market.view.latest.orders[order].failed == {ALICE.address}
    bob = NODE_KEYS[BOB.address]
    await market.send(bob, "lease_moves", "take_over", lease_id, record.record.values(), 1, none)
    await market.send(bob, "deployment_order", "confirm_start", lease_id, b"\5" * 32)
    await market.follow()
    await market.check()
    lease = market.view.latest.leases[order]
    assert (lease.state, lease.provider, lease.term) == (LeaseState.ACTIVE, BOB.address, 2)
    update = (lease_id, b"\6" * 32, USD, 7_200, 1)
    await market.send(RENTER, "lease_moves", "propose_update", *update)
    await market.send(bob, "lease_moves", "accept_update", *update)
    await market.follow()
    await market.check()
    assert market.view.latest.leases[order].rate_uusd == USD
    assert market.view.latest.orders[order].spec_hash == "0x" + "06" * 32


async def test_an_outage_that_validators_found_is_counted_from_its_first_second(market: MarketScene) -> None:
    """No event of the contracts names that second: the fold has it from where the pay was stopped."""
    order = await market.order(terms=replace(TERMS, ignore=()))
    await market.match(order, {ALICE.address: USD, BOB.address: 2 * USD})
    certificate = market.view.latest.orders[order].certificate
    assert certificate is not None
    lease_id, record = bytes.fromhex(order[2:]), certificate.record.values()
    await market.send(NODE_KEYS[ALICE.address], "deployment_order", "confirm_start", lease_id, b"\5" * 32)
    await market.follow()
    started = market.view.latest.leases[order].running_since
    await market.wait(100)
    votes = market.votes(Down(lease_id, 1, ALICE.address, started + 70))
    await market.send(RENTER, "lease_moves", "hand_over", lease_id, record, 17, started + 70, votes, b"")
    bob = NODE_KEYS[BOB.address]
    await market.send(bob, "lease_moves", "take_over", lease_id, record, 1, b"")
    await market.send(bob, "deployment_order", "confirm_start", lease_id, b"\5" * 32)
    await market.follow()
    lease = market.view.latest.leases[order]
    assert (lease.uptime.running_s, lease.uptime.outages) == (70, 1)
    assert lease.uptime.down_s == lease.running_since - started - 70
    assert [term.provider for term in lease.terms] == [ALICE.address, BOB.address]
    stream = market.view.latest.streams[order]
    assert stream.charged_uusd == USD * 70 // 3_600
    assert stream.net_of == {ALICE.address: stream.charged_uusd - stream.fee_uusd}


async def test_an_order_that_nobody_matches_expires(market: MarketScene) -> None:
    order = await market.order()
    order_id = bytes.fromhex(order[2:])
    await market.wait(61)
    await market.send(BOB, "deployment_order", "expire_attempt", order_id)
    await market.follow()
    await market.check()
    found = market.view.latest.orders[order]
    assert (found.state, found.reason) == (OrderState.UNMATCHED, 98)
    await market.send(BOB, "deployment_order", "reopen", order_id, found.terms.values())
    await market.follow()
    await market.check()
    assert set(market.view.latest.orders[order].opened_at) == {0, 1}
    await market.wait(3_700)
    await market.send(BOB, "deployment_order", "expire_attempt", order_id)
    await market.follow()
    await market.check()
    assert market.view.latest.orders[order].state is OrderState.EXPIRED


async def test_stakes_and_providers_that_change(market: MarketScene) -> None:
    await market.send(OPERATORS[0], "stake_registry", "set_url", "https://elsewhere.example")
    await market.send(OPERATORS[1], "stake_registry", "request_unbond", STAKE + 1)
    await market.send(BOB, "stake_registry", "unbond_bond", USD)
    await market.send(BOB, "provider_registry", "set_status", 3)
    await market.follow()
    await market.check()
    state = market.view.latest
    assert state.stake_version == 3
    assert [each.operator for each in state.weights_at(3)] == [OPERATORS[0].address]
    assert state.providers[BOB.address].status is RegistryStatus.MAINTENANCE
    assert state.bonds[BOB.address].unbonding_uusd == USD


async def test_an_order_that_a_reorg_removed_is_gone_and_what_stayed_is_right(market: MarketScene) -> None:
    kept = await market.order()
    lost = await market.order()
    assert set(market.view.latest.orders) == {kept, lost}
    await market.rpc("anvil_rollback", 2)
    (reorg,) = await market.follow()
    assert reorg.common_block == market.view.latest_block
    assert set(market.view.latest.orders) == {kept}
    await market.check()
    await market.send(RENTER, "deployment_order", "cancel_order", bytes.fromhex(kept[2:]))
    await market.follow()
    await market.check()
    assert market.view.latest.orders[kept].state is OrderState.CLOSED


async def test_a_reorg_deeper_than_money_builds_the_view_anew(market: MarketScene) -> None:
    order = await market.order()
    for _ in range(DEPTH):
        await market.rpc("evm_mine")
    await market.follow()
    assert set(market.view.final.orders) == {order}
    await market.rpc("anvil_rollback", 6)
    await market.follow()
    await market.rpc("evm_mine")
    await market.follow()
    assert order not in market.view.latest.orders
    await market.check()


async def test_money_waits_for_its_depth(market: MarketScene) -> None:
    order = await market.order()
    assert order in market.view.latest.orders
    assert order not in market.view.final.orders
    for _ in range(DEPTH):
        await market.rpc("evm_mine")
    await market.follow()
    await market.check(market.view.final)
    assert market.view.final.orders == market.view.latest.orders


async def test_a_revert_has_the_contracts_own_reason(market: MarketScene) -> None:
    order = await market.order()
    assert await market.reverts(BOB, "deployment_order", "cancel_order", bytes.fromhex(order[2:])) == "NOT_RENTER"


async def test_a_gateways_index_says_the_same_as_a_reader_of_the_chain(
    anvil: Anvil, record: DeploymentRecord, market: MarketScene, dsn: str
) -> None:
    """Two ways to the same events: web3 and Postgres here, our own codec and no database there."""
    client, database = ChainClient(anvil.url), await Database.connect(dsn)
    try:
        follower = ChainFollower(
            client, database.chain, shipped_contracts(record), start_block=record.start_block, depth=DEPTH
        )
        await follower.begin()
        index = MarketIndex(database.market_events, has_chain=True)
        order = await market.order()
        await market.match(order, {ALICE.address: 2 * USD})
        await follower.catch_up()
        await index.follow()
        assert index.view().latest == market.view.latest
        assert (index.view().depth, index.view().final) == (DEPTH, market.view.final)

        await market.rpc("anvil_rollback", 2)
        await market.rpc("evm_mine")
        await market.order(deposit=6 * USD)
        await follower.catch_up()
        await index.follow()
        assert follower.reorg_count == 1
        assert index.view().latest == market.view.latest
        assert index.view().latest.orders[order].state is OrderState.OPEN

        await follower.begin(rebuild=True)
        await follower.catch_up()
        await index.follow()
        assert index.view().latest == market.view.latest
        fresh = MarketIndex(database.market_events, has_chain=True)
        await fresh.follow()
        assert fresh.view().latest == market.view.latest
    finally:
        await client.close()
        await database.close()
