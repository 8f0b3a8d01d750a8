"""People of a real network: signed up as a browser does it, with a cookie and, for what a test asks, a key."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from tests.integration.asking import Reply, ask, connection_to
from tests.integration.networks import Network

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Browser:
    """What a browser remembers of a login."""

    cookie: str
    csrf: str
    account_id: str

    def headers(self) -> dict[str, str]:
        return {"cookie": self.cookie, "x-sparewatt-csrf": self.csrf}


@dataclass(frozen=True)
class Person:
    email: str
    account_id: str
    key: str
    """With every scope."""
    browser: Browser


def send(
    network: Network,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    *,
    source: str | None = None,
) -> Reply:
    """One request with just these headers. `source`: the address of this machine that it comes from."""
    data = json.dumps(body).encode() if body is not None else None
    with connection_to(network, source=source) as connection:
        connection.request(method, path, body=data, headers=headers or {})
        reply = connection.getresponse()
        return Reply(reply.status, _lower(reply), reply.read())


def _lower(reply: http.client.HTTPResponse) -> dict[str, str]:
    """`set-cookie` is the first of several; `x-test-cookies` has all of them as a browser would send them."""
    headers = {name.lower(): value for name, value in reply.getheaders()}
    cookies = reply.headers.get_all("set-cookie", [])
    return headers | ({"set-cookie": cookies[0], "x-test-cookies": _named(cookies)} if cookies else {})


def _named(cookies: list[str]) -> str:
    return "; ".join(cookie.partition(";")[0] for cookie in cookies)


def browser_of(reply: Reply) -> Browser:
    told: dict[str, Any] = reply.json()
    return Browser(reply.headers["x-test-cookies"], told["csrf_token"], told["account"]["id"])


def sign_up(network: Network, email: str, password: str = PASSWORD) -> Person:
    reply = send(network, "POST", "/v1/signup", {"email": email, "password": password})
    assert reply.status == 201, reply.body
    browser = browser_of(reply)
    scopes = ["inference", "lease", "node", "admin"]
    made = send(network, "POST", "/v1/keys", {"name": "test", "scopes": scopes}, browser.headers())
    assert made.status == 201, made.body
    return Person(email, browser.account_id, made.json()["key"], browser)


def give_credits(network: Network, person: Person, usd: str = "1") -> Person:
    """By the operator: only the first few that sign up from one address get any by themselves."""
    reply = ask(network, "POST", "/v1/credits/grant", {"account": person.account_id, "usd": usd})
    assert reply.status in {200, 201}, reply.body
    return person


def log_in(
    network: Network,
    email: str,
    password: str = PASSWORD,
    *,
    source: str | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    return send(network, "POST", "/v1/login", {"email": email, "password": password}, headers, source=source)
