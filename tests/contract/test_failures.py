"""Model servers that are down, lie, or die: what a backend says of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.inference.dispatch.failure_reasons import ErrorCode, classify
from sparewatt.machine.spawn import free_port
from sparewatt.node.backends.backend import BackendUnreachable, BadBackendReply
from sparewatt.node.backends.discovery import find_local_servers
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.testing import Fault
from tests.contract.chats import CEILING_S, ENDLESS, PATH, ask_whole, chat, first_content, until_running
from tests.contract.servers import CONTEXT, DETERMINISTIC, Kind, Server, every_dialect, every_kind, running_server

MODELS = b'{"object":"list","data":[{"id":"a-model"}]}'
STREAM = chat("Tell me a long story.", stream=True, **ENDLESS)


def http(body: bytes, *, head: str = "HTTP/1.1 200 OK", length: int | None = None, more: str = "") -> bytes:
    length = len(body) if length is None else length
    return f"{head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n".encode() + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NONSENSE = {
    "no HTTP": b"220 mail.example ESMTP\r\n\r\n",
    "a web page": http(b"<!doctype html><title>It works!</title>"),
    "nothing": http(b""),
    "JSON of another shape": http(b'{"data":[{"name":"a-model"}]}'),
    "a model without a name": http(b'{"data":[{"id":""}]}'),
    "JSON without an end": http(b'{"data":[' * 10_000),
    "JSON nested without an end": http(b'{"data":' + b"[" * 100_000),
    "text that is not UTF-8": http(b'{"data":[{"id":"\xff"}]}'),
    "more models than a node may have": http(b'{"data":[' + b",".join([b'{"id":"m"}'] * 10_000) + b"]}"),
    "more bytes than are read": http(b" " * (5 << 20) + MODELS),
    "a body that is cut": http(MODELS, length=1000),
    "a chunk that is cut": CHUNKED + b"40\r\n" + MODELS,
    "a chunk of no size": CHUNKED + b"many\r\n" + MODELS,
    "gzip that is none": http(MODELS, more="Content-Encoding: gzip\r\n"),
    "an error": http(MODELS, head="HTTP/1.1 500 Internal Server Error"),
    "a way to elsewhere": http(MODELS, head="HTTP/1.1 302 Found", more="Location: /v1/other\r\n"),
}


@asynccontextmanager
async def answering(pieces: Sequence[bytes], session: aiohttp.ClientSession) -> AsyncIterator[OpenAIBackend]:
    """A server that answers everything with these bytes, piece by piece, and hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)  # a gap, so that the pieces also arrive as pieces
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield OpenAIBackend(f"http://127.0.0.1:{port}", session)
    finally:
        server.close()
        await server.wait_closed()


async def read_all(backend: OpenAIBackend, body: bytes) -> tuple[int, bytes]:
    async with asyncio.timeout(CEILING_S), backend.post(PATH, body) as reply:
        return reply.status, b"".join([chunk async for chunk in reply.chunks])


class TestNobodyThere:
    @pytest.fixture
    def backend(self, session: aiohttp.ClientSession) -> OpenAIBackend:
        return OpenAIBackend(f"http://127.0.0.1:{free_port()}", session)

    async def test_its_models_cannot_be_asked_for(self, backend: OpenAIBackend) -> None:
        with pytest.raises(BackendUnreachable):
            await backend.models()

    async def test_a_job_does_not_begin(self, backend: OpenAIBackend) -> None:
        with pytest.raises(BackendUnreachable):
            await read_all(backend, STREAM)

    async def test_it_cannot_be_measured(self, backend: OpenAIBackend) -> None:
        with pytest.raises(BackendUnreachable):
            await SpeedMeter(backend=backend, clock=SystemClock(), rng=SystemRng()).quick("a-model", at_once=2)

    async def test_its_load_is_not_known(self, backend: OpenAIBackend) -> None:
        assert await backend.load() is None
        assert await backend.slots() is None

    async def test_one_that_hangs_up_at_once_is_not_there_either(self, session: aiohttp.ClientSession) -> None:
        async with answering([], session) as backend:
            with pytest.raises(BackendUnreachable):
                await backend.models()
            with pytest.raises(BackendUnreachable):
                await read_all(backend, STREAM)


