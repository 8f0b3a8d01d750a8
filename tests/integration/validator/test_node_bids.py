"""A real agent bids at four real validators, is killed in the middle, and wins all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.market.chain_records import OrderState
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.link.frames import Opcode
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from tests.integration.chain.market_scene import ALICE, NODE_KEYS
from tests.integration.validator.bidding_node import bidding_node
from tests.integration.validator.validator_network import ValidatorNetwork, until
from tests.order_terms import order_terms

CONTENT = '{"image":"docker.io/library/nginx:1"}'
SPECIFICATION = Specification(keccak256(CONTENT.encode()), 0, 500, 128, 128, 0, 0)
TERMS = order_terms(latency_value=0, gpu_units=0, commit_ms=25_000, reveal_ms=25_000, only=(ALICE.address,))
"""Time for an agent to start again; as soon as it has answered, validators close early."""


pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_bid_survives_the_death_of_its_agent(network: ValidatorNetwork, tmp_path: Path) -> None:
    """The order, the stakes and the outcome are checked by a chain's node of the owner's own."""
    market = network.market
    async with bidding_node(
        market,
        provider=ALICE,
        node_key=NODE_KEYS[ALICE.address],
        chain_url=network.validators[0].chain_url,
        folder=tmp_path / "node",
    ) as (node, gateway):

        async def is_heard() -> bool:
            beats = (await node.market_status()).get("heartbeats") or []
            return len(beats) == len(network.validators) and all(beat["heard_at"] for beat in beats)

        await until(is_heard, "every validator hears the node")
        assert gateway.specs is not None
        assert gateway.specs.lease_offer is not None
        assert (await network.status()).heard_providers == 1

        order_id = await market.order(terms=TERMS, spec_hash=struct_hash(SPECIFICATION))
        gateway.send(Opcode.LOOKUP, await gateway.lookup(order_id, SPECIFICATION, CONTENT))

        async def is_stored() -> bool:
            return bool(node.bids)

        await until(is_stored, "the bid is stored")
        await node.kill()
        await node.start()
        await network.settled(order_id)
        order = market.view.latest.orders[order_id]
        assert order.state is OrderState.MATCHED
        assert order.certificate is not None
        assert order.certificate.record.chosen[0].provider == ALICE.address

        async def is_joined() -> bool:
            return gateway.joins >= 2

        await until(is_joined, "the agent joined again")
        gateway.send(Opcode.OUTCOME, gateway.won(order_id))

        async def is_held() -> bool:
            bids = (await node.market_status()).get("bids") or []
            return [bid["state"] for bid in bids] == ["held"]

        await until(is_held, "the node holds the lease")
        await node.kill()
        await node.start()
        await until(is_held, "it holds the lease after another death")
