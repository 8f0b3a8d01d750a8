from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.accounts import principal
from sparewatt.cli.context import SCOPES
from tests.unit.cli.canned import api_key
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

CREATED = api_key(name="my-app", key="sk-sw-brand-new", prefix="sk-sw-bra")
LISTED = [
    api_key("key_1", name="a"),
    api_key("key_2", name="b", scopes=["admin", "node"], revoked_at=2),
]


def test_create_puts_only_the_key_on_stdout(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    result = run("keys", "create", "my-app")
    assert result.exit_code == 0
    assert result.stdout == "sk-sw-brand-new\n"
    assert "only this once" in result.stderr
    assert network.requests[0].body == {"name": "my-app", "scopes": ["inference"]}


def test_create_takes_several_scopes_and_a_default_name(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    run("keys", "create", "--scope", "inference", "--scope", "admin")
    assert network.requests[0].body == {"name": "cli", "scopes": ["inference", "admin"]}


def test_create_as_json(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    assert json.loads(run("keys", "create", "my-app", "--json").stdout) == CREATED


def test_create_without_permission_is_an_error_of_its_own(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/keys", 403, "permission_denied")
    result = run("keys", "create")
    assert result.exit_code == 3
    assert result.stderr.endswith("Ask the operator for a key with the scope 'admin'.\n")


def test_a_scope_that_does_not_exist_is_a_usage_error(network: FakeNetwork, run: Run) -> None:
    result = run("keys", "create", "--scope", "root")
    assert result.exit_code == 2
    assert all(scope in result.stderr for scope in SCOPES)
    assert network.requests == []


def test_the_scopes_offered_are_those_of_the_network() -> None:
    assert SCOPES == principal.SCOPES


def test_keys_are_listed_with_their_state(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/keys", {"object": "list", "data": LISTED})
    _header, first, second = run("keys").stdout.splitlines()
    assert first.split()[:4] == ["key_1", "a", "sk-sw-a", "inference"]
    assert first.endswith("active")
    assert "revoked" in second


def test_quiet_prints_ids_only(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/keys", {"object": "list", "data": LISTED})
    assert run("keys", "list", "-q").stdout == "key_1\nkey_2\n"


def test_list_as_json(network: FakeNetwork, run: Run) -> None:
    answer = {"object": "list", "data": LISTED}
    network.on("GET /v1/keys", answer)
    assert json.loads(run("keys", "--json").stdout) == answer


def test_no_keys_says_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/keys", {"object": "list", "data": []})
    assert "sparewatt keys create" in run("keys").stderr


def test_revoke(network: FakeNetwork, run: Run) -> None:
    revoked = api_key(revoked_at=2.0, revoked=True)
    network.on("DELETE /v1/keys/key_1", revoked)
    result = run("keys", "revoke", "key_1")
    assert result.exit_code == 0
    assert result.stdout.startswith("Revoked key_1.")
    assert json.loads(run("keys", "revoke", "key_1", "--json").stdout) == revoked


def test_revoke_of_an_unknown_key_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("DELETE /v1/keys/key_0", 404, "key_not_found", "There is no key key_0.")
    result = run("keys", "revoke", "key_0")
    assert result.exit_code == 4
    assert "sparewatt keys list" in result.stderr


# limits


def test_limits_are_sent_as_the_network_reads_them(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    policy = tmp_path / "policy.json"
    policy.write_text('{"region": ["EU"]}')
    words = ["--budget", "$5/day", "--expires", "30d", "--policy", str(policy), "--tokens-per-min", "1000"]
    assert run("keys", "create", "my-app", *words).exit_code == 0
    assert network.requests[0].body == {
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
    assert network.requests[0].body == {"budget": None, "policy": "region=EU", "name": "new"}


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
    assert network.requests == []


@pytest.mark.parametrize(("stored", "limits"), [(None, "none"), ("region=EU", "policy"), ({"region": "EU"}, "policy")])
def test_a_key_says_whether_it_has_a_policy(network: FakeNetwork, run: Run, stored: object, limits: str) -> None:
    network.on("PATCH /v1/keys/key_1", api_key(policy=stored))
    assert run("keys", "limit", "key_1", "--name", "new").stdout == f"key_1: {limits}.\n"


def test_a_policy_comes_from_a_yaml_file(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    policy = tmp_path / "policy.yaml"
    policy.write_text('policy:\n  region: [NO, SE]\n  vram_gb: ">=24"\n')
    assert run("keys", "create", "my-app", "--policy", str(policy)).exit_code == 0
    assert network.requests[0].body["policy"] == {"region": ["NO", "SE"], "vram_gb": ">=24"}


def test_a_policy_file_with_an_error_is_a_usage_error_that_names_the_option(
    network: FakeNetwork, run: Run, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text("{")
    result = run("keys", "limit", "key_1", "--policy", str(policy))
    assert result.exit_code == 2
    assert "'--policy'" in result.stderr
    assert f"{policy}:1: " in result.stderr
    assert network.requests == []
