"""The dashboard as it is served: a strict Content-Security-Policy, immutable files, a plain page until it is built."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sparewatt.api.dashboard.pages import Bundle
from sparewatt.gateway import routes
from sparewatt.gateway.routes import make_app
from tests.unit.gateway.small_gateway import make_services, running
from tests.unit.inference.nodes import a_table

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def build(folder: Path, text: str = "one") -> None:
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "assets" / "app-1a2b.js").write_text("let x = 1;")
    (folder / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(b"let x = 1;"))
    (folder / "index.html").write_text(f"<!doctype html><title>{text}</title>")


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(routes, "Bundle", lambda: Bundle(tmp_path / "dist"))
    return tmp_path / "dist"


async def test_a_plain_page_is_served_until_the_dashboard_is_built(dist: Path) -> None:
    services = make_services(a_table(1))
    async with running(services, make_app(services)) as client:
        plain = await client.get("/")
        assert plain.status == 200
        assert 'http-equiv="refresh"' in await plain.text()
        build(dist)
        page = await client.get("/")
        assert "<title>one</title>" in await page.text()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/matching",
        "/matching/match_abc",
        "/nodes/0xabc",
        "/models",
        "/market/0x12",
        "/validators",
        "/login?next=/x",
    ],
)
async def test_every_page_is_the_same_document_under_a_strict_policy(dist: Path, path: str) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        reply = await client.get(path, headers=BROWSER)
        policy = reply.headers["content-security-policy"]
        assert reply.status == 200
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/nothing", "/modelsx", "/v1/nothing", "/assets/../index.html", "/assets/none.js"])
async def test_an_unknown_page_or_file_is_404(dist: Path, path: str) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        assert (await client.get(path, headers=BROWSER)).status == 404


@pytest.mark.parametrize("path", ["/nowhere", "/modelsx", "/a/b/c"])
async def test_an_unknown_address_is_a_page_to_browsers_and_an_error_to_programs(dist: Path, path: str) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        page = await client.get(path, headers=BROWSER)
        assert (page.status, page.content_type) == (404, "text/html")
        assert "<title>one</title>" in await page.text()
        assert "script-src 'self';" in page.headers["content-security-policy"]
        for error in (await client.get(path), await client.post(path, headers=BROWSER)):
            assert (error.status, (await error.json())["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/assets/none.js"])
async def test_an_unknown_api_path_or_file_is_an_error_object_to_browsers_too(dist: Path, path: str) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        reply = await client.get(path, headers=BROWSER)
        assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")


async def test_a_client_that_left_v1_out_gets_an_error_that_says_so(dist: Path) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        reply = await client.get("/models", headers={"accept": "application/json"})
        assert reply.status == 404
        assert "/v1" in (await reply.json())["error"]["message"]


async def test_files_are_immutable_and_gzipped_for_clients_that_accept_it(dist: Path) -> None:
    build(dist)
    services = make_services()
    async with running(services, make_app(services)) as client:
        zipped = await client.get("/assets/app-1a2b.js", headers={"accept-encoding": "gzip"})
        plain = await client.get("/assets/app-1a2b.js", headers={"accept-encoding": "identity"})
        assert "immutable" in zipped.headers["cache-control"]
        assert zipped.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert await zipped.text() == await plain.text() == "let x = 1;"
        assert plain.content_type == "text/javascript"
        assert (await client.get("/assets/app-1a2b.js.gz")).status == 404
