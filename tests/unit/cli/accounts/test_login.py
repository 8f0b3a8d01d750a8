from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sparewatt.cli.context import remember_network
from sparewatt.cli.credentials import Login, credentials_file, read_logins, save_login
from tests.unit.cli.canned import ACCOUNT, api_key
from tests.unit.cli.conftest import Run, a_login, run_alone
from tests.unit.cli.fake_network import KEY, FakeNetwork

PASSWORD = "correct horse battery"


@pytest.fixture
def network_with_people(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    """Accepts every login; only its address is set."""
    monkeypatch.setenv("SPAREWATT_BASE_URL", network.base_url)
    cookie = {"Set-Cookie": "sparewatt_session=abc; HttpOnly; Path=/; SameSite=Strict"}
    entered = {"account": ACCOUNT, "csrf_token": "csrf-1"}
    network.on("POST /v1/login", entered, headers=cookie)
    network.on("POST /v1/signup", entered, headers=cookie, status=201)
    network.on("POST /v1/keys", api_key(key="sk-sw-machine"), status=201)
    network.on("POST /v1/logout", {"logged_out": True})
    network.on("DELETE /v1/keys/key_1", api_key(revoked=True))
    return network


@pytest.mark.parametrize("command", ["login", "signup"])
def test_login_and_signup_save_a_key_for_this_machine(network_with_people: FakeNetwork, command: str) -> None:
    result = run_alone(command, "--email", "ann@example.org", stdin=PASSWORD + "\n")
    assert result.exit_code == 0, result.output
    entered, made, left = network_with_people.requests
    assert entered.body == {"email": "ann@example.org", "password": PASSWORD}
    assert "Authorization" not in entered.headers
    assert made.headers["Cookie"] == "sparewatt_session=abc"
    assert made.headers["x-sparewatt-csrf"] == "csrf-1"
    assert made.body["scopes"] == ["inference", "lease", "node", "admin"]
    assert left.path == "/v1/logout"
    assert read_logins() == [Login(network_with_people.base_url, "sk-sw-machine", "key_1", "acc_1", "ann@example.org")]
    assert stat.S_IMODE(credentials_file().stat().st_mode) == 0o600
    assert "sk-sw-machine" not in result.output
    assert PASSWORD not in result.output


def test_later_commands_use_the_login_and_a_logout_ends_it(network_with_people: FakeNetwork) -> None:
    run_alone("login", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    network_with_people.on("GET /v1/keys", {"data": []})
    assert run_alone("keys", "list").exit_code == 0
    assert network_with_people.requests[-1].headers["Authorization"] == "Bearer sk-sw-machine"
    assert json.loads(run_alone("logout", "--json").stdout)["revoked"] is True
    assert network_with_people.requests[-1].path == "/v1/keys/key_1"
    assert read_logins() == []
    again = run_alone("logout")
    assert again.exit_code == 4
    assert "not logged in" in again.stderr


def test_a_logout_says_whose_key_comes_next(
    network_with_people: FakeNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def log_in_and_out() -> str:
        run_alone("login", "--email", "ann@example.org", stdin=PASSWORD + "\n")
        return run_alone("logout").stderr

    assert "No key is left" in log_in_and_out()
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps({"base_url": network_with_people.base_url, "api_key": "sk-sw-first"}))
    remember_network(ready)
    assert "the start-up key of the network, an operator's, at " in log_in_and_out()
    monkeypatch.setenv("SPAREWATT_API_KEY", KEY)
    assert "SPAREWATT_API_KEY" in log_in_and_out()
    monkeypatch.delenv("SPAREWATT_API_KEY")
    save_login(a_login("https://b.example/v1"))
    run_alone("login", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    monkeypatch.setenv("SPAREWATT_BASE_URL", "https://b.example/v1")
    told = run_alone("logout", "--base-url", network_with_people.base_url).stderr
    assert "your login as ann@example.org at https://b.example/v1" in told


def test_a_key_that_the_network_forgot_is_forgotten_here_too(network_with_people: FakeNetwork) -> None:
    run_alone("login", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    network_with_people.fail("DELETE /v1/keys/key_1", 401, "invalid_api_key")
    assert json.loads(run_alone("logout", "--json").stdout)["revoked"] is False
    assert read_logins() == []


def test_a_failed_login_keeps_nothing_and_shows_no_password(network_with_people: FakeNetwork) -> None:
    network_with_people.fail("POST /v1/login", 401, "login_failed", "E-mail and password do not belong together.")
    result = run_alone("login", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    assert result.exit_code == 3
    assert PASSWORD not in result.output
    assert not credentials_file().exists()


def test_without_a_terminal_what_is_missing_is_named(network_with_people: FakeNetwork) -> None:
    assert "--email" in run_alone("login", stdin="").stderr
    assert "stdin" in run_alone("login", "--email", "a@b", stdin="").stderr
    assert network_with_people.requests == []


def test_there_is_no_option_for_a_password() -> None:
    for command in ("login", "signup"):
        assert "--password" not in run_alone(command, "--help").stdout


def test_whoami_tells_account_role_scopes_and_limits(network: FakeNetwork, run: Run) -> None:
    key = api_key(budget={"nano": 5 * 10**9, "usd": "5", "period": "day"}, requests_per_min=7)
    me = {"account": ACCOUNT, "role": "user", "scopes": ["inference"], "key": key}
    network.on("GET /v1/me", me)
    shown = run("whoami").stdout
    assert all(
        word in shown for word in ("ann@example.org", "acc_1", "user", "inference", "$5.00/day", "7 requests/min")
    )
    assert json.loads(run("whoami", "--json").stdout) == me


def test_a_password_is_changed_with_both_from_stdin(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/password", {"changed": True})
    assert run("password", "change", stdin="old password\nnew password\n").exit_code == 0
    assert network.requests[0].body == {"current_password": "old password", "password": "new password"}
    assert network.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_password_is_reset_with_a_token_from_stdin(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/password/reset", {"changed": True})
    assert run("password", "reset", stdin="reset-sw-1\nnew password\n").exit_code == 0
    assert network.requests[0].body == {"token": "reset-sw-1", "password": "new password"}
    network.on("POST /v1/password/reset-request", {"requested": True}, status=202)
    assert run("password", "request", "--email", "a@b").exit_code == 0


def test_a_notice_at_sign_up_is_printed(network_with_people: FakeNetwork) -> None:
    told = {"account": ACCOUNT, "csrf_token": "csrf-1", "notice": "No free credits today."}
    network_with_people.on("POST /v1/signup", told, headers={"Set-Cookie": "sparewatt_session=abc"}, status=201)
    plain = run_alone("signup", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    assert "No free credits today." in plain.stderr
    quiet = run_alone("signup", "--email", "ann@example.org", "--json", stdin=PASSWORD + "\n")
    assert json.loads(quiet.stdout)["notice"] == "No free credits today."
