from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.test_keys import CREATED


def test_limits_are_sent_as_the_network_reads_them(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    policy = tmp_path / "policy.json"
    policy.write_text('{"region": ["EU"]}')
    words = ["--budget", "$5/day", "--expires", "30d", "--policy", str(policy), "--tokens-per-min", "1000"]
    assert run("keys", "create", "my-app", *words).exit_code == 0
    assert network.seen[0].body == {
        "name": "my-app",
        "scopes": ["inference"],
        "budget": {"usd": "5", "period": "day"},
        "expires_in_s": 30 * 86_400,
        "policy": {"region": ["EU"]},
        "tokens_per_min": 1000,
    }


def test_a_limit_is_changed_or_taken_away(network: FakeNetwork, run: Run) -> None:
    network.on("PATCH /v1/keys/key_1", CREATED)
    result = run("keys", "limit", "key_1", "--budget", "none", "--policy", "region=EU", "--name", "new")
    assert result.exit_code == 0
    assert result.stdout == "key_1: none.\n"
    assert network.seen[0].body == {"budget": None, "policy": "region=EU", "name": "new"}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--budget", "5"),
        ("--budget", "5/year"),
        ("--budget", "/day"),
        ("--expires", "soon"),
        ("--expires", "0d"),
        ("--expires", "-5d"),
        ("--requests-per-min", "many"),
        ("--requests-per-min", "1.5"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(network: FakeNetwork, run: Run, words: tuple[str, ...]) -> None:
    assert run("keys", "limit", "key_1", *words).exit_code == 2
    assert network.seen == []


def test_a_policy_file_that_is_no_json_is_a_usage_error(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text("{")
    assert run("keys", "limit", "key_1", "--policy", str(policy)).exit_code == 2
