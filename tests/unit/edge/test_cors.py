"""Pages of other sites: what they may call with a key, and what stays out of their reach."""

from __future__ import annotations

import pytest

from sparewatt.edge.cors import allowed_headers, is_open
from tests.unit.gateway.small_gateway import bearer, make_services, running

PAGE = {"origin": "https://page.example"}
STAINLESS = "authorization,content-type,x-stainless-arch,x-stainless-os,x-stainless-retry-count,openai-organization"


async def test_a_browser_may_ask_before_it_calls() -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": STAINLESS}
    async with running(make_services()) as client:
        reply = await client.options("/v1/chat/completions", headers=PAGE | asked)
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "POST" in reply.headers["access-control-allow-methods"]
    allowed = reply.headers["access-control-allow-headers"].split(", ")
    assert set(STAINLESS.split(",")) <= set(allowed)
    assert "access-control-allow-credentials" not in reply.headers


async def test_a_page_may_read_the_reply_and_our_headers() -> None:
    async with running(make_services()) as client:
        reply = await client.get("/v1/models", headers=PAGE | bearer())
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "*"
    exposed = reply.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "openai-processing-ms", "x-sparewatt-node", "x-ratelimit-remaining-tokens"} <= set(exposed)
    assert float(reply.headers["openai-processing-ms"]) >= 0


async def test_a_page_may_read_errors_too() -> None:
    async with running(make_services()) as client:
        reply = await client.post("/v1/chat/completions", headers=PAGE, data=b"{}")
    assert reply.status == 401
    assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/v1/login", "/v1/signup", "/v1/logout", "/v1/password", "/v1/password/reset", "/"])
async def test_what_deals_in_cookies_says_nothing_to_other_sites(path: str) -> None:
    assert not is_open(path)
    async with running(make_services()) as client:
        asked = {"access-control-request-method": "POST"}
        preflight = await client.options(path, headers=PAGE | asked)
        reply = await client.post(path, headers=PAGE, data=b"{}")
    assert preflight.status == 405
    assert "access-control-allow-origin" not in preflight.headers
    assert "access-control-allow-origin" not in reply.headers


async def test_a_reply_to_a_cookie_is_not_for_other_sites() -> None:
    async with running(make_services()) as client:
        reply = await client.get("/v1/models", headers=PAGE | bearer() | {"cookie": "a=b"})
    assert "access-control-allow-origin" not in reply.headers


async def test_options_without_a_page_is_a_method_like_others() -> None:
    async with running(make_services()) as client:
        assert (await client.options("/v1/models")).status == 405


def test_only_names_of_headers_are_repeated() -> None:
    assert allowed_headers("x y, ,ev\r\nil, " + "a" * 100) == allowed_headers("")
    assert allowed_headers("x-mine").endswith(", x-mine")
