from __future__ import annotations

import json

from sparewatt.accounts import principal
from sparewatt.cli.context import SCOPES
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

CREATED = {
    "id": "key_1",
    "name": "my-app",
    "key": "sk-sw-brand-new",
    "prefix": "sk-sw-bra",
    "scopes": ["inference"],
    "created_at": 1_790_000_000,
}
LISTED = [
    {"id": "key_1", "name": "a", "prefix": "sk-sw-a", "scopes": ["inference"], "created_at": 1, "revoked_at": None},
    {"id": "key_2", "name": "b", "prefix": "sk-sw-b", "scopes": ["admin", "x"], "created_at": 1, "revoked_at": 2},
]


def test_create_puts_only_the_key_on_stdout(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    result = run("keys", "create", "my-app")
    assert result.exit_code == 0
    assert result.stdout == "sk-sw-brand-new\n"
    assert "only this once" in result.stderr
    assert network.seen[0].body == {"name": "my-app", "scopes": ["inference"]}


def test_create_takes_several_scopes_and_a_default_name(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/keys", CREATED, status=201)
    run("keys", "create", "--scope", "inference", "--scope", "admin")
    assert network.seen[0].body == {"name": "cli", "scopes": ["inference", "admin"]}


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
    assert network.seen == []


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
    network.on("DELETE /v1/keys/key_1", {"id": "key_1", "revoked": True})
    result = run("keys", "revoke", "key_1")
    assert result.exit_code == 0
    assert result.stdout.startswith("Revoked key_1.")
    assert json.loads(run("keys", "revoke", "key_1", "--json").stdout) == {"id": "key_1", "revoked": True}


def test_revoke_of_an_unknown_key_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("DELETE /v1/keys/key_0", 404, "key_not_found", "There is no key key_0.")
    result = run("keys", "revoke", "key_0")
    assert result.exit_code == 4
    assert "sparewatt keys list" in result.stderr
