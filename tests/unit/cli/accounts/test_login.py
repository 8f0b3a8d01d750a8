from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sparewatt.cli.context import remember_network, resolve_network
from sparewatt.cli.credentials import Login, credentials_file, forget_login, read_logins, save_login
from sparewatt.cli.errors import CliError
from tests.unit.cli.canned import ACCOUNT, CREDITS, api_key
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import KEY, FakeNetwork

PASSWORD = "correct horse battery"


@pytest.fixture
def network_with_people(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    """Lets everybody in; only its address is set."""
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
def test_whoever_enters_has_a_key_for_this_machine(network_with_people: FakeNetwork, command: str) -> None:
    result = run_alone(command, "--email", "ann@example.org", stdin=PASSWORD + "\n")
    assert result.exit_code == 0, result.output
    entered, made, left = network_with_people.seen
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
    assert network_with_people.seen[-1].headers["Authorization"] == "Bearer sk-sw-machine"
    assert json.loads(run_alone("logout", "--json").stdout)["revoked"] is True
    assert network_with_people.seen[-1].path == "/v1/keys/key_1"
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
    assert network_with_people.seen == []


def test_there_is_no_option_for_a_password() -> None:
    for command in ("login", "signup"):
        assert "--password" not in run_alone(command, "--help").stdout


# which key goes where


def a_login(base_url: str, key: str = "sk-sw-login") -> Login:
    return Login(base_url, key, "key_1", "acc_1", "ann@example.org")


def test_options_win_over_environment_and_that_over_the_login() -> None:
    save_login(a_login("https://a.example/v1"))
    save_login(a_login("https://b.example/v1", "sk-sw-b"))
    assert resolve_network(environ=None).base_url == "https://b.example/v1"
    assert resolve_network(base_url="https://a.example").api_key == "sk-sw-login"
    env = {"SPAREWATT_BASE_URL": "https://a.example/v1", "SPAREWATT_API_KEY": "sk-sw-env"}
    assert resolve_network(environ=env).api_key == "sk-sw-env"
    assert resolve_network(base_url="https://a.example", api_key="sk-sw-flag", environ=env).api_key == "sk-sw-flag"


def test_a_login_s_key_goes_to_no_other_address() -> None:
    save_login(a_login("https://a.example/v1"))
    with pytest.raises(CliError, match="no API key for https"):
        resolve_network(base_url="https://c.example")


def test_forgetting_one_network_keeps_the_others() -> None:
    save_login(a_login("https://a.example/v1"))
    save_login(a_login("https://b.example/v1"))
    forget_login("https://b.example/v1")
    assert [login.base_url for login in read_logins()] == ["https://a.example/v1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"logins": [{}]}', '{"logins": [{"base_url": 1}]}'])
def test_a_damaged_file_is_said_and_a_new_login_mends_it(text: str) -> None:
    path = credentials_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CliError, match="damaged"):
        read_logins()
    save_login(a_login("https://a.example/v1"))
    assert len(read_logins()) == 1


# whoami, passwords, accounts


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
    assert network.seen[0].body == {"current_password": "old password", "password": "new password"}
    assert network.seen[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_password_is_reset_with_a_token_from_stdin(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/password/reset", {"changed": True})
    assert run("password", "reset", stdin="reset-sw-1\nnew password\n").exit_code == 0
    assert network.seen[0].body == {"token": "reset-sw-1", "password": "new password"}
    network.on("POST /v1/password/reset-request", {"requested": True}, status=202)
    assert run("password", "request", "--email", "a@b").exit_code == 0


def test_an_operator_lists_shows_and_changes_accounts(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/accounts", {"data": [ACCOUNT]})
    network.on("GET /v1/accounts?after=acc_0", {"data": []})
    network.on("GET /v1/accounts/ann@example.org", ACCOUNT)
    network.on("PATCH /v1/accounts/acc_1", ACCOUNT | {"role": "operator"})
    network.on("GET /v1/credits?account=acc_1", {"data": CREDITS | {"balance_usd": "3"}})
    network.on("POST /v1/accounts/acc_1/close", ACCOUNT | {"closed_at": 5.0})
    network.on("POST /v1/accounts/acc_1/reset-password", {"token": "reset-sw-1", "expires_at": 5.0}, status=201)
    network.on("POST /v1/invites", {"token": "invite-sw-1", "expires_at": 5.0}, status=201)
    assert "ann@example.org" in run("accounts").stdout
    assert run("accounts", "list", "-q", "--after", "acc_0").stdout == ""
    assert "acc_1" in run("accounts", "show", "ann@example.org").stdout
    assert "operator" in run("accounts", "role", "acc_1", "operator").stdout
    kept = run("accounts", "close", "acc_1")
    assert (kept.exit_code, "--yes" in kept.stderr) == (2, True)
    assert network.seen[-1].method == "GET"
    closed = run("accounts", "close", "acc_1", "--yes")
    assert "closed" in closed.stdout
    assert "acc_1 has $3.00 left" in closed.stderr
    assert run("accounts", "reset-password", "acc_1").stdout == "reset-sw-1\n"
    assert run("accounts", "invite").stdout == "invite-sw-1\n"
    assert run("accounts", "role", "acc_1", "king").exit_code == 2


@pytest.mark.parametrize(("typed", "is_closed"), [(["n\n"], False), (["y\n"], True), ([], False), (None, True)])
def test_closing_asks_on_a_terminal(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str] | None, *, is_closed: bool
) -> None:
    """None means `--yes`."""
    network.on("GET /v1/credits?account=acc_1", {"data": CREDITS | {"balance_usd": "3"}})
    network.on("POST /v1/accounts/acc_1/close", ACCOUNT | {"closed_at": 5.0})
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True, raising=False)
    result = run("accounts", "close", "acc_1", *(["--yes"] if typed is None else []), stdin="".join(typed or []))
    assert (result.exit_code == 0) is is_closed
    assert any(seen.method == "POST" for seen in network.seen) is is_closed


def test_who_is_no_operator_is_told_whom_to_ask(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/accounts", 403, "permission_denied", "Only operators of this network may do this.")
    result = run("accounts")
    assert result.exit_code == 3
    assert result.stderr.endswith("Ask an operator of this network.\n")


def test_a_new_account_hears_what_it_did_not_get(network_with_people: FakeNetwork) -> None:
    told = {"account": ACCOUNT, "csrf_token": "csrf-1", "notice": "No free credits today."}
    network_with_people.on("POST /v1/signup", told, headers={"Set-Cookie": "sparewatt_session=abc"}, status=201)
    plain = run_alone("signup", "--email", "ann@example.org", stdin=PASSWORD + "\n")
    assert "No free credits today." in plain.stderr
    quiet = run_alone("signup", "--email", "ann@example.org", "--json", stdin=PASSWORD + "\n")
    assert json.loads(quiet.stdout)["notice"] == "No free credits today."


def test_anybody_closes_their_own_account_with_its_password(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS | {"balance_usd": "3"}})
    network.on("POST /v1/me/close", ACCOUNT | {"closed_at": 5.0})
    closed = run("accounts", "close", "--me", stdin=PASSWORD + "\n")
    assert "closed" in closed.stdout
    assert "Your account has $3.00 left" in closed.stderr
    assert network.seen[-1].body == {"password": PASSWORD}
    for wrong in (("close",), ("close", "acc_1", "--me")):
        assert run("accounts", *wrong).exit_code == 2
