"""Behind a proxy: who is believed, and who is sent to the front door."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from sparewatt.core.errors import StartupError
from sparewatt.edge.middleware import error_boundary
from sparewatt.edge.proxies import client_address, is_trusted, read_networks, refuse_bypass
from sparewatt.edge.settings import EdgeSettings
from tests.unit.gateway.small_gateway import make_services

FAR = "203.0.113.5"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "::ffff:192.168.0.1", "fd00::7"])
def test_what_is_near_is_trusted(address: str) -> None:
    assert is_trusted(address, None)


@pytest.mark.parametrize("address", [FAR, "2001:db8::1", "", "nonsense", "::ffff:203.0.113.5"])
def test_what_is_far_is_not(address: str) -> None:
    assert not is_trusted(address, None)


def test_the_operator_may_say_where_the_proxy_is() -> None:
    assert is_trusted("203.0.113.5", "203.0.113.0/24, 2001:db8::/32")
    assert not is_trusted("127.0.0.1", "203.0.113.0/24")
    with pytest.raises(StartupError, match="--trusted-proxies"):
        read_networks("my proxy")


def test_a_client_cannot_put_words_into_the_proxys_mouth() -> None:
    assert client_address("10.0.0.2", f"1.1.1.1, {FAR}", trusted=None) == FAR
    assert client_address("10.0.0.2", f"{FAR}, 10.0.0.8, 10.0.0.9", trusted=None) == FAR
    assert client_address(FAR, "1.1.1.1", trusted=None) == FAR


async def _hello(_: web.Request) -> web.StreamResponse:
    return web.Response(text="hello")


def _client(settings: EdgeSettings) -> TestClient[web.Request, web.Application]:
    services = make_services()
    boundary = error_boundary(settings, services.counter, clock=services.clock, rng=services.rng)
    app = web.Application(middlewares=[boundary, *refuse_bypass(settings)])
    app.add_routes([web.get("/v1/models", _hello), web.get("/healthz", _hello)])
    return TestClient(TestServer(app))


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/models", {}, 200),
        ("/v1/models", {"x-forwarded-proto": "https"}, 200),
        ("/v1/models", {"x-forwarded-proto": "http"}, 403),
        ("/healthz", {"x-forwarded-proto": "http"}, 200),
    ],
)
async def test_what_came_to_the_proxy_in_the_clear_is_refused(path: str, headers: dict[str, str], status: int) -> None:
    async with _client(EdgeSettings(behind_proxy=True, public_url="https://gpu.example")) as client:
        reply = await client.get(path, headers=headers)
        assert reply.status == status
        assert status == 200 or "https://gpu.example" in await reply.text()


async def test_a_client_that_bypasses_the_proxy_is_referred_to_it() -> None:
    settings = EdgeSettings(behind_proxy=True, trusted_proxies="10.9.9.9", public_url="https://gpu.example")
    async with _client(settings) as client:
        assert (await client.get("/v1/models")).status == 403
        assert (await client.get("/healthz")).status == 200


def test_without_a_proxy_nothing_stands_in_between() -> None:
    assert refuse_bypass(EdgeSettings()) == []
