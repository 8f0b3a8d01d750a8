from __future__ import annotations

import time

import pytest

from sparewatt.cli.money.credits import format_time_left
from tests.unit.cli.canned import CREDITS, TREASURY
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

MOVED = {"id": "x", "account": "acc_ann", "posted": True, "credits": CREDITS}


def test_the_balance_is_exact(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS})
    result = run("credits")
    assert result.exit_code == 0
    for said in ("$2.99997", "$0.99998 (spent first)", "$1.99999", "$0.25"):
        assert said in result.stdout


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (30 * 86_400, "in 30 days"),
        (48 * 3600, "in 2 days"),
        (47 * 3600 + 5, "in 47 hours"),
        (3600, "in 1 hour"),
        (3599, "within the hour"),
        (-5, "within the hour"),
    ],
)
def test_what_expires_soon_is_given_in_hours(seconds: float, said: str) -> None:
    assert format_time_left(seconds) == said


def test_an_empty_balance_names_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS | {"balance_usd": "0"}})
    assert "sparewatt credits deposit" in run("credits", "balance").stderr


def test_a_grant_sends_all_its_options(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/credits/grant", MOVED, status=201)
    result = run("credits", "grant", "ann@example.com", "5", "--days", "7", "--id", "welcome")
    assert result.exit_code == 0
    assert network.requests[0].body == {
        "usd": "5",
        "id": "welcome",
        "account": "ann@example.com",
        "days": 7.0,
        "memo": None,
    }
    assert "Granted $5.00. acc_ann now has $3.00." in result.stdout


def test_a_deposit_that_was_done_before_says_so(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/credits/deposit", MOVED | {"posted": False})
    assert "nothing changed" in run("credits", "deposit", "5", "--id", "x").stdout


def test_a_negative_amount_is_refused_by_the_network_in_words(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/credits/deposit", 400, "invalid_amount", "'-1' is not an amount in dollars.")
    result = run("credits", "deposit", "-1")
    assert result.exit_code == 1
    assert "not an amount" in result.stderr
    assert network.requests[0].body == {"usd": "-1", "adapter": "test"}


def test_a_refused_grant_names_the_scope_it_needs(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/credits/grant", 403, "permission_denied")
    result = run("credits", "grant", "acc_ann", "1")
    assert result.exit_code == 3
    assert "'admin'" in result.stderr


def test_an_empty_treasury_says_how_to_fund_it(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/treasury", {"data": TREASURY | {"balance_usd": "0"}})
    assert "sparewatt treasury fund" in run("treasury").stderr


ON_CHAIN = {
    "address": "0x" + "ab" * 20,
    "is_held": True,
    **{f"{name}_{unit}": "0" if unit == "usd" else 0 for name in ("bonds", "owed", "held") for unit in ("usd", "nano")},
    "escrow_usd": "5",
    "escrow_nano": 5 * 10**9,
    "wallet_usd": "0.5",
    "wallet_nano": 5 * 10**8,
    "exits_usd": "2",
    "exits_nano": 2 * 10**9,
}


def test_what_stands_on_the_chain_is_shown_if_there_is_any(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS | {"chain": ON_CHAIN}})
    shown = run("credits").stdout
    for said in ("$5.00 deposits in escrow", f"$0.50 at {ON_CHAIN['address']}", "$2.00 of your credits"):
        assert said in shown
    assert "In bonds" not in shown


@pytest.mark.parametrize(
    ("after_s", "said"),
    [
        (None, "on its way to the contract"),
        (3 * 86_400 + 60, "to be paid in 3 days"),
        (600, "to be paid within the hour"),
        (-5, "being paid now"),
    ],
)
def test_a_withdrawal_shows_when_it_is_paid(network: FakeNetwork, run: Run, after_s: int | None, said: str) -> None:
    ready_at = None if after_s is None else time.time() + after_s
    network.on("GET /v1/credits", {"data": CREDITS | {"chain": ON_CHAIN | {"exits_ready_at": ready_at}}})
    assert f"$2.00 of your credits, {said}" in run("credits").stdout


def test_what_is_being_withdrawn_is_not_shown_as_reserved_for_requests(network: FakeNetwork, run: Run) -> None:
    reserved = {"reserved_usd": "2.25", "reserved_nano": 2_250_000_000}
    network.on("GET /v1/credits", {"data": CREDITS | reserved | {"chain": ON_CHAIN}})
    assert "$0.25 of it, by gateways" in run("credits").stdout


@pytest.mark.parametrize("words", [("withdraw", "1"), ("collect",), ("deposit", "1", "--by", "chain")])
def test_what_waits_for_the_chain_says_so_first(network: FakeNetwork, run: Run, words: tuple[str, ...]) -> None:
    network.fail(f"POST /v1/credits/{words[0]}", 503, "chain_unavailable")
    assert run("credits", *words).stderr.splitlines()[0].endswith("…")
    assert "…" not in run("credits", *words, "--json").stderr


def test_tokens_are_sent_to_an_address_only(network: FakeNetwork, run: Run) -> None:
    result = run("credits", "withdraw", "1", "--to", "0x12")
    assert (result.exit_code, network.requests) == (2, [])
    assert "'0x12' is not an address" in result.stderr


def test_a_withdrawal_says_where_and_when(network: FakeNetwork, run: Run) -> None:
    receiver = "0x" + "cd" * 20
    reply = {"id": "w", "usd": "4", "nano": 4 * 10**9, "ready_at": 0.0, "to": receiver}
    network.on("POST /v1/credits/withdraw", reply, status=202)
    result = run("credits", "withdraw", "4", "--to", receiver, "--id", "w")
    assert result.exit_code == 0
    assert network.requests[0].body == {"usd": "4", "id": "w", "to": receiver}
    assert f"$4.00 will be paid to {receiver} within the hour." in result.stdout
    assert "That is all" not in result.stderr
    assert "That is all that you deposited" in run("credits", "withdraw", "50").stderr


def test_a_collection_says_whether_there_was_anything(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/credits/collect", {"id": "c", "tx": None})
    assert "nothing to bring back" in run("credits", "collect").stderr
    network.on("POST /v1/credits/collect", {"id": "c", "tx": "0x1"})
    assert "Brought back" in run("credits", "collect").stderr
