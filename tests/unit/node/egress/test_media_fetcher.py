"""The agent fetches pictures only where its owner allows it; a private host is never even connected to."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sparewatt.core.errors import BadRequest, MediaNotFetched, RemoteUrlRefused
from sparewatt.machine.spawn import free_port
from sparewatt.node.egress import media_fetcher as module
from sparewatt.node.egress.media_fetcher import PICTURE_BYTES_MAX, MediaFetcher, is_own, may_connect
from sparewatt.protocol.link.frames import JobPath

CHAT: JobPath = "/v1/chat/completions"
NAME = "images.example.org"
PIXEL = b"\x89PNG a pixel"
DATA = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"


class PictureHost:
    """A real HTTP server on loopback that counts who comes."""

    def __init__(self) -> None:
        self.port = free_port()
        self.requests: list[web.BaseRequest] = []
        self.reply = web.Response(body=PIXEL, content_type="image/png")
        self.stalls = False

    @property
    def host(self) -> str:
        return f"{NAME}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/a.png"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.stalls:
            await asyncio.Event().wait()
        return self.reply


@pytest.fixture
async def pictures() -> AsyncIterator[PictureHost]:
    host = PictureHost()
    async with _serving(host.answer, host.port):
        yield host


@asynccontextmanager
async def _serving(
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], port: int
) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


class Names:
    """A name server that gives its answers one after the other, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def chat(*urls: str) -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": ["look", *parts]}], "seed": 5}).encode()


def loopback(*answers: Sequence[str], allowed: str) -> MediaFetcher:
    """A fetcher that takes loopback for public."""
    names = Names(*(answers or (["127.0.0.1"],)))
    return MediaFetcher([allowed], resolve=names.resolve, may_connect=lambda address, _: address == "127.0.0.1")


async def test_a_picture_of_an_allowed_host_becomes_data(pictures: PictureHost) -> None:
    body = await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url, DATA, pictures.url))
    assert body == msgspec.json.encode(json.loads(chat(DATA, DATA, DATA)))
    (request,) = pictures.requests
    assert request.headers["host"] == pictures.host
    assert request.headers["accept-encoding"] == "identity"
    assert not {"authorization", "cookie"} & {name.lower() for name in request.headers}


async def test_a_request_without_addresses_is_passed_on_byte_for_byte() -> None:
    for body in (chat(DATA), b'{ "messages":[{"role":"user","content":"http://10.0.0.1/"}]}'):
        assert await MediaFetcher().inlined(CHAT, body) is body


@pytest.mark.parametrize(
    "url", ["http://other.example.org/", "http://images.example.org:8080/", "file:///etc/passwd", "http://127.0.0.1/"]
)
async def test_an_address_that_the_owner_did_not_allow_is_refused_and_not_even_resolved(url: str) -> None:
    names = Names(["127.0.0.1"])
    with pytest.raises(RemoteUrlRefused):
        await MediaFetcher([NAME], resolve=names.resolve).inlined(CHAT, chat(url))
    assert names.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["2606:2800:220:1::1", "10.0.0.1"],
        [],
    ],
)
async def test_a_host_with_a_private_address_is_never_connected_to(
    pictures: PictureHost, addresses: Sequence[str]
) -> None:
    fetcher = MediaFetcher([pictures.host], resolve=Names(addresses).resolve)
    with pytest.raises(MediaNotFetched, match="no public address"):
        await fetcher.inlined(CHAT, chat(pictures.url))
    assert pictures.requests == []


