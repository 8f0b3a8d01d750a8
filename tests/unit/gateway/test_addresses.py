"""Where a gateway may listen, and under which names it is known."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.edge.server import CLIENT_UNSENT_BYTES_MAX, bind, listen
from sparewatt.gateway.addresses import (
    own_hosts,
    own_origins,
    own_root_url,
    own_site_url,
    refuse_unlinkable,
    refuse_unsafe,
)
from sparewatt.gateway.settings import GatewaySettings

EVERYWHERE = "0.0.0.0"  # noqa: S104 (what is tested)
TLS: dict[str, Any] = {"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")}
NAMED: dict[str, Any] = {"public_url": "https://gpu.example"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"host": "127.8.8.8"},
        {"host": "::1", "development": True},
        {"public_url": "https://gpu.example:8443"},
        {"public_url": "http://localhost:8484"},
        {"host": EVERYWHERE, **TLS, **NAMED},
        {"host": "::", **TLS, **NAMED},
        {"host": "192.0.2.7", **TLS},
        {"host": "10.0.0.4", "behind_proxy": True, **NAMED},
    ],
)
def test_what_nobody_else_can_read_may_start(given: dict[str, Any]) -> None:
    refuse_unsafe(GatewaySettings(**given))


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"host": EVERYWHERE}, "--tls-cert"),
        ({"host": "192.168.1.5", **NAMED}, "--behind-proxy"),
        ({"host": "localhost"}, "an IP address"),
        ({"host": ""}, "an IP address"),
        ({"host": EVERYWHERE, **TLS}, "--public-url"),
        ({"host": "10.0.0.4", "behind_proxy": True}, "--public-url"),
        ({"host": "192.0.2.7", "development": True, **TLS}, "--development"),
        ({"tls_cert": Path("cert.pem")}, "both"),
        ({"tls_key": Path("key.pem")}, "both"),
        ({"public_url": "http://gpu.example"}, "https://"),
        ({"public_url": "gpu.example"}, "is no address"),
        ({"public_url": "https://a:b@gpu.example"}, "is no address"),
        ({"public_url": "https://gpu.example:0"}, "is no address"),
        ({"public_url": "https://gpu.example:port"}, "is no address"),
    ],
)
def test_what_others_could_read_may_not(given: dict[str, Any], advice: str) -> None:
    with pytest.raises(StartupError, match=advice):
        refuse_unsafe(GatewaySettings(**given))


def test_a_gateway_answers_to_its_address_localhost_and_its_public_name() -> None:
    plain, public = GatewaySettings(), GatewaySettings(public_url="https://gpu.example")
    assert own_hosts(plain, port=8484) == {"127.0.0.1:8484", "localhost:8484"}
    assert own_hosts(public, port=8484) > own_hosts(plain, port=8484)


def test_with_tls_it_calls_itself_https() -> None:
    settings = GatewaySettings(host="192.0.2.7", **TLS)
    assert own_root_url(settings, port=443) == "https://192.0.2.7:443"
    assert own_origins(settings, port=443) == {"https://192.0.2.7"}


def test_strangers_need_an_invitation_where_they_can_reach_it() -> None:
    assert GatewaySettings().signup_mode == "open"
    assert GatewaySettings(**NAMED).signup_mode == "invite"
    assert GatewaySettings(host="192.0.2.7", **TLS).signup_mode == "invite"
    assert GatewaySettings(host="192.0.2.7", signup="open", **TLS).signup_mode == "open"


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this system's kernel has no such bound")
def test_the_kernel_takes_little_for_a_client_that_does_not_read() -> None:
    with listen("127.0.0.1", 0) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listener.getsockname())
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            accepted.setblocking(False)
            taken = 0
            with contextlib.suppress(BlockingIOError):
                while taken < 100 * CLIENT_UNSENT_BYTES_MAX:
                    taken += accepted.send(bytes(4096))
    assert taken < 3 * CLIENT_UNSENT_BYTES_MAX


def test_a_process_answers_at_its_link_port_under_every_name() -> None:
    public = GatewaySettings(public_url="https://gpu.example")
    assert own_hosts(public, port=8484, link_port=9001) == {
        *("127.0.0.1:8484", "localhost:8484", "gpu.example:443"),
        *("127.0.0.1:9001", "localhost:9001", "gpu.example:9001"),
    }


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"processes": 4},
        {"processes": 2, "link_port": 9000},
        {"processes": 2, "link_port": 65534},
        {"processes": 2, "link_port": 8485, "host": EVERYWHERE, **TLS, **NAMED},
        {"link_port": 8484},
    ],
)
def test_processes_that_nodes_can_reach(given: dict[str, Any]) -> None:
    refuse_unlinkable(GatewaySettings(**given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"processes": 2, "host": EVERYWHERE, **TLS, **NAMED}, "needs --link-port"),
        ({"processes": 2, "behind_proxy": True, **NAMED}, "needs --link-port"),
        ({"processes": 3, "link_port": 8482}, "next to port 8484"),
        ({"processes": 2, "link_port": 65535}, "leaves no 2 ports"),
    ],
)
def test_processes_that_nodes_could_not_reach_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        refuse_unlinkable(GatewaySettings(**given))


def test_a_port_is_shared_only_by_sockets_that_ask_for_it() -> None:
    with bind("127.0.0.1", 0, shared=True) as first:
        port = first.getsockname()[1]
        bind("127.0.0.1", port, shared=True).close()
        first.listen()
        with pytest.raises(StartupError, match="Choose another --port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://abc.localhost:8484/"),
        ({"host": "::1"}, "http://abc.localhost:8484/"),
        (NAMED, None),
        ({"host": "192.0.2.7", **TLS}, None),
        ({**NAMED, "sites_host": "Leases.Example."}, "https://abc.leases.example/"),
        (
            {"public_url": "https://gpu.example:8443", "sites_host": "leases.example"},
            "https://abc.leases.example:8443/",
        ),
        ({"host": "192.0.2.7", "sites_host": "leases.example", **TLS}, "https://abc.leases.example:8484/"),
    ],
)
def test_a_lease_has_a_public_address_where_there_are_names_for_it(given: dict[str, Any], url: str | None) -> None:
    settings = GatewaySettings(**given)
    refuse_unsafe(settings)
    assert own_site_url(settings, "abc", port=8484) == url


@pytest.mark.parametrize("sites_host", ["gpu.example", "example", "no name", "a/b", ".", "-"])
def test_pages_of_tenants_do_not_share_the_dashboards_host(sites_host: str) -> None:
    with pytest.raises(StartupError, match="--sites-host"):
        refuse_unsafe(GatewaySettings(**NAMED, sites_host=sites_host))


def test_a_tenants_origin_is_none_of_ours() -> None:
    assert "http://abc.localhost:8484" not in own_origins(GatewaySettings(), port=8484)
