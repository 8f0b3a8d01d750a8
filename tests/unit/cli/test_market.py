from __future__ import annotations

import asyncio
import json
from typing import cast

import msgspec
import pytest

from sparewatt.api.market.tables import published_tables
from sparewatt.core.errors import NoChain
from sparewatt.leasing.relay.vote_counts import RecentVoteCounts
from tests.unit.api.market.test_market import RUNNING, SomeVotes, get, market_of
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.gateway.small_gateway import make_services, running
from tests.unit.market.market_events import ALICE, OTHER_OPERATOR, VOTE_KEY, validator, weighed

ANSWER = msgspec.to_builtins(published_tables()[0])


def test_the_tables_are_printed_with_their_ids(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/market/tables", ANSWER)
    result = run("market", "tables")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["7", "europe-west", "15"] in rows
    assert any(row[1:] == ["h100", "h100"] for row in rows)
    assert ["1", "gdpr", "operator"] in rows
    assert any(row[1:] == ["DE"] for row in rows)


def test_json_prints_the_answer_of_the_api(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/market/tables", ANSWER)
    assert json.loads(run("market", "tables", "--json").stdout) == ANSWER


@pytest.mark.parametrize("words", [["market"], ["market", "orders"]], ids=" ".join)
def test_the_orders_come_first(network: FakeNetwork, run: Run, words: list[str]) -> None:
    network.on("GET /v1/market/orders", {"object": "list", "data": [], "latest_block": 1, "final_block": 1})
    assert "no orders" in run(*words).stderr


def test_a_filter_that_is_no_address_is_refused_before_it_is_sent(network: FakeNetwork, run: Run) -> None:
    result = run("market", "leases", "--provider", "0x12")
    assert (result.exit_code, network.requests) == (2, [])
    assert "40 hex digits" in result.stderr


async def replies() -> dict[str, object]:
    """What a gateway answers of the life of an order."""
    services = make_services()
    stakes = [validator(OTHER_OPERATOR), weighed(VOTE_KEY, version=1, weight=9, total=9)]
    services.market = await market_of([*RUNNING, *stakes])
    services.recent_votes = cast("RecentVoteCounts", SomeVotes())
    async with running(services) as client:
        paths = ("orders", "leases", "providers", "validators")
        return {path: (await get(client, path))[1] for path in paths}


@pytest.mark.parametrize(
    ("noun", "words"),
    [
        ("orders", ["matched", "$3.00", "$5.00", ALICE[:18]]),
        ("leases", ["active", "$2.00", ALICE[:18]]),
        ("providers", ["active", ALICE[:18]]),
        ("validators", ["https://v.example", "0 of 0", "7 of 10", "Stake version 1", "none yet"]),
    ],
)
def test_the_market_is_printed(network: FakeNetwork, run: Run, noun: str, words: list[str]) -> None:
    network.on(f"GET /v1/market/{noun}", asyncio.run(replies())[noun])
    result = run("market", noun)
    assert result.exit_code == 0
    assert [word for word in words if word not in result.stdout] == []


@pytest.mark.parametrize("noun", ["orders", "leases", "providers"])
def test_an_empty_list_says_so(network: FakeNetwork, run: Run, noun: str) -> None:
    empty: dict[str, object] = {"object": "list", "data": [], "next": None, "latest_block": 1, "final_block": 1}
    network.on(f"GET /v1/market/{noun}", empty)
    result = run("market", noun)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no {noun}" in result.stderr


def test_filters_become_a_query(network: FakeNetwork, run: Run) -> None:
    network.on(f"GET /v1/market/leases?which=all&provider={ALICE}", asyncio.run(replies())["leases"])
    assert run("market", "leases", "--all", "--provider", ALICE, "--json").exit_code == 0
    assert network.requests[-1].path == f"/v1/market/leases?which=all&provider={ALICE}"


def test_without_a_chain_the_command_says_so(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/market/orders", 409, "no_chain", NoChain("The lease market").message)
    result = run("market", "orders")
    assert result.exit_code != 0
    assert "needs a chain" in result.stderr
    assert "--no-chain" in result.stderr
