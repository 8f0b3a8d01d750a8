"""`sparewatt rewards`: what eras paid, who got what and why, deposits, and where rewards go."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.trust.rewards.era import reward_era
from tests.unit.cli.conftest import Run
from tests.unit.cli.eras import published_era
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.trust.rewards.eras import a_node, an_era

REWARD = {
    "era": 12,
    "until": 100,
    "node": "0x" + "a" * 40,
    "availability_micro": 1_000_000,
    "uptime_micro": 250_000,
    "quality_micro": 0,
    "total_micro": 1_250_000,
    "total_usd": "1.25",
}
SUMS = {
    "waiting_micro": 0,
    "waiting_usd": "0",
    "posted_micro": 1_250_000,
    "posted_usd": "1.25",
    "claimed_micro": 0,
    "claimed_usd": "0",
}


def listed(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(rows), "next": None, **SUMS}


def test_the_lines_of_an_eras_reward_are_listed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/rewards?limit=1000", listed(REWARD))
    result = run("rewards")
    assert result.exit_code == 0
    assert "$1.25" in result.stdout
    assert "$0.25" in result.stdout
    assert "payouts claim" in result.stderr


def test_without_rewards_the_next_step_is_said(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/rewards?limit=1000", listed())
    assert "rewards eras" in run("rewards", "list").stderr


def test_an_era_shows_every_factor_and_what_held_a_node_back(network: FakeNetwork, run: Run) -> None:
    inputs = an_era(a_node(1), a_node(2, up_s=0))
    network.on("GET /v1/rewards/eras/1", published_era(inputs))
    result = run("rewards", "show", "1")
    assert result.exit_code == 0
    assert "node1" in result.stdout
    assert "50 % of $0.12" in result.stdout
    assert "trust replay 1" in result.stderr


def test_the_pool_is_funded_once_per_id(network: FakeNetwork, run: Run) -> None:
    reply = {"id": "may", "posted": False, "held_nano": 5 * 10**9, "held_usd": "5"}
    network.on("POST /v1/rewards/fund", reply)
    result = run("rewards", "fund", "5", "--id", "may")
    assert "The pool holds $5.00 (this id was posted before" in result.stdout


def test_a_node_s_rewards_become_its_bond(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/nodes/berlin/reward-target", {"node": "0x" + "b" * 40, "to": "bond"})
    result = run("rewards", "target", "berlin", "bond")
    assert "go to the bond of its provider" in result.stdout


def test_eras_are_listed_with_their_roots(network: FakeNetwork, run: Run) -> None:
    era = published_era(an_era(a_node(1)))
    fields = {name: value for name, value in era.items() if name not in {"inputs", "rewards"}}
    reply = {"object": "list", "data": [fields], "next": None, "held_usd": "5", "held_nano": 5 * 10**9, "era_s": 86_400}
    network.on("GET /v1/rewards/eras?limit=1000", reply)
    result = run("rewards", "eras")
    assert "claimable" in result.stdout
    assert "An era is 24 hours long; $5.00 wait" in result.stderr


def test_the_document_is_printed_as_it_was_published(network: FakeNetwork, run: Run) -> None:
    inputs = an_era(a_node(1))
    network.on("GET /v1/rewards/eras/1", published_era(inputs))
    shown = msgspec.json.decode(run("rewards", "show", "1", "--json").stdout)
    assert shown["inputs"] == msgspec.to_builtins(inputs)
    assert shown["rewards"] == msgspec.to_builtins(reward_era(inputs))
