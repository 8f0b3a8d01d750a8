"""URLs of strangers: where they lead, how much comes back, and how long it takes are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.machine.stranger_http import (
    PRIVATE_TOO,
    PUBLIC_ONLY,
    CheckedResolver,
    DialRules,
    NoAnswer,
    StrangerClient,
    resolve_by_system,
)

LOCAL_TOO = DialRules(allows_loopback=True)
METADATA = "http://169.254.169.254/latest/meta-data"


@pytest.fixture
async def hits() -> list[str]:
    return []


def reply_to(path: str, body: bytes) -> web.Response:
    match path:
        case "/echo":
            return web.Response(body=body)
        case "/moved":
            return web.Response(status=302, headers={"location": "/echo"})
        case "/metadata":
            return web.Response(status=307, headers={"location": METADATA})
        case "/huge":
            return web.Response(body=b"x" * 4_000_000)
        case "/bomb":
            return web.Response(body=b"\x1f\x8b" + bytes(100), headers={"content-encoding": "gzip"})
    return web.Response(status=404)


async def endless(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(b"x" * 100_000)


@pytest.fixture
async def server(hits: list[str]) -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.StreamResponse:
        hits.append(request.path)
        if request.path == "/endless":
            return await endless(request)
        if request.path == "/never":
            await asyncio.sleep(60)
        return reply_to(request.path, await request.read())

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    started = TestServer(app)
    await started.start_server()
    yield started
    await started.close()


@pytest.fixture
async def client() -> AsyncIterator[StrangerClient]:
    made = StrangerClient(LOCAL_TOO)
    yield made
    await made.close()


async def get(client: StrangerClient, server: TestServer, path: str, *, within_s: float = 5.0) -> bytes:
    return await client.get(str(server.make_url("/")), path, within_s=within_s, bytes_max=1_000_000)


async def test_a_body_is_posted_and_the_answer_read(client: StrangerClient, server: TestServer) -> None:
    url = str(server.make_url("/"))
    assert await client.post(url, "/echo", b"hello", within_s=5.0, bytes_max=100) == b"hello"
    assert await get(client, server, "/echo") == b""


@pytest.mark.parametrize("path", ["/moved", "/metadata"])
async def test_a_redirect_is_not_followed(
    client: StrangerClient, server: TestServer, hits: list[str], path: str
) -> None:
    with pytest.raises(NoAnswer, match="it answered 30"):
        await get(client, server, path)
    assert hits == [path]


@pytest.mark.parametrize("path", ["/huge", "/endless"])
async def test_a_body_is_read_up_to_its_bound(client: StrangerClient, server: TestServer, path: str) -> None:
    with pytest.raises(NoAnswer, match="over 1,000,000 bytes"):
        await get(client, server, path)


async def test_a_compressed_body_is_not_unpacked(client: StrangerClient, server: TestServer) -> None:
    assert await get(client, server, "/bomb") == b"\x1f\x8b" + bytes(100)


async def test_one_that_never_answers_is_left_in_time(client: StrangerClient, server: TestServer) -> None:
    with pytest.raises(NoAnswer, match="in time"):
        await get(client, server, "/never", within_s=0.05)


async def test_one_that_is_not_there_is_away(client: StrangerClient) -> None:
    with pytest.raises(NoAnswer, match="cannot be reached"):
        await client.get("http://127.0.0.1:1", "/good", within_s=5.0, bytes_max=1_000)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b", "x" * 250, "%zz"])
async def test_a_name_of_no_sense_is_no_answer(host: str) -> None:
    """Whatever a validator registered: it must not end whoever reads it."""
    client = StrangerClient(PUBLIC_ONLY)
    with pytest.raises(NoAnswer):
        await client.get(f"https://{host}", "/good", within_s=5.0, bytes_max=1_000)
    await client.close()


PUBLIC = ["https://v.example", "https://v.example:8443/", "https://93.184.215.14/base"]
LOOPBACK = ["http://127.0.0.1:9001", "http://localhost:9001", "https://127.0.0.1:9001", "http://[::1]:9001"]
PRIVATE = [
    "https://192.168.0.1/",
    "https://10.0.0.7",
    "https://169.254.169.254/latest/meta-data",
    "https://[fe80::1]/",
    "https://[fd00::1]",
    "https://[::ffff:192.168.0.1]/",
]
NEVER = [
    "",
    "nonsense",
    "ftp://v.example",
    "file:///etc/passwd",
    "https://",
    "https://user:secret@v.example",
    "https://v.example/?to=router",
    "https://v.example/#x",
    "https://v.example:port",
    "https://v.example:99999",
    "https://[::1",
    "https://v.exa mple",
    "https://" + "a" * 400,
    "http://v.example",
    "http://93.184.215.14",
    "http://169.254.169.254",
    "http://10.0.0.1",
]


@pytest.mark.parametrize("rules", [PUBLIC_ONLY, LOCAL_TOO, PRIVATE_TOO])
def test_public_urls_with_tls_are_dialled_and_nonsense_and_plain_http_never(rules: DialRules) -> None:
    assert {url: rules.refusal_of(url) for url in PUBLIC} == dict.fromkeys(PUBLIC)
    assert [url for url in NEVER if rules.refusal_of(url) is None] == []


def test_this_machine_is_dialled_where_the_caller_allows_it() -> None:
    assert [url for url in LOOPBACK if PUBLIC_ONLY.refusal_of(url) is None] == []
    assert {url: LOCAL_TOO.refusal_of(url) for url in LOOPBACK} == dict.fromkeys(LOOPBACK)


def test_a_private_network_is_dialled_only_by_a_network_that_is_one() -> None:
    for rules in (PUBLIC_ONLY, LOCAL_TOO):
        assert [url for url in PRIVATE if rules.refusal_of(url) is None] == []
    assert {url: PRIVATE_TOO.refusal_of(url) for url in PRIVATE} == dict.fromkeys(PRIVATE)


@pytest.mark.parametrize("url", ["https://169.254.169.254", "http://127.0.0.1:1", "https://[fe80::1]"])
async def test_a_refused_url_is_not_dialled(url: str) -> None:
    with pytest.raises(NoAnswer, match="it is not dialled"):
        await StrangerClient(PUBLIC_ONLY).get(url, "/good", within_s=1.0, bytes_max=1_000)


@pytest.mark.parametrize("found", [["169.254.169.254"], ["93.184.216.34", "10.0.0.1"], ["127.0.0.1"], []])
async def test_a_name_that_leads_to_a_private_address_is_not_dialled(found: list[str]) -> None:
    asked = []

    async def resolve(host: str, _: int) -> Sequence[str]:
        asked.append(host)
        return found

    client = StrangerClient(PUBLIC_ONLY, resolve=resolve)
    with pytest.raises(NoAnswer, match="cannot be reached"):
        await client.get("https://v.example", "/good", within_s=5.0, bytes_max=1_000)
    await client.close()
    assert asked == ["v.example"]


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    addresses = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]

    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("v.example", 443)
        return addresses

    found = await CheckedResolver(PUBLIC_ONLY, resolve=resolve).resolve("v.example", 443)
    assert [each["host"] for each in found] == addresses


async def test_an_address_that_the_caller_refuses_is_not_dialled() -> None:
    rules = DialRules(allows_loopback=False, may_connect=lambda address, port: (address, port) == ("1.2.3.4", 443))

    async def resolve(host: str, _: int) -> Sequence[str]:
        return [host.removeprefix("v")]

    resolver = CheckedResolver(rules, resolve=resolve)
    assert len(await resolver.resolve("v1.2.3.4", 443)) == 1
    for host, port in (("v1.2.3.4", 80), ("v1.2.3.5", 443)):
        with pytest.raises(OSError, match="no address that may be dialled"):
            await resolver.resolve(host, port)


async def test_localhost_is_this_machine_whatever_resolvers_say() -> None:
    (found,) = await CheckedResolver(LOCAL_TOO).resolve("localhost", 80)
    assert found["host"] == "127.0.0.1"
    with pytest.raises(OSError, match="no address that may be dialled"):
        await CheckedResolver(PUBLIC_ONLY).resolve("localhost", 80)


async def test_names_are_resolved_by_the_system() -> None:
    assert "127.0.0.1" in await resolve_by_system("localhost", 80)
