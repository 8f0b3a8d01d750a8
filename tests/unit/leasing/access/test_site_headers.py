from __future__ import annotations

import pytest

from sparewatt.leasing.access.site_headers import Headers, reply_headers, request_headers


def passed(received: Headers) -> Headers:
    found = request_headers(received, address="192.0.2.7", scheme="https")
    return [each for each in found if not each[0].startswith("X-Forwarded")]


def test_a_plain_request_passes_and_says_where_it_came_from() -> None:
    received = [
        ("Host", "a.localhost:1"),
        ("Accept", "*/*"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Real-IP", "10.0.0.1"),
    ]
    assert request_headers(received, address="192.0.2.7", scheme="https") == [
        ("Host", "a.localhost:1"),
        ("Accept", "*/*"),
        ("X-Forwarded-For", "192.0.2.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "a.localhost:1"),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer sk-sw-0123456789abcdef"),
        ("authorization", "bearer  SK-SW-0123"),
        ("Authorization", "Bearer join-sw-0123"),
        ("Cookie", "sparewatt_session=secret"),
        ("Cookie", "__Host-sparewatt_session=secret; __Host-sparewatt_session_device=d"),
        ("X-Sparewatt-CSRF", "token"),
        ("Connection", "keep-alive"),
        ("Upgrade", "websocket"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "5"),
        ("Expect", "100-continue"),
    ],
)
def test_what_is_ours_or_of_this_connection_does_not_reach_a_site(name: str, value: str) -> None:
    assert passed([(name, value)]) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Basic dGVuYW50OnNlY3JldA=="),
        ("Authorization", "Bearer the-tenants-own"),
        ("Cookie", "theirs=1; mine=2"),
    ],
)
def test_what_is_the_tenants_own_does(name: str, value: str) -> None:
    assert passed([(name, value)]) == [(name, value)]


def test_of_several_cookies_only_ours_are_left_out() -> None:
    assert passed([("Cookie", "a=1; sparewatt_session=x;b=2")]) == [("Cookie", "a=1; b=2")]


def test_a_site_sets_cookies_for_itself_alone_and_none_of_ours() -> None:
    received = [
        ("Set-Cookie", "a=1; Path=/; Domain=localhost; HttpOnly"),
        ("Set-Cookie", "b=2;domain=.example.org"),
        ("Set-Cookie", "sparewatt_session=evil; Path=/"),
        ("set-cookie", " __Host-sparewatt_session=evil; Secure"),
    ]
    assert reply_headers(received) == [("Set-Cookie", "a=1; Path=/; HttpOnly"), ("Set-Cookie", "b=2")]


def test_a_site_says_nothing_about_other_origins_or_this_connection() -> None:
    names = ["Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Connection", "Transfer-Encoding", "Keep-Alive"]
    assert reply_headers([*((name, "x") for name in names), ("Content-Type", "text/html")]) == [
        ("Content-Type", "text/html")
    ]
