"""Contexts: who a command acts as, and how another account of this machine is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.cli.context import known_contexts, remember_network, resolve_network
from sparewatt.cli.credentials import credentials_file, read_logins, save_login
from sparewatt.cli.errors import CliError
from tests.unit.cli.conftest import a_login, run_alone
from tests.unit.cli.fake_network import FakeNetwork


@pytest.fixture
def started(tmp_path: Path, network: FakeNetwork) -> Path:
    return start(tmp_path / "first", network.base_url)


def start(folder: Path, base_url: str) -> Path:
    folder.mkdir()
    ready = folder / "ready.json"
    ready.write_text(json.dumps({"base_url": base_url, "api_key": f"key-of-{folder.name}"}))
    remember_network(ready)
    return ready


def names() -> list[str]:
    return [each.name for each in known_contexts()]


def test_a_login_comes_first_and_the_operator_stays(started: Path, network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    assert names() == ["ann@example.org", "operator"]
    assert resolve_network(as_name="operator").api_key == "key-of-first"
    assert resolve_network().api_key == "sk-sw-login"


def test_a_chosen_context_is_used_until_the_next_login(started: Path, network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    shown = run_alone("use", "operator")
    assert shown.exit_code == 0, shown.output
    assert resolve_network().api_key == "key-of-first"
    assert [login.email for login in read_logins()] == ["ann@example.org"]
    save_login(replace(a_login(network.base_url), account_id="acc_2", email="bob@example.org"))
    assert names() == ["bob@example.org", "ann@example.org", "operator"]


def test_two_accounts_at_one_network_keep_their_keys(network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    save_login(replace(a_login(network.base_url, "sk-sw-bob"), account_id="acc_2", email="bob@example.org"))
    assert resolve_network(as_name="ann@example.org").api_key == "sk-sw-login"
    assert resolve_network().api_key == "sk-sw-bob"


def test_contexts_of_the_same_name_are_told_apart_by_their_address(started: Path, tmp_path: Path) -> None:
    start(tmp_path / "second", "http://127.0.0.1:9/v1")
    first, second = known_contexts()
    assert (first.name, first.api_key) == ("operator", "key-of-second")
    assert second.name == f"operator@{second.base_url.removeprefix('http://').removesuffix('/v1')}"


def test_a_chosen_context_that_is_gone_is_an_error_and_no_other_key_is_used(
    started: Path, network: FakeNetwork
) -> None:
    save_login(a_login(network.base_url))
    run_alone("use", "operator")
    started.unlink()
    with pytest.raises(CliError, match="no context 'operator'") as caught:
        resolve_network()
    assert "ann@example.org" in str(caught.value.next_step)
    assert run_alone("use", "ann@example.org").exit_code == 0
    assert resolve_network().api_key == "sk-sw-login"


def test_an_unknown_name_changes_nothing(network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    before = credentials_file().read_bytes()
    result = run_alone("use", "bob@example.org")
    assert result.exit_code == 4
    assert "ann@example.org" in result.stderr
    assert credentials_file().read_bytes() == before


def test_as_takes_no_other_address_or_key(network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    result = run_alone("models", "--as", "ann@example.org", "--api-key", "sk-sw-x")
    assert result.exit_code == 2
    assert "--api-key" in result.stderr


@pytest.mark.parametrize("code", ["operators_only", "not_owner", "permission_denied"])
def test_what_is_not_allowed_names_the_context_that_may(started: Path, network: FakeNetwork, code: str) -> None:
    save_login(a_login(network.base_url))
    network.fail("GET /v1/ledger/audit", 403, code)
    told = run_alone("ledger", "audit").stderr
    assert "--as operator" in told
    assert "--as operator" not in run_alone("ledger", "audit", "--as", "operator").stderr


def test_the_list_marks_the_one_in_use(started: Path, network: FakeNetwork) -> None:
    save_login(a_login(network.base_url))
    listed = json.loads(run_alone("use", "--json").stdout)
    assert [(each["name"], each["is_operator"], each["in_use"]) for each in listed] == [
        ("ann@example.org", False, True),
        ("operator", True, False),
    ]
    assert "sk-sw-login" not in run_alone("use").stdout


def test_without_any_context_the_error_says_how_to_get_one() -> None:
    result = run_alone("use")
    assert result.exit_code == 1
    assert "sparewatt login" in result.stderr
