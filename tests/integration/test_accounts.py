"""Accounts on a real network: signing up, logging in, passwords, roles, closing; and how often one may knock."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import PASSWORD, Person, browser_of, log_in, send, sign_up


def fresh_email(name: str = "ann") -> str:
    return f"{name}-{secrets.token_hex(6)}@example.org"


@pytest.fixture
def ann(shared_network: Network) -> Person:
    return sign_up(shared_network, fresh_email())


def code_of(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error()["code"]


# signing up


def test_a_new_account_is_a_user_with_a_chain_address_of_its_own(shared_network: Network, ann: Person) -> None:
    me = ask(shared_network, "GET", "/v1/me", key=ann.key).json()
    assert (me["role"], me["account"]["email"]) == ("user", ann.email)
    other = sign_up(shared_network, fresh_email())
    addresses = {
        ask(shared_network, "GET", "/v1/me", key=key).json()["account"]["chain_address"]
        for key in (ann.key, other.key, shared_network.api_key)
    }
    assert len(addresses - {None}) == 3


def test_an_email_signs_up_once_in_any_case(shared_network: Network, ann: Person) -> None:
    body = {"email": f" {ann.email.upper()} ", "password": PASSWORD}
    assert code_of(send(shared_network, "POST", "/v1/signup", body)) == (409, "email_taken")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"email": "ann", "password": PASSWORD},
        {"email": "a b@example.org", "password": PASSWORD},
        {"email": "a\u0000@example.org", "password": PASSWORD},
        {"email": "a@" + "x" * 300, "password": PASSWORD},
        {"email": "new@example.org", "password": "short"},
        {"email": "new@example.org", "password": "x" * 300},
        {"email": "new-address@example.org", "password": "New-Address@example.org"},
        {"email": "new@example.org", "password": PASSWORD, "name": "x" * 101},
        {"email": "new@example.org", "password": PASSWORD, "name": "\u001b[31m"},
        {"email": "new@example.org", "password": PASSWORD, "role": "operator"},
    ],
)
def test_a_senseless_sign_up_is_refused_and_makes_nothing(shared_network: Network, body: dict[str, object]) -> None:
    before = len(ask(shared_network, "GET", "/v1/accounts").json()["data"])
    assert send(shared_network, "POST", "/v1/signup", body).status == 400
    assert len(ask(shared_network, "GET", "/v1/accounts").json()["data"]) == before


# logging in


def test_a_login_is_a_cookie_that_scripts_and_other_sites_do_not_get(shared_network: Network, ann: Person) -> None:
    reply = log_in(shared_network, ann.email.upper())
    cookie = reply.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="))
    assert "Secure" not in cookie  # plain HTTP, on loopback only
    me = send(shared_network, "GET", "/v1/me", headers=browser_of(reply).headers()).json()
    assert me["account"]["id"] == ann.account_id


def test_a_wrong_password_and_an_unknown_email_are_told_alike(shared_network: Network, ann: Person) -> None:
    wrong = log_in(shared_network, ann.email, "wrong horse battery staple")
    unknown = log_in(shared_network, fresh_email("nobody"))
    odd = log_in(shared_network, "\u0000")
    assert code_of(wrong) == code_of(unknown) == code_of(odd) == (401, "login_failed")
    assert wrong.error() == unknown.error() == odd.error()


def test_a_cookie_alone_changes_nothing(shared_network: Network, ann: Person) -> None:
    cookie = {"cookie": ann.browser.cookie}
    assert send(shared_network, "GET", "/v1/keys", headers=cookie).status == 200
    assert code_of(send(shared_network, "POST", "/v1/keys", {}, cookie)) == (403, "csrf_refused")
    other = sign_up(shared_network, fresh_email()).browser
    foreign = {**cookie, "x-sparewatt-csrf": other.csrf}
    assert code_of(send(shared_network, "POST", "/v1/keys", {}, foreign)) == (403, "csrf_refused")
    assert send(shared_network, "POST", "/v1/keys", {}, ann.browser.headers()).status == 201


@pytest.mark.parametrize("path", ["/v1/login", "/v1/login/link", "/v1/signup", "/v1/keys", "/v1/password/reset"])
def test_a_page_of_another_site_is_refused(shared_network: Network, ann: Person, path: str) -> None:
    evil = {**ann.browser.headers(), "origin": "https://evil.example"}
    assert code_of(send(shared_network, "POST", path, {}, evil)) == (403, "csrf_refused")
    own = {**ann.browser.headers(), "origin": shared_network.root_url}
    assert send(shared_network, "POST", path, {}, own).status != 403


def test_a_logout_ends_the_cookie_and_no_other(shared_network: Network, ann: Person) -> None:
    second = browser_of(log_in(shared_network, ann.email))
    assert send(shared_network, "POST", "/v1/logout", {}, second.headers()).json() == {"logged_out": True}
    assert code_of(send(shared_network, "GET", "/v1/me", headers=second.headers())) == (401, "session_ended")
    assert send(shared_network, "GET", "/v1/me", headers=ann.browser.headers()).status == 200


def test_a_link_opens_the_page_once_as_whoever_made_it(shared_network: Network, ann: Person) -> None:
    link = ask(shared_network, "POST", "/v1/login/links", {}, key=ann.key).json()
    page, _, token = link["url"].partition("#")
    assert page == f"{shared_network.root_url}/login"
    entered = send(shared_network, "POST", "/v1/login/link", {"token": token})
    assert browser_of(entered).account_id == ann.account_id
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert send(shared_network, "GET", "/v1/me", headers=browser_of(entered).headers()).status == 200
    again = send(shared_network, "POST", "/v1/login/link", {"token": token})
    assert code_of(again) == (401, "login_failed")


def test_a_link_of_a_closed_account_opens_nothing(shared_network: Network, ann: Person) -> None:
    link = ask(shared_network, "POST", "/v1/login/links", {}, key=ann.key).json()
    assert ask(shared_network, "POST", f"/v1/accounts/{ann.account_id}/close", {}).status == 200
    token = link["url"].partition("#")[2]
    assert send(shared_network, "POST", "/v1/login/link", {"token": token}).status == 401


def test_a_made_up_cookie_is_nobody(shared_network: Network) -> None:
    for token in ("", "0" * 64, "\xff"):
        headers = {"cookie": f"sparewatt_session={token}"}
        assert send(shared_network, "GET", "/v1/me", headers=headers).status == 401


# passwords


def test_a_changed_password_logs_every_other_browser_out(shared_network: Network, ann: Person) -> None:
    other = browser_of(log_in(shared_network, ann.email))
    body = {"current_password": "a wrong password", "password": "another horse battery"}
    assert code_of(send(shared_network, "POST", "/v1/password", body, ann.browser.headers())) == (401, "login_failed")
    body["current_password"] = PASSWORD
    assert send(shared_network, "POST", "/v1/password", body, ann.browser.headers()).status == 200
    assert send(shared_network, "GET", "/v1/me", headers=ann.browser.headers()).status == 200
    assert send(shared_network, "GET", "/v1/me", headers=other.headers()).status == 401
    assert log_in(shared_network, ann.email).status == 401
    assert log_in(shared_network, ann.email, "another horse battery").status == 200
    assert ask(shared_network, "GET", "/v1/me", key=ann.key).status == 200


def test_an_operator_s_reset_token_works_once(shared_network: Network, ann: Person) -> None:
    token = ask(shared_network, "POST", f"/v1/accounts/{ann.email}/reset-password", {}).json()["token"]
    short = {"token": token, "password": "short"}
    assert send(shared_network, "POST", "/v1/password/reset", short).status == 400
    body = {"token": token, "password": "a brand new password"}
    assert send(shared_network, "POST", "/v1/password/reset", body).status == 200
    assert code_of(send(shared_network, "POST", "/v1/password/reset", body)) == (401, "login_failed")
    assert send(shared_network, "GET", "/v1/me", headers=ann.browser.headers()).status == 401
    assert log_in(shared_network, ann.email, "a brand new password").status == 200


def test_an_account_without_a_login_has_no_password_to_reset(shared_network: Network) -> None:
    assert ask(shared_network, "POST", "/v1/accounts/acc_network/reset-password", {}).status == 403
    body = {"current_password": "x", "password": "y" * 20}
    assert ask(shared_network, "POST", "/v1/password", body).status == 403


# roles and closing


def test_whoever_makes_a_join_token_is_an_owner_from_then_on(shared_network: Network, ann: Person) -> None:
    assert ask(shared_network, "POST", "/v1/join-tokens", {}, key=ann.key).status == 201
    assert ask(shared_network, "GET", "/v1/me", key=ann.key).json()["role"] == "owner"
    assert send(shared_network, "GET", "/v1/me", headers=ann.browser.headers()).json()["role"] == "owner"


def test_a_role_is_given_and_taken_and_reaches_keys_and_cookies_at_once(shared_network: Network, ann: Person) -> None:
    assert ask(shared_network, "GET", "/v1/accounts", key=ann.key).status == 403
    assert ask(shared_network, "PATCH", f"/v1/accounts/{ann.account_id}", {"role": "operator"}).status == 200
    assert ask(shared_network, "GET", "/v1/accounts", key=ann.key).status == 200
    assert send(shared_network, "GET", "/v1/accounts", headers=ann.browser.headers()).status == 200
    assert ask(shared_network, "PATCH", f"/v1/accounts/{ann.account_id}", {"role": "user"}).status == 200
    assert ask(shared_network, "GET", "/v1/accounts", key=ann.key).status == 403
    assert ask(shared_network, "PATCH", f"/v1/accounts/{ann.account_id}", {"role": "king"}).status == 400


def test_a_closed_account_s_keys_and_cookies_stop_and_it_cannot_log_in(shared_network: Network, ann: Person) -> None:
    first = ask(shared_network, "POST", f"/v1/accounts/{ann.account_id}/close", {}).json()
    assert ask(shared_network, "GET", "/v1/me", key=ann.key).status == 401
    assert send(shared_network, "GET", "/v1/me", headers=ann.browser.headers()).status == 401
    assert "closed" in log_in(shared_network, ann.email).error()["message"]
    assert ask(shared_network, "POST", f"/v1/accounts/{ann.account_id}/close", {}).json() == first


def test_nobody_closes_or_demotes_the_network_itself(shared_network: Network) -> None:
    assert ask(shared_network, "POST", "/v1/accounts/acc_network/close", {}).status == 403
    assert ask(shared_network, "PATCH", "/v1/accounts/acc_network", {"role": "user"}).status == 403
    assert ask(shared_network, "POST", "/v1/accounts/acc_none/close", {}).status == 404
    assert ask(shared_network, "GET", "/v1/accounts/%00").status == 404


def test_accounts_are_listed_page_by_page(shared_network: Network, ann: Person) -> None:
    rows = ask(shared_network, "GET", "/v1/accounts").json()["data"]
    assert rows[0]["id"] == "acc_network"
    behind = ask(shared_network, "GET", f"/v1/accounts?after={rows[1]['id']}").json()["data"]
    assert behind == rows[2:]
    assert ask(shared_network, "GET", "/v1/accounts?after=acc_none").status == 404


# keys with limits


@pytest.mark.parametrize(
    "body",
    [
        {"budget": {"usd": "0", "period": "day"}},
        {"budget": {"usd": "-1", "period": "day"}},
        {"budget": {"usd": "0.0000000001", "period": "day"}},
        {"budget": {"nano": 0.5, "period": "day"}},
        {"budget": {"nano": -5, "period": "day"}},
        {"budget": {"nano": 5}},
        {"budget": {"usd": "5", "nano": 5, "period": "day"}},
        {"budget": {"usd": "5", "period": "fortnight"}},
        {"budget": {"usd": "NaN", "period": "day"}},
        {"expires_in_s": 0},
        {"expires_in_s": 1e12},
        {"expires_at": 1.0},
        {"expires_at": 1e300},
        {"requests_per_min": 0},
        {"tokens_per_min": -1},
        {"tokens_per_min": 1.5},
        {"policy": 5},
        {"policy": {"x": "y" * 9000}},
        {"name": "x" * 101},
        {"budget": {"usd": "5", "period": "day"}, "scopes": ["admin"]},
    ],
)
def test_a_senseless_limit_makes_no_key_and_changes_none(
    shared_network: Network, ann: Person, body: dict[str, object]
) -> None:
    key_id = ask(shared_network, "POST", "/v1/keys", {"name": "app"}, key=ann.key).json()["id"]
    before = ask(shared_network, "GET", "/v1/keys", key=ann.key).json()
    assert ask(shared_network, "POST", "/v1/keys", body, key=ann.key).status == 400
    assert ask(shared_network, "PATCH", f"/v1/keys/{key_id}", body, key=ann.key).status == 400
    assert ask(shared_network, "GET", "/v1/keys", key=ann.key).json() == before


def test_limits_are_kept_changed_and_taken_away(shared_network: Network, ann: Person) -> None:
    wanted = {
        "budget": {"usd": 5, "period": "week"},
        "policy": {"region": "EU"},
        "requests_per_min": 7,
        "expires_in_s": 60,
    }
    made = ask(shared_network, "POST", "/v1/keys", wanted, key=ann.key).json()
    assert made["budget"] == {"nano": 5_000_000_000, "usd": "5", "period": "week"}
    assert (made["policy"], made["requests_per_min"]) == ({"region": "EU"}, 7)
    path = f"/v1/keys/{made['id']}"
    changed = ask(shared_network, "PATCH", path, {"budget": None, "name": "other"}, key=ann.key).json()
    assert (changed["budget"], changed["name"], changed["policy"]) == (None, "other", {"region": "EU"})
    assert ask(shared_network, "GET", "/v1/me", key=made["key"]).json()["key"] == changed
    ask(shared_network, "DELETE", path, key=ann.key)
    assert ask(shared_network, "PATCH", path, {"name": "again"}, key=ann.key).status == 400


def test_an_expired_key_is_told_so(shared_network: Network, ann: Person) -> None:
    made = ask(shared_network, "POST", "/v1/keys", {"expires_in_s": 0.2}, key=ann.key).json()
    wait_until(lambda: ask(shared_network, "GET", "/v1/me", key=made["key"]).status == 401, "the key expired")
    assert "expired on" in ask(shared_network, "GET", "/v1/me", key=made["key"]).error()["message"]


# a network that was started as a stranger would


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """No nodes, every default."""
    flags = ("--engine=deterministic", "--nodes=0")
    with start_network(tmp_path_factory.mktemp("small"), *flags, server=server) as network:
        yield network


def test_two_hundred_sign_ups_from_one_address_make_a_few_accounts(small: Network) -> None:
    statuses = []
    for _ in range(200):
        reply = send(small, "POST", "/v1/signup", {"email": fresh_email(), "password": PASSWORD})
        statuses.append(reply.status)
    assert statuses.count(201) == 20
    assert statuses.count(429) == 180
    assert 0 < int(reply.headers["retry-after"]) <= 120
    assert reply.error()["code"] == "rate_limit_exceeded"
    assert len(ask(small, "GET", "/v1/accounts").json()["data"]) == 22


def test_guessing_a_password_is_slowed_down(small: Network) -> None:
    email = fresh_email()
    statuses = [log_in(small, email, f"guess number {n}").status for n in range(15)]
    assert statuses == [401] * 10 + [429] * 5


def test_ten_wrong_passwords_lock_out_an_address_and_not_the_owner(shared_network: Network, ann: Person) -> None:
    attacker, owner = "127.0.0.66", "127.0.0.7"
    guesses = [log_in(shared_network, ann.email, f"guess number {n}", source=attacker).status for n in range(12)]
    assert guesses == [401] * 10 + [429] * 2
    locked = log_in(shared_network, ann.email, source=attacker)
    assert code_of(locked) == (429, "rate_limit_exceeded")  # also with the right password: nothing is learned
    assert "tried from here" in locked.error()["message"]
    assert log_in(shared_network, ann.email, source=owner).status == 200
    with_session = send(shared_network, "GET", "/v1/me", headers=ann.browser.headers(), source=attacker)
    assert with_session.status == 200


def test_guesses_from_everywhere_stop_strangers_and_not_who_was_logged_in_before(
    shared_network: Network, ann: Person
) -> None:
    """The cheapest lock-out: ten addresses with ten guesses each."""
    for guess in range(100):
        assert log_in(shared_network, ann.email, "wrong password", source=f"127.0.1.{guess % 10 + 1}").status == 401
    stranger = log_in(shared_network, ann.email, source="127.0.2.1")
    assert code_of(stranger) == (429, "rate_limit_exceeded")
    assert "reset the password" in stranger.error()["message"]
    same_browser = log_in(shared_network, ann.email, source="127.0.2.2", headers={"cookie": ann.browser.cookie})
    assert same_browser.status == 200
    token = ask(shared_network, "POST", f"/v1/accounts/{ann.email}/reset-password").json()["token"]
    reset = send(shared_network, "POST", "/v1/password/reset", {"token": token, "password": PASSWORD})
    assert reset.status == 200
    proved = {"cookie": reset.headers["x-test-cookies"]}
    assert log_in(shared_network, ann.email, source="127.0.2.3", headers=proved).status == 200


def test_a_network_without_mail_says_whom_to_ask(small: Network) -> None:
    reply = send(small, "POST", "/v1/password/reset-request", {"email": "ann@example.org"})
    assert reply.status == 404
    assert "operator" in reply.error()["message"]


def test_the_network_s_secret_is_private(small: Network) -> None:
    path = small.data / "gateway" / "secret"
    assert path.stat().st_mode & 0o777 == 0o600


def test_anybody_closes_their_own_account_with_its_password(shared_network: Network, ann: Person) -> None:
    wrong = ask(shared_network, "POST", "/v1/me/close", {"password": "not-it-at-all"}, key=ann.key)
    assert wrong.status == 401
    assert ask(shared_network, "GET", "/v1/me", key=ann.key).status == 200
    assert ask(shared_network, "POST", "/v1/me/close", {"password": PASSWORD}, key=ann.key).json()["closed_at"]
    assert ask(shared_network, "GET", "/v1/me", key=ann.key).status == 401
    assert "closed" in log_in(shared_network, ann.email).error()["message"]


def test_an_operator_is_closed_by_another(shared_network: Network) -> None:
    assert ask(shared_network, "POST", "/v1/me/close", {"password": PASSWORD}).status == 403
