from __future__ import annotations

import pytest

from tests.unit.cli.canned import ACCOUNT, CREDITS
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

PASSWORD = "correct horse battery"


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
    assert network.requests[-1].method == "GET"
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
    assert any(request.method == "POST" for request in network.requests) is is_closed


def test_without_the_operator_role_the_error_says_to_ask_an_operator(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/accounts", 403, "permission_denied", "Only operators of this network may do this.")
    result = run("accounts")
    assert result.exit_code == 3
    assert result.stderr.endswith("Ask an operator of this network.\n")


def test_users_close_their_own_account_with_its_password(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS | {"balance_usd": "3"}})
    network.on("POST /v1/me/close", ACCOUNT | {"closed_at": 5.0})
    closed = run("accounts", "close", "--me", stdin=PASSWORD + "\n")
    assert "closed" in closed.stdout
    assert "Your account has $3.00 left" in closed.stderr
    assert network.requests[-1].body == {"password": PASSWORD}
    for wrong in (("close",), ("close", "acc_1", "--me")):
        assert run("accounts", *wrong).exit_code == 2


def test_the_accounts_address_is_shown_and_replaced(network: FakeNetwork, run: Run) -> None:
    held, own = "0x" + "ab" * 20, "0x" + "cd" * 20
    network.on("GET /v1/me/address", {"address": held, "is_held": True})
    assert "the network keeps its key" in run("accounts", "address").stdout
    network.on(f"GET /v1/me/address?address={own}", {"address": held, "is_held": True, "to_sign": "Sparewatt: yes"})
    assert run("accounts", "address", own).stdout.splitlines()[-1] == "Sparewatt: yes"
    network.on("POST /v1/me/address", {"address": own, "is_held": False})
    for wrong in (("0x12",), ("--signature", "0x12")):
        assert run("accounts", "address", *wrong).exit_code == 2
    result = run("accounts", "address", own, "--signature", "0x12")
    assert network.requests[-1].body == {"address": own, "signature": "0x12"}
    assert "your own" in result.stdout
