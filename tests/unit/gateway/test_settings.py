"""What settings decide: the session cookie, the gateway's addresses and secret, whether a proxy is trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import SystemRng
from sparewatt.edge.auth import RequestContext, clear_cookie, cookie_name, set_cookie
from sparewatt.edge.settings import EdgeSettings
from sparewatt.gateway.addresses import origin_of, own_origins, own_root_url
from sparewatt.gateway.secret import network_secret
from sparewatt.gateway.settings import GatewaySettings


def settings(**more: object) -> GatewaySettings:
    return GatewaySettings(database_url="postgresql://ann:hidden@nowhere", **more)  # type: ignore[arg-type]


PUBLIC = settings(public_url="https://Gateway.example/")


# the cookie


def test_over_tls_the_cookie_is_tied_to_this_host() -> None:
    reply = web.Response()
    set_cookie(reply, "token", PUBLIC.edge)
    (cookie,) = reply.cookies.values()
    assert cookie.key == cookie_name(PUBLIC.edge) == "__Host-sparewatt_session"
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, True, "Strict", "/")
    assert not cookie["domain"]


def test_on_loopback_the_cookie_works_without_tls_and_is_http_only() -> None:
    reply = web.Response()
    set_cookie(reply, "token", settings().edge)
    (cookie,) = reply.cookies.values()
    assert cookie.key == "sparewatt_session"
    assert (bool(cookie["secure"]), cookie["httponly"], cookie["samesite"]) == (False, True, "Strict")


def test_a_cleared_cookie_has_the_name_of_the_one_that_was_set() -> None:
    reply = web.Response()
    clear_cookie(reply, PUBLIC.edge)
    (cookie,) = reply.cookies.values()
    assert (cookie.key, cookie.value, cookie["secure"]) == ("__Host-sparewatt_session", "", True)


# its own addresses


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Gateway.example/", "https://gateway.example"),
        ("https://gateway.example:443/x", "https://gateway.example"),
        ("http://127.0.0.1:8484", "http://127.0.0.1:8484"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_written_as_browsers_do(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_pages_come_from_loopback_or_from_the_public_address() -> None:
    local = {"http://127.0.0.1:8484", "http://localhost:8484"}
    assert own_origins(settings(), port=8484) == local
    assert own_origins(PUBLIC, port=8484) == local | {"https://gateway.example"}
    assert own_root_url(settings(), port=8484) == "http://127.0.0.1:8484"
    assert own_root_url(PUBLIC, port=8484) == "https://Gateway.example"
    assert own_root_url(settings(host="::1"), port=8484) == "http://[::1]:8484"


# settings


def test_signing_up_is_open_on_this_machine_and_by_invitation_in_public() -> None:
    assert settings().signup_mode == "open"
    assert PUBLIC.signup_mode == "invite"
    assert settings(public_url="https://x", signup="open").signup_mode == "open"
    assert settings(signup="closed").signup_mode == "closed"


def test_settings_show_no_secret() -> None:
    shown = repr(settings(secret="ab" * 32, smtp_url="smtp://user:hidden@mail.example"))
    assert "hidden" not in shown
    assert "abab" not in shown


# where a request comes from


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("10.0.0.1, 198.51.100.7", "198.51.100.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("198.51.100.7, 10.0.0.9", "198.51.100.7"),
        ("192.168.0.4", "192.168.0.4"),
        ("198.51.100.7, nonsense", "10.0.0.2"),
        ("nonsense", "10.0.0.2"),
        ("", "10.0.0.2"),
    ],
)
def test_only_our_own_proxy_is_trusted_about_addresses(header: str, address: str) -> None:
    def address_from(peer: str, ours: EdgeSettings) -> str:
        headers = {"x-forwarded-for": header}
        return RequestContext(
            settings=ours, id="req_1", method="GET", path="/", headers=headers, peer=peer, began_s=0.0
        ).address

    direct, proxied = settings().edge, settings(behind_proxy=True).edge
    assert address_from("10.0.0.2", direct) == "10.0.0.2"
    assert address_from("10.0.0.2", proxied) == address
    assert address_from("203.0.113.5", proxied) == "203.0.113.5"


# the secret


def test_a_secret_is_made_once_and_private(tmp_path: Path) -> None:
    data = tmp_path / "gateway"
    made = network_secret(settings(data=data), SystemRng())
    assert len(made) == 32
    assert network_secret(settings(data=data), SystemRng()) == made
    assert (data / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in data.iterdir()] == ["secret"]


def test_a_given_secret_wins_and_leaves_no_file(tmp_path: Path) -> None:
    assert network_secret(settings(data=tmp_path, secret="ab" * 32), SystemRng()) == b"\xab" * 32
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "mode", "message"), [("ab", 0o600, "damaged"), ("ab" * 32, 0o644, "chmod 600")])
def test_a_damaged_or_public_secret_stops_the_start(tmp_path: Path, text: str, mode: int, message: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(StartupError, match=message):
        network_secret(settings(data=tmp_path), SystemRng())
    assert path.read_text() == text