class TestNonsense:
    async def test_a_plain_answer_is_understood(self, session: aiohttp.ClientSession) -> None:
        async with answering([http(MODELS)], session) as backend:
            (model,) = await backend.models()

        assert (model.id, model.state, model.context_length, model.weights_bytes) == ("a-model", "warm", None, 0)

    async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(self, session: aiohttp.ClientSession) -> None:
        whole = http(MODELS)
        async with answering([whole[:-20], whole[-20:-5], whole[-5:]], session) as backend:
            assert [model.id for model in await backend.models()] == ["a-model"]

    @pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
    async def test_a_list_of_models_that_makes_no_sense(self, session: aiohttp.ClientSession, answer: bytes) -> None:
        async with answering([answer], session) as backend:
            with pytest.raises(BadBackendReply):
                await backend.models()
            assert await backend.load() is None
            assert await backend.slots() is None

    @pytest.mark.parametrize(
        "name", ["no HTTP", "a body that is cut", "a chunk that is cut", "a chunk of no size", "gzip that is none"]
    )
    async def test_a_reply_that_makes_no_sense(self, session: aiohttp.ClientSession, name: str) -> None:
        async with answering([NONSENSE[name]], session) as backend:
            with pytest.raises(BadBackendReply):
                await read_all(backend, STREAM)

    async def test_a_job_does_not_follow_a_redirect(self, session: aiohttp.ClientSession) -> None:
        async with answering([NONSENSE["a way to elsewhere"]], session) as backend:
            status, _ = await read_all(backend, STREAM)

        assert status == 302

    async def test_a_server_that_answers_nonsense_is_not_found(self, session: aiohttp.ClientSession) -> None:
        async with answering([NONSENSE["no HTTP"]], session) as mail, answering([http(MODELS)], session) as models:
            ports = {"mail": int(mail._base.rsplit(":", 1)[1]), "models": int(models._base.rsplit(":", 1)[1])}
            (found,) = await find_local_servers(session, ports=ports, env={})

        assert (found.url, found.kind) == (models._base, "openai")


@pytest.mark.parametrize("server", [pytest.param(DETERMINISTIC, id=DETERMINISTIC.name)], indirect=True)
class TestFaults:
    """Faults that the deterministic engine is given."""

    async def give(self, server: Server, session: aiohttp.ClientSession, fault: Fault) -> None:
        described = {"kind": fault.kind, "after_tokens": fault.after_tokens, "status": fault.status}
        async with session.post(f"{server.url}/engine/faults", json=described) as reply:
            assert reply.status == 200

    async def test_a_reply_without_a_head(
        self, server: Server, session: aiohttp.ClientSession, backend: OpenAIBackend
    ) -> None:
        await self.give(server, session, Fault("drop_before_head"))

        with pytest.raises(BackendUnreachable):
            await read_all(backend, STREAM)

    @pytest.mark.parametrize("after_tokens", [0, 3])
    async def test_a_stream_that_is_cut(
        self, server: Server, session: aiohttp.ClientSession, backend: OpenAIBackend, after_tokens: int
    ) -> None:
        await self.give(server, session, Fault("drop_after_tokens", after_tokens=after_tokens))

        with pytest.raises(BadBackendReply):
            await read_all(backend, STREAM)

    async def test_a_status_is_passed_on_with_its_message(
        self, server: Server, session: aiohttp.ClientSession, backend: OpenAIBackend
    ) -> None:
        await self.give(server, session, Fault("status", status=503))

        status, refused = await ask_whole(backend, STREAM)
        assert status == 503
        assert refused["error"]["message"]

    @pytest.mark.parametrize("kind", ["status", "garbage", "drop_after_tokens", "error_event"])
    async def test_a_measurement_that_goes_wrong_is_no_measurement(
        self, server: Server, session: aiohttp.ClientSession, backend: OpenAIBackend, kind: str
    ) -> None:
        await self.give(server, session, Fault(kind, after_tokens=2))  # type: ignore[arg-type]  # as parametrized

        with pytest.raises(BadBackendReply):
            await SpeedMeter(backend=backend, clock=SystemClock(), rng=SystemRng()).quick(server.model, at_once=2)

    async def test_a_stalled_stream_can_be_left(
        self, server: Server, session: aiohttp.ClientSession, backend: OpenAIBackend
    ) -> None:
        await self.give(server, session, Fault("stall_after_tokens", after_tokens=2))

        async with asyncio.timeout(CEILING_S), backend.post(PATH, STREAM) as reply:
            await first_content(reply.chunks)
            await until_running(backend, 1)
        await until_running(backend, 0)


@pytest.mark.parametrize("kind", every_kind())
async def test_a_server_killed_in_the_middle_breaks_its_streams_and_is_then_gone(
    kind: Kind, tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    with running_server(kind, tmp_path) as server:
        backend = OpenAIBackend(server.url, session)
        async with asyncio.timeout(CEILING_S), backend.post(PATH, STREAM) as reply:
            await first_content(reply.chunks)
            os.kill(server.process.pid, signal.SIGKILL)
            with pytest.raises(BadBackendReply):
                async for _ in reply.chunks:
                    pass

        with pytest.raises(BackendUnreachable):
            await backend.models()


@pytest.mark.parametrize("server", [*every_kind(), *every_dialect()], indirect=True)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_prompt_that_does_not_fit_is_refused_in_words_that_are_known(
    server: Server, backend: OpenAIBackend, *, stream: bool
) -> None:
    status, body = await read_all(backend, chat("word " * 9000, stream=stream))

    error = classify(status, body)
    assert (error.code, error.is_clients_fault) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, True)
    assert error.context_tokens == CONTEXT


async def test_a_server_that_loads_is_listed_as_loading(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    health = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(health if asked.startswith(b"GET /health") else http(MODELS))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        (model,) = await OpenAIBackend(f"http://127.0.0.1:{port}", session).models()

    assert model.state == "loading"
