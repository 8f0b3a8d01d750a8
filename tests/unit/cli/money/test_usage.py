from __future__ import annotations

from tests.unit.cli.canned import page
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

DAY = {
    "name": "2026-11-15",
    "jobs": 2,
    "prompt_tokens": 10,
    "completion_tokens": 20,
    "cost_usd": "0.5",
    "cost_nano": 500_000_000,
    "promo_usd": "0",
    "promo_nano": 0,
}


def test_usage_is_summed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/usage?by=day&limit=1000", page(DAY, DAY | {"name": "2026-11-16"}))
    lines = run("usage").stdout.splitlines()
    assert lines[-1].split() == ["total", "4", "20", "40", "$1.00", "$0"]


def test_no_usage_names_the_next_command(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/usage?by=model&limit=1000", page())
    result = run("usage", "--by", "model")
    assert result.stdout == ""
    assert "sparewatt chat" in result.stderr


def test_csv_has_its_header_once_over_many_pages(network: FakeNetwork, run: Run) -> None:
    first = "GET /v1/usage?by=day&from=2026-11-01&format=csv&limit=1000"
    network.on(first, pieces=[b"name,jobs\r\na,1\r\n"], headers={"x-sparewatt-next": "a"})
    network.on(f"{first}&after=a", pieces=[b"name,jobs\r\nb,2\r\n"])
    assert run("usage", "--from", "2026-11-01", "--csv").stdout.split() == ["name,jobs", "a,1", "b,2"]
