"""What a link needs of a socket, and a whole link on top: the same tests on memory and on aiohttp's WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from sparewatt.core.errors import LinkLost, ProtocolViolation
from sparewatt.core.limits import KIB, LINK_MESSAGE_BYTES_MAX, LINK_STREAM_WINDOW_BYTES, MIB
from sparewatt.core.rng import seeded
from sparewatt.link.handshake import host_of, identify, introduce
from sparewatt.link.node_end import IncomingJob
from sparewatt.link.sockets import AiohttpSocket, Socket
from sparewatt.protocol.link import Head, Op, Welcome, encode_message
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.sockets import socket_pair
from tests.unit.link.ends import connected
from tests.unit.protocol.reports import SPECS
from tests.waiting import CEILING_S, until

Pair = tuple[Socket, Socket]
"""The node's end and the gateway's."""


@asynccontextmanager
async def websockets() -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, web.WebSocketResponse]]:
    """Both ends of a WebSocket on loopback."""
    arrived: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
    leaving = asyncio.Event()

    async def accept(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=False)
        await ws.prepare(request)
        arrived.put_nowait(ws)
        await leaving.wait()
        return ws

    app = web.Application()
    app.add_routes([web.get("/", accept)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=0) as ws,
        ):
            try:
                yield ws, await arrived.get()
            finally:
                leaving.set()  # first, so that the two closing ends answer each other
    finally:
        await runner.cleanup()


@pytest.fixture(params=["memory", "aiohttp"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    if request.param == "memory":
        yield socket_pair()
    else:
        async with websockets() as (near, far):
            yield AiohttpSocket(near), AiohttpSocket(far)


async def receive_in_time(socket: Socket) -> bytes:
    async with asyncio.timeout(CEILING_S):
        return await socket.receive()


class TestSocket:
    @pytest.mark.parametrize("n_bytes", [0, 1, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, LINK_MESSAGE_BYTES_MAX - 1])
    async def test_a_message_arrives_as_it_was_sent(self, pair: Pair, n_bytes: int) -> None:
        message = bytes(i % 251 for i in range(min(n_bytes, 1000))) + bytes(max(0, n_bytes - 1000))
        for sender, receiver in (pair, reversed(pair)):
            sending = asyncio.create_task(sender.send(message))
            assert await receive_in_time(receiver) == message
            await sending

    async def test_messages_arrive_in_order_and_apart(self, pair: Pair) -> None:
        near, far = pair
        for i in range(200):
            await near.send(str(i).encode())
        assert [await receive_in_time(far) for _ in range(200)] == [str(i).encode() for i in range(200)]

    async def test_both_directions_flow_at_once(self, pair: Pair) -> None:
        message = bytes(MIB)

        async def talk(socket: Socket) -> None:
            for _ in range(10):
                await socket.send(message)

        async def hear(socket: Socket) -> int:
            return sum([len(await receive_in_time(socket)) for _ in range(10)])

        near, far = pair
        heard_near, heard_far, *_ = await asyncio.gather(hear(near), hear(far), talk(near), talk(far))
        assert heard_near == heard_far == 10 * MIB

    async def test_what_was_sent_before_the_end_still_arrives(self, pair: Pair) -> None:
        near, far = pair
        await near.send(b"last words")
        closing = asyncio.create_task(near.close())
        assert await receive_in_time(far) == b"last words"
        with pytest.raises(LinkLost):
            await receive_in_time(far)
        await closing

    async def test_a_receiver_that_waits_learns_of_the_end(self, pair: Pair) -> None:
        near, far = pair
        waiting = asyncio.create_task(receive_in_time(far))
        await asyncio.sleep(0)
        await near.close()
        with pytest.raises(LinkLost):
            await waiting

    async def test_nothing_is_sent_or_received_after_the_own_end(self, pair: Pair) -> None:
        near, far = pair
        listening = asyncio.create_task(receive_in_time(far))
        await near.close()
        with pytest.raises(LinkLost):
            await near.send(b"x")
        with pytest.raises(LinkLost):
            await receive_in_time(near)
        await asyncio.wait([listening])
        assert isinstance(listening.exception(), LinkLost)

    async def test_sending_to_an_end_that_has_closed_fails_in_the_end(self, pair: Pair) -> None:
        near, far = pair
        hearing = asyncio.create_task(receive_in_time(near))
        await far.close()
        await asyncio.wait([hearing])
        assert isinstance(hearing.exception(), LinkLost)
        with pytest.raises(LinkLost):
            await near.send(b"x")

    async def test_closing_twice_does_no_harm(self, pair: Pair) -> None:
        near, far = pair
        listening = asyncio.create_task(receive_in_time(far))
        await near.close()
        await near.close()
        await asyncio.wait([listening])
        await far.close()
        assert isinstance(listening.exception(), LinkLost)


class TestLink:
    async def test_a_node_joins(self, pair: Pair) -> None:
        near, far = pair
        key, host = SigningKey.generate(rng=seeded(1)), host_of("http://127.0.0.1:8484")

        async def let_in() -> str:
            visitor = await identify(far, hosts={host}, gateway_version="1", rng=seeded(2))
            await far.send(encode_message(Op.WELCOME, Welcome(heartbeat_s=5, gateway_version="1")))
            return visitor.node_id

        joining = introduce(near, key=key, host=host, token=None, specs=SPECS, agent_version="1", rng=seeded(3))
        welcome, node_id = await asyncio.gather(joining, let_in())
        assert (welcome.heartbeat_s, node_id) == (5, key.address)

    @pytest.mark.parametrize("n_bytes", [0, 1, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 20 * MIB])
    async def test_a_body_and_its_reply_pass_whole(self, pair: Pair, n_bytes: int) -> None:
        body = seeded(n_bytes).randbytes(n_bytes)
        async with connected(*pair) as ends:
            listener = await ends.ask(body)
        assert listener.data == body
        assert (len(listener.heads), len(listener.ends), listener.fails) == (1, 1, [])

    async def test_many_jobs_share_the_link(self, pair: Pair) -> None:
        bodies = [f"job {i} ".encode() * (1 + i * 400) for i in range(50)]
        async with connected(*pair) as ends:
            listeners = await asyncio.gather(*(ends.ask(body) for body in bodies))
        assert [listener.data for listener in listeners] == bodies

    async def test_every_chunk_is_there_before_the_next_is_made(self, pair: Pair) -> None:
        heard: list[bytes] = []
        wanted = asyncio.Semaphore(0)

        async def speak(job: IncomingJob) -> None:
            job.head(Head(status=200))
            for i in range(20):
                await wanted.acquire()
                await job.data(f"{i};".encode())

        async with connected(*pair, work=speak) as ends:
            _, listener = ends.open()
            for i in range(20):
                wanted.release()
                await until(lambda: len(listener.pieces) > len(heard))
                heard.append(listener.pieces[-1])
                assert listener.pieces == [f"{n};".encode() for n in range(i + 1)]

    async def test_a_node_stops_at_the_window_until_the_client_takes_something(self, pair: Pair) -> None:
        body = bytes(2 * LINK_STREAM_WINDOW_BYTES)
        async with connected(*pair) as ends:
            stream, listener = ends.open(body)
            await until(lambda: len(listener.data) == LINK_STREAM_WINDOW_BYTES)
            await ends.ask(b"another job passes")
            assert len(listener.data) == LINK_STREAM_WINDOW_BYTES
            stream.grant(LINK_STREAM_WINDOW_BYTES)
            await until(lambda: listener.over)
        assert listener.data == body

    async def test_a_cancel_stops_the_job_on_the_node(self, pair: Pair) -> None:
        stopped = asyncio.Event()

        async def work(job: IncomingJob) -> None:
            try:
                job.head(Head(status=200))
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with connected(*pair, work=work) as ends:
            stream, listener = ends.open()
            await until(lambda: listener.heads)
            stream.cancel()
            async with asyncio.timeout(CEILING_S):
                await stopped.wait()
            assert not listener.over

    async def test_a_ping_comes_back(self, pair: Pair) -> None:
        async with connected(*pair) as ends:
            ends.gateway.ping()
            await until(lambda: ends.observer.rtts_s)

    async def test_a_socket_that_breaks_is_noticed_at_both_ends(self, pair: Pair) -> None:
        async with connected(*pair) as ends:
            await pair[0].close()
            await until(lambda: len(ends.broke) >= 2)


# what only a real socket can do


async def test_text_is_no_message_of_the_link() -> None:
    async with websockets() as (near, far):
        await near.send_str("hello")
        with pytest.raises(ProtocolViolation, match="binary"):
            await receive_in_time(AiohttpSocket(far))


async def test_a_message_that_reaches_the_limit_ends_the_link() -> None:
    """So the outbox stays below it."""
    async with websockets() as (near, far):
        sending = asyncio.create_task(near.send_bytes(bytes(LINK_MESSAGE_BYTES_MAX)))
        with pytest.raises(LinkLost):
            await receive_in_time(AiohttpSocket(far))
        sending.cancel()
        await asyncio.wait([sending])
