"""Dialling a gateway that is none, is gone, or is not to be trusted: both libraries tell the owner the same."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.errors import LinkLost
from sparewatt.link import dialer
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.dialer import UpgradeRefused, dial, explain_permanent_error
from sparewatt.link.picows_sockets import PicowsSocket, dial_picows
from sparewatt.link.websocket_library import WebSocketLibrary
from tests.certificates import make_certificate
from tests.contract.link.listeners import RecordingListener
from tests.contract.link.servers import SERVERS, aiohttp_server, picows_server
from tests.waiting import CEILING_S, until

pytestmark = pytest.mark.parametrize("library", ["picows", "aiohttp"])


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """A server that says `answer` to any request; None: it closes the connection."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def failure(url: str, library: WebSocketLibrary) -> Exception:
    async with aiohttp.ClientSession() as session, asyncio.timeout(CEILING_S):
        with pytest.raises((LinkLost, OSError, aiohttp.ClientError)) as failed:
            await dial(f"{url}/link", session=session, library=library)
    return failed.value


@pytest.mark.parametrize("status", [200, 401, 404, 426, 500, 503])
async def test_an_answer_that_is_no_upgrade_is_told_with_its_status(library: WebSocketLibrary, status: int) -> None:
    async with answering(b"HTTP/1.1 %d Hm\r\nContent-Length: 2\r\n\r\nno" % status) as url:
        error = await failure(url, library)
        assert isinstance(error, UpgradeRefused)
        assert f"it answered {status}" in (explain_permanent_error(url, error) or "")


@pytest.mark.parametrize("answer", [None, b"", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/1.1 101"])
async def test_an_answer_that_makes_no_sense_may_be_tried_again(
    library: WebSocketLibrary, answer: bytes | None
) -> None:
    async with answering(answer) as url:
        assert explain_permanent_error(url, await failure(url, library)) is None


async def test_a_redirect_is_refused_by_picows_and_followed_by_aiohttp(library: WebSocketLibrary) -> None:
    """A difference that is known; what a node signs is the name that it dialled, wherever it ends up."""
    async with answering(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n") as there:
        answer = f"HTTP/1.1 301 Moved\r\nLocation: {there}/link\r\nContent-Length: 0\r\n\r\n"
        async with answering(answer.encode()) as url:
            error = await failure(url, library)
    assert isinstance(error, UpgradeRefused)
    assert error.answered_status == (301 if library == "picows" else 404)


async def test_who_dials_and_waits_no_longer_leaves_no_connection_behind(library: WebSocketLibrary) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        with suppress(ConnectionError):
            await reader.read()  # to its end, with no answer
        left.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/link"
    async with aiohttp.ClientSession() as session:
        dial_task = asyncio.create_task(dial(url, session=session, library=library))
        async with asyncio.timeout(CEILING_S):
            await asked.wait()
            dial_task.cancel()
            await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await dial_task
    server.close()


async def test_nobody_there_may_be_tried_again(library: WebSocketLibrary) -> None:
    error = await failure("http://127.0.0.1:1", library)
    assert isinstance(error, OSError)
    assert explain_permanent_error("http://127.0.0.1:1", error) is None


async def test_a_name_that_nobody_has_is_a_mistake(library: WebSocketLibrary) -> None:
    url = "http://no-such-name.invalid"
    assert "cannot be found" in (explain_permanent_error(url, await failure(url, library)) or "")


@pytest.mark.parametrize("server", [picows_server, aiohttp_server])
async def test_a_certificate_that_is_not_trusted_is_told(
    library: WebSocketLibrary, server: Callable[..., Awaitable[None]], tmp_path: Path
) -> None:
    async with server(tls=_server_tls(tmp_path)) as found:  # type: ignore[attr-defined]  # a context manager
        url = f"https://127.0.0.1:{found.port}"
        assert "is not trusted here" in (explain_permanent_error(url, await failure(url, library)) or "")


def _server_tls(folder: Path) -> ssl.SSLContext:
    pair = make_certificate(folder, "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    return tls


async def test_a_link_passes_over_tls(library: WebSocketLibrary, tmp_path: Path) -> None:
    """`library` at the gateway; picows at the node, where it is our own code that makes the connection."""
    async with SERVERS[library](tls=_server_tls(tmp_path)) as server:
        trust = ssl.create_default_context(cafile=tmp_path / "gateway.crt")
        near = await dial_picows(server.url, tls=trust)
        far = await server.next()
        here, there = RecordingListener(near), RecordingListener(far)
        message = bytes(range(256)) * 1000
        for _ in range(10):
            near.send(message)
            far.send(message)
        await until(lambda: len(here.received) == len(there.received) == 10)
        assert here.received == there.received == [message] * 10
        near.close()
        await until(lambda: there.ends)
        await near.wait_closed()


async def test_without_picows_aiohttp_dials(library: WebSocketLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "has_picows", lambda: library == "picows")
    async with SERVERS["aiohttp"]() as server, aiohttp.ClientSession() as session:
        socket = await dial(server.url, session=session)
        assert isinstance(socket, PicowsSocket if library == "picows" else AiohttpSocket)
        socket.close()
        await socket.wait_closed()