async def test_a_name_that_changes_its_address_after_the_check_gains_nothing(pictures: PictureHost) -> None:
    """DNS rebinding: the second answer would be the private one, and is never asked for."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    checked: list[str] = []

    def note(address: str, _: int) -> bool:
        checked.append(address)
        return True

    fetcher = MediaFetcher([pictures.host], resolve=names.resolve, may_connect=note)
    await fetcher.inlined(CHAT, chat(pictures.url))
    assert (names.asked, checked) == ([NAME], ["127.0.0.1"])
    (request,) = pictures.requests
    assert request.transport is None or request.transport.get_extra_info("sockname")[0] == "127.0.0.1"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(pictures: PictureHost, status: int) -> None:
    pictures.reply = web.Response(status=status, headers={"location": f"http://127.0.0.1:{pictures.port}/private"})
    with pytest.raises(MediaNotFetched, match=str(status)):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))
    assert [request.path for request in pictures.requests] == ["/a.png"]


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
async def test_a_picture_over_the_limit_is_refused(pictures: PictureHost, framing: str) -> None:
    pictures.reply = web.Response(body=b"x" * (PICTURE_BYTES_MAX + 1), content_type="image/png")
    if framing == "chunked":
        pictures.reply.enable_chunked_encoding()
    with pytest.raises(MediaNotFetched, match="8 MiB"):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/octet-stream", "video/mp4"])
async def test_what_is_no_picture_is_refused(pictures: PictureHost, kind: str) -> None:
    pictures.reply = web.Response(body=b"<html>", content_type=kind)
    with pytest.raises(MediaNotFetched, match="no PNG"):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))


@pytest.mark.parametrize("status", [204, 206, 401, 404, 500])
async def test_only_a_plain_success_is_a_picture(pictures: PictureHost, status: int) -> None:
    pictures.reply = web.Response(status=status, content_type="image/png")
    with pytest.raises(MediaNotFetched):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))


async def test_compressed_content_is_refused(pictures: PictureHost) -> None:
    pictures.reply = web.Response(body=b"bomb", content_type="image/png", headers={"content-encoding": "gzip"})
    with pytest.raises(MediaNotFetched):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))


async def test_a_host_that_does_not_answer_is_given_up(pictures: PictureHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_S", 0.05)
    pictures.stalls = True
    with pytest.raises(MediaNotFetched, match="could not be fetched"):
        await loopback(allowed=pictures.host).inlined(CHAT, chat(pictures.url))


async def test_a_name_that_nobody_knows_is_not_fetched(pictures: PictureHost) -> None:
    async def fail(host: str, port: int) -> Sequence[str]:
        raise OSError("unknown name")

    fetcher = MediaFetcher([pictures.host], resolve=fail)
    with pytest.raises(MediaNotFetched):
        await fetcher.inlined(CHAT, chat(pictures.url))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"model": "m"}),
        (CHAT, {"model": "m", "Messages": []}),
        (CHAT, {"model": "m", "messages": [], "MESSAGES": []}),
        (CHAT, {"model": "m", "messages": [{"role": "user", "content": 5}]}),
        (CHAT, {"model": "m", "messages": [], "mm_processor_kwargs": {"images": "http://10.0.0.1/"}}),
        ("/v1/completions", {"model": "m", "prompt": {"prompt_string": "a", "multimodal_data": ["http://10.0.0.1/"]}}),
        ("/v1/completions", {"model": "m", "prompt": "a", "messages": []}),
        ("/v1/embeddings", {"model": "m", "input": [{"image": "http://10.0.0.1/"}]}),
        ("/v1/embeddings", {"model": "m", "input": "a", "messages": [{"role": "user", "content": "b"}]}),
    ],
)
async def test_a_hostile_gateway_finds_no_other_place_for_an_address(path: JobPath, body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        await MediaFetcher().inlined(path, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", {"model": "m", "prompt": ["a"]}), ("/v1/embeddings", {"model": "m", "input": [1, 2]})],
)
async def test_prompts_and_texts_pass(path: JobPath, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    assert await MediaFetcher().inlined(path, raw) is raw


async def test_a_body_nested_without_end_is_refused() -> None:
    with pytest.raises(BadRequest):
        await MediaFetcher().inlined(CHAT, b'{"messages":' + b"[" * 200_000)


def test_this_machine_is_no_public_host() -> None:
    assert is_own("127.0.0.1", 80)
    assert not is_own("no address", 80)
    assert not may_connect("127.0.0.1", 80)
