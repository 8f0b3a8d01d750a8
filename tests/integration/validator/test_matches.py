"""Four real validators match orders on a real chain."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence

import msgspec
import pytest

from sparewatt.market.chain_records import OrderRecord, OrderState
from sparewatt.market.match.record import read_record
from sparewatt.market.match.replay import replay
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.contracts.reasons import OrderOutcome
from sparewatt.validator.signed_file import SIGNED_FILE, read_signatures
from tests.integration.chain.market_scene import ALICE, BOB, NODE_KEYS, RENTER, USD
from tests.integration.databases import fresh_database
from tests.integration.validator import validator_network
from tests.integration.validator.relay_gateway import ANYBODY, CONTENT, SPECIFICATION, open_gateway
from tests.integration.validator.validator_network import ValidatorNetwork, until
from tests.order_terms import order_terms

pytestmark = pytest.mark.asyncio(loop_scope="session")
TERMS = order_terms(latency_value=0, commit_ms=10_000, reveal_ms=10_000)
"""Long windows, which close early: a busy machine must not make a bid late."""
SHORT = order_terms(latency_value=0)
PRICES = ((ALICE, 2 * USD), (BOB, 1 * USD))


async def command(*words: str) -> tuple[int, str]:
    """A `sparewatt validator …`: its exit status and everything that it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparewatt", "validator", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ,
    )
    written, _ = await process.communicate()
    return process.returncode or 0, written.decode()


async def bid(network: ValidatorNetwork, order_id: str) -> None:
    bidders = [
        network.bidder(who, NODE_KEYS[who.address], order_id=order_id, price_uusd=price) for who, price in PRICES
    ]
    async with asyncio.timeout(30):
        await asyncio.gather(*(bidder.run() for bidder in bidders))


def winners(order: OrderRecord) -> Sequence[str]:
    assert order.certificate is not None
    return [award.provider for award in order.certificate.record.chosen[:2]]


async def matched(network: ValidatorNetwork) -> str:
    order_id, _ = await network.order(terms=TERMS)
    await bid(network, order_id)
    await network.settled(order_id)
    return order_id


async def test_a_match_is_certified_and_replayed_from_what_two_validators_recorded(network: ValidatorNetwork) -> None:
    order_id = await matched(network)
    order = network.market.view.latest.orders[order_id]
    assert order.state is OrderState.MATCHED
    assert winners(order) == [BOB.address, ALICE.address]
    sources = [word for number in (0, 1) for word in ("--from", network.validators[number].url)]
    status, written = await command("replay", order_id, *sources, "--json")
    assert status == 0, written
    replayed = json.loads(written)
    assert order.certificate is not None
    assert replayed["task_hash"] == "0x" + order.certificate.record.task_hash.hex()
    assert {each["provider"]: each["outcome"] for each in replayed["bids"]} == {
        BOB.address: "won",
        ALICE.address: "standby",
    }


