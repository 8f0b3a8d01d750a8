"""`sparewatt node why --trust`: tier, facets, terms and reward; to a stranger what is public, and no more."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.trust.rewards.era import reward_era
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.trust.rewards.eras import a_node, an_era

FACET = {"name": "completion", "score_ppm": 960_000, "lower_ppm": 850_000, "rule": "Jobs of other accounts."}
PUBLIC: dict[str, Any] = {
    "node": "0x" + "a" * 40,
    "name": "berlin",
    "tier": {"tier": "community", "since": None, "next_tier": "verified"},
    "reputation_ppm": 800_000,
    "half_life_days": 14,
    "facets": [FACET],
}
TERM = {"name": "days", "have": 1, "need": 7, "met": False, "text": "seen up on 1 of 7 days"}
OWNERS = PUBLIC | {
    "tier": PUBLIC["tier"] | {"keeps": [], "wants": [TERM]},
    "facets": [FACET | {"good": 25_000_000, "bad": 1_000_000}],
    "days": [],
    "era": 3,
    "reward": msgspec.to_builtins(reward_era(an_era(a_node(1))).nodes[0]),
    "sentences": ["Completion fell from 90.0 % to 85.0 % in a week: 25.0 jobs finished and 1.0 failed."],
}

CHECKS: dict[str, Any] = {
    "object": "node_checks",
    "node": "0x" + "a" * 40,
    "name": "berlin",
    "state": "passing",
    "passed": 3,
    "failed_probes": 0,
    "trusted": False,
    "checked_share": 0.005,
    "barred_until_unix_s": None,
    "sentences": ["It passed its last three checks."],
    "verdicts": [],
}


def test_an_owner_reads_terms_reward_and_what_changed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes/berlin/trust", OWNERS)
    network.on("GET /v1/nodes/berlin/checks", CHECKS)
    result = run("node", "why", "berlin", "--trust")
    assert result.exit_code == 0
    assert "seen up on 1 of 7 days" in result.stdout
    assert "Era 3 gave" in result.stdout
    assert "Completion fell" in result.stdout
    assert "25.00" in result.stdout
    assert "It passed its last three checks." in result.stdout


def test_a_stranger_reads_tier_and_scores(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes/berlin/trust", PUBLIC)
    network.on("GET /v1/nodes/berlin/checks", CHECKS)
    result = run("node", "why", "berlin", "--trust")
    assert "community" in result.stdout
    assert "85.0 %" in result.stdout
    assert "Era" not in result.stdout
