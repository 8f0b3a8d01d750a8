from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparewatt.cli.node.earnings import ElectricityCost, electricity_costs
from sparewatt.protocol.api.earnings import EarningsGroup, NodeUtilisation
from tests.unit.cli.canned import BERLIN, TREASURY, page
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork


def utilisation(node_id: str, **changes: object) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "name": None,
        "slots": 4,
        "busy_s": 3_600.0,
        "work_s": 3_600.0,
        "window_s": 7_200.0,
        "utilisation": 0.5,
        "working_watts": None,
        "working_watts_over_s": None,
        **changes,
    }


SUMMARY = {
    "account": "acc_ann",
    "fee_bps": 500,
    "withheld_usd": "0.125",
    "withheld_nano": 125_000_000,
    "pending_usd": "0.5",
    "pending_nano": 5 * 10**8,
    "batched_usd": "0.25",
    "batched_nano": 25 * 10**7,
    "settled_usd": "1",
    "settled_nano": 10**9,
    "claimed_usd": "1",
    "claimed_nano": 10**9,
    "promo_usd": "0.125",
    "promo_nano": 125 * 10**6,
    "treasury": TREASURY,
    "nodes": [utilisation(BERLIN, name="berlin", busy_s=7200.0)],
}
LINE = {
    "job_id": "match_1",
    "opened_at": "2026-11-15T09:00:00+00:00",
    "position": 0,
    "node_id": BERLIN,
    "model": "small",
    "outcome": "done",
    "prompt_tokens": 100,
    "completion_tokens": 200,
    "prompt_usd_per_mtok": "0.02",
    "completion_usd_per_mtok": "0.04",
    "fee_usd": "0.0000005",
    "fee_nano": 500,
    "net_usd": "0.0000095",
    "net_nano": 9_500,
    "net_promo_usd": "0",
    "net_promo_nano": 0,
    "first_token_ms": None,
    "duration_ms": 1.0,
}


def group(name: str, *, net_nano: int = 0) -> dict[str, Any]:
    tokens = {"jobs": 1, "prompt_tokens": 100, "completion_tokens": 200}
    net = {"net_usd": "0.5", "net_nano": net_nano, "net_promo_usd": "0", "net_promo_nano": 0}
    return {"name": name, **tokens, "fee_usd": "0", "fee_nano": 0, **net}


def costs(nodes: list[dict[str, Any]], groups: list[dict[str, Any]], *, watts: float | None) -> list[ElectricityCost]:
    found = msgspec.convert(nodes, list[NodeUtilisation]), msgspec.convert(groups, list[EarningsGroup])
    return electricity_costs(*found, watts=watts, kwh_usd=0.5)


def test_earnings_show_price_fee_and_net_of_each_job(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY})
    network.on("GET /v1/earnings?by=job&limit=1000", page(LINE))
    result = run("node", "earnings", "--by", "job")
    assert result.exit_code == 0, result.stderr
    for said in ("Pending   $0.50", "Promo     $0.125", "match_1", "$0.04", "$0.0000095", "berlin", "2.0 h", "50.0%"):
        assert said in result.stdout
    assert "node why" in result.stderr


def test_without_earnings_the_next_command_is_why(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY | {"nodes": []}})
    network.on("GET /v1/earnings?by=day&limit=1000", page())
    assert "sparewatt node why" in run("node", "earnings").stderr


def test_net_of_electricity_is_what_is_left_after_the_bill(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY})
    network.on("GET /v1/earnings?by=day&limit=1000", page(group("2026-11-15")))
    network.on("GET /v1/earnings?by=node&limit=1000", page(group(BERLIN, net_nano=500_000_000)))
    result = run("node", "earnings", "--kwh-usd", "0.30", "--watts", "350", "--json")
    (node,) = json.loads(result.stdout)["electricity"]
    assert node == {
        "node_id": BERLIN,
        "watts": 350.0,
        "watts_measured": False,
        "kwh": 0.7,
        "cost_usd": "0.21",
        "earned_usd": "0.5",
        "net_usd": "0.29",
    }


def test_power_that_a_node_measured_counts_before_what_its_owner_says() -> None:
    nodes = [utilisation("0x1", working_watts=200.0), utilisation("0x2")]
    groups = [group("0x1", net_nano=10), group("0x2", net_nano=10)]
    measured, given = costs(nodes, groups, watts=400)
    assert (measured.kwh, measured.is_measured, given.kwh, given.is_measured) == (0.2, True, 0.4, False)
    assert [each.node_id for each in costs(nodes, groups, watts=None)] == ["0x1"]


def test_a_node_that_costs_more_than_it_earns_is_shown_with_a_loss() -> None:
    (found,) = costs([utilisation("0x1")], [group("0x1", net_nano=10)], watts=1_000)
    assert (found.kwh, found.cost_nano, found.net_nano) == (1.0, 500_000_000, -499_999_990)


@pytest.mark.parametrize("bad", [("--watts", "-1"), ("--kwh-usd", "-0.1"), ("--watts", "much")])
def test_power_that_makes_no_sense_is_a_usage_error(network: FakeNetwork, run: Run, bad: tuple[str, str]) -> None:
    assert run("node", "earnings", *bad).exit_code == 2
    assert network.requests == []


LEASE_INCOME = {
    "data": [
        {
            "id": "0x" + "ab" * 32,
            "provider": "0x" + "cd" * 20,
            "node": "0x" + "11" * 20,
            "state": "active",
            "hourly_usd": "1.13",
            "placed_at": 1_000,
            "left_at": None,
            "ends_at": 4_000_000_000,
            "earned_usd": "20.5",
            "due_usd": "5.26",
        }
    ],
    "earned_usd": "20.5",
    "due_usd": "5.26",
    "hourly_usd": "1.13",
    "leases": 1,
}


def test_leases_show_what_they_bring_and_until_when_they_are_booked(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/leases", LEASE_INCOME)
    shown = " ".join(run("node", "earnings", "--by", "lease").stdout.split())
    for words in ("$20.50, settled on the chain", "$1.13 an hour", "active", "for "):
        assert words in shown


def test_leases_have_no_csv(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/leases", LEASE_INCOME)
    assert run("node", "earnings", "--by", "lease", "--csv").exit_code == 2
    assert network.requests == []


def test_an_owner_without_leases_is_told_where_to_look(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/leases", LEASE_INCOME | {"data": [], "leases": 0})
    assert "sparewatt node leases" in run("node", "earnings", "--by", "lease").stderr