async def test_a_gateway_relays_collects_and_shows_a_match(
    network: ValidatorNetwork, server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validator_network, "SPECIFICATION", SPECIFICATION)
    async with fresh_database(server) as dsn, open_gateway(network, dsn) as gateway:
        alice, bob = gateway.link_of(ALICE), gateway.link_of(BOB)

        async def have_facts() -> bool:
            return bool(alice.facts) and len(alice.facts[-1].validators) == 4

        async def have_lookups() -> bool:
            return bool(alice.lookups) and bool(bob.lookups)

        async def have_outcomes() -> bool:
            return bool(alice.outcomes) and bool(bob.outcomes)

        await until(have_facts, "nodes know the validators")
        order_id, attempt = await network.order(terms=TERMS)
        await until(have_lookups, "nodes are asked for bids")
        assert (alice.lookups[0].order_id, alice.lookups[0].content) == (order_id, CONTENT)
        await bid(network, order_id)
        await network.settled(order_id)
        await until(have_outcomes, "nodes know who won")
        assert [(each.result, each.provider) for each in bob.outcomes] == [("won", BOB.address)]
        assert [each.result for each in alice.outcomes] == ["standby"]
        assert len(alice.lookups) == len(bob.lookups) == 1

        reply = await gateway.collected(order_id)
        assert (reply.phase.name, reply.why, reply.counts.asked) == ("matched", None, 2)
        assert [(each.provider, each.state, each.price_usd, each.rank) for each in reply.bids] == [
            (BOB.address, "won", "1", 1),
            (ALICE.address, "standby", "2", 2),
        ]
        assert all(each.score is not None and len(each.committed_at) >= 3 for each in reply.bids)
        assert reply.certificate is not None
        assert reply.certificate.tx is not None
        assert {vote.agrees for vote in reply.votes} == {True}
        assert len({vote.validator for vote in reply.votes}) >= 3
        assert {voter.problem for voter in reply.voters} == {None}

        found = await gateway.service().record(ANYBODY, order_id)
        replayed = replay(read_record(msgspec.json.decode(found.record)))
        assert "0x" + replayed.task_hash.hex() == reply.certificate.task_digest
        assert await gateway.database.lease_matches.list_attempts(order_id) == [attempt]
        certificates = await gateway.database.lease_matches.list_certificates()
        assert [each.order_id for each in certificates] == [order_id], "for the chain's process"


async def test_an_order_that_nobody_bids_on_ends_unmatched(network: ValidatorNetwork) -> None:
    order_id, _ = await network.order(terms=SHORT)
    await network.settled(order_id)
    order = network.market.view.latest.orders[order_id]
    assert (order.state, order.reason) == (OrderState.UNMATCHED, OrderOutcome.NONE_ELIGIBLE)


async def test_a_demanded_book_is_published(network: ValidatorNetwork) -> None:
    order_id, market = await matched(network), network.market
    await market.fund(RENTER, "dispute_book", 5 * USD)
    await market.send(RENTER, "dispute_book", "demand_book", bytes.fromhex(order_id[2:]), 0)

    async def is_published() -> bool:
        _, _, _, published = await market.read("dispute_book", "demand_of", bytes.fromhex(order_id[2:]), 0)
        return bool(published)

    await until(is_published, "a signer publishes the book")


async def test_a_second_process_with_the_same_vote_key_is_refused(network: ValidatorNetwork) -> None:
    first = network.validators[0]
    words = first.argv()
    words[words.index("--port") + 1] = "0"
    words[words.index("--ready-file") + 1] = str(first.folder / "never.json")
    status, written = await command(*words[4:])
    assert status == 1
    assert "Another validator signs with the vote key" in written
    copied = first.folder / "copied"
    shutil.copytree(first.folder / "data", copied)
    words[words.index("--data") + 1] = str(copied)
    status, written = await command(*words[4:])
    assert status == 1
    assert "A validator with this vote key answers" in written, "a copy has a lock of its own"
    assert not (first.folder / "never.json").exists()


async def test_what_was_signed_is_listed_and_each_validator_agrees(network: ValidatorNetwork) -> None:
    """Every vote of one order and round names the same task: honest validators agree."""
    tasks: dict[tuple[bytes, int, int], set[bytes]] = {}
    for validator in network.validators:
        for stored in read_signatures(validator.folder / "data" / SIGNED_FILE):
            if isinstance(stored.record, SignedVote):
                vote = stored.record.vote
                tasks.setdefault((vote.order_id, vote.attempt, vote.round), set()).add(vote.task_hash)
    assert tasks
    assert all(len(voted) == 1 for voted in tasks.values())
    data = str(network.validators[1].folder / "data")
    status, written = await command("votes", "--data", data, "--json")
    assert status == 0
    assert {"vote", "commit_list", "reveal_list"} <= {each["kind"] for each in json.loads(written)["signed"]}
    status, written = await command("status", "--data", data)
    assert status == 0
    assert "25.0 % of 4 validators" in written
