"""`sparewatt lease` against a whole network: quote, order, match, close; and the books afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil_binary import find_anvil
from tests.integration.asking import ask
from tests.integration.networks import Network, start_network
from tests.integration.test_command_line import run
from tests.integration.test_up_chain import outbox
from tests.processes import wait_until

OPEN_S = 60.0
SMALL = ("--gpus", "0", "--cpus", "0.1", "--memory-gb", "0.1", "--disk-gb", "0.1")
ORDER = """
image: me/train:1
name: twins
resources: {gpus: 0, cpus: 0.1, memory_gb: 0.1}
disk_gb: 0.1
duration: 30m
count: 2
max_spend: 1
"""


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")
    with start_network(tmp_path_factory.mktemp("rented"), "--engine=deterministic", chain=True) as network:
        wait_until(lambda: is_open(network), "the market is not open", ceiling_s=OPEN_S)
        yield network


def is_open(network: Network) -> bool:
    """Validators have a table, and somebody offers a machine."""
    found = ask(network, "GET", "/v1/market/validators")
    if found.status != 200 or found.json()["snapshot"] is None or not found.json()["snapshot"]["count"]:
        return False
    quote = ask(network, "POST", "/v1/leases/dry-run", {"image": "a", "resources": {"gpus": 0, "cpus": 0.1}})
    return quote.status == 200 and quote.json()["able"] >= 2


def leases(network: Network, name: str) -> list[dict[str, Any]]:
    return [each for each in ask(network, "GET", "/v1/leases").json()["data"] if each["name"] == name]


def test_an_order_file_is_matched_and_its_leases_are_closed(market: Network, tmp_path: Path) -> None:
    file = tmp_path / "order.yaml"
    file.write_text(ORDER)
    ended = run(market, "lease", "create", "-f", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("Matched with 0x") == 2
    assert "starts the container" in ended.stderr
    for lease in leases(market, "twins"):
        assert (lease["phase"], lease["order"]["lease"]["state"]) == ("matched", "pending")
        assert float(lease["order"]["lease"]["hourly_usd"]) <= float(lease["max_hourly_usd"])
        assert float(lease["deposit_usd"]) <= 0.5
        closed = run(market, "lease", "close", lease["id"], "--json")
        assert closed.returncode == 0, closed.stderr
    wait_until(lambda: {each["phase"] for each in leases(market, "twins")} == {"closed"}, "they are not closed")


def test_the_renter_chooses_a_provider(market: Network) -> None:
    quote = ask(market, "POST", "/v1/leases/dry-run", {"image": "a", "resources": {"gpus": 0, "cpus": 0.1}}).json()
    chosen = quote["offers"][-1]["provider"]  # the dearest would not win otherwise
    ended = run(market, "lease", "create", "--image", "a", *SMALL, "--only", chosen, "--name", "chosen", "--json")
    assert ended.returncode == 0, ended.stderr
    (lease,) = json.loads(ended.stdout)["leases"]
    assert lease["order"]["lease"]["provider"] == chosen
    assert run(market, "lease", "close", "chosen").returncode == 0


def test_nobody_can_serve_it_and_nobody_would(market: Network) -> None:
    dry = run(market, "lease", "create", "--image", "a", "--gpu", "h100", "--gpus", "8", "--dry-run")
    assert dry.returncode == 5, dry.stdout
    body = {"image": "a", "name": "poor", "secrets": ["T"], "policy": {"max_hourly": "0.000001"}}
    made = ask(market, "POST", "/v1/leases", body | {"resources": {"gpus": 0, "cpus": 0.1}})
    assert made.status == 201, made.json()
    followed = run(market, "lease", "follow", "poor")
    assert followed.returncode == 5, followed.stdout + followed.stderr
    assert "0 bids because" in followed.stdout


def test_the_books_are_in_order_afterwards(market: Network) -> None:
    ended = {"final", "refused"}  # refused: a certificate that a validator had sent first
    wait_until(lambda: set(outbox(market)) <= ended, "not everything is final", ceiling_s=OPEN_S)

    def is_in_order() -> bool:
        return bool(ask(market, "GET", "/v1/ledger/audit").json()["in_order"])

    wait_until(is_in_order, "the books are not in order", ceiling_s=OPEN_S)
