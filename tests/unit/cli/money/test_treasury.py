from __future__ import annotations

from tests.unit.cli.canned import TREASURY
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork


def test_an_empty_treasury_names_who_can_fill_it(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/treasury", {"data": TREASURY | {"balance_usd": "0"}})
    assert "sparewatt treasury fund" in run("treasury").stderr
