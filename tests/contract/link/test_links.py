"""A whole link, both ends, on every kind of socket."""

from __future__ import annotations

import asyncio

import pytest

from sparewatt.core.limits import KIB, MIB
from sparewatt.core.rng import seeded
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.link.handshake import authenticate_node, authenticate_to_gateway, host_of
from sparewatt.link.node_end import IncomingJob
from sparewatt.protocol.link.frames import JobReplyHead, Opcode, Welcome, encode_message
from sparewatt.protocol.signing import SigningKey
from tests.contract.link.conftest import Pair
from tests.unit.link.ends import connected, grant
from tests.unit.protocol.reports import SPECS
from tests.waiting import CEILING_S, until


async def test_a_node_joins(pair: Pair) -> None:
    near, far = pair
    key, host = SigningKey.generate(rng=seeded(1)), host_of("http://127.0.0.1:8484")

    async def let_in() -> str:
        node = await authenticate_node(far, hosts={host}, gateway_version="1", rng=seeded(2))
        far.send(encode_message(Opcode.WELCOME, Welcome(heartbeat_s=5, gateway_version="1")))
        return node.node_id

    joining = authenticate_to_gateway(
        near, key=key, host=host, token=None, specs=SPECS, agent_version="1", rng=seeded(3)
    )
    welcome, node_id = await asyncio.gather(joining, let_in())
    assert (welcome.heartbeat_s, node_id) == (5, key.address)


@pytest.mark.parametrize("n_bytes", [0, 1, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 20 * MIB])
async def test_a_body_and_its_reply_pass_whole(pair: Pair, n_bytes: int) -> None:
    body = seeded(n_bytes).randbytes(n_bytes)
    async with connected(*pair) as ends:
        listener = await ends.ask(body)
    assert listener.data == body
    assert (len(listener.heads), len(listener.ends), listener.fails) == (1, 1, [])


async def test_many_jobs_share_the_link(pair: Pair) -> None:
    bodies = [f"job {i} ".encode() * (1 + i * 400) for i in range(50)]
    async with connected(*pair) as ends:
        listeners = await asyncio.gather(*(ends.ask(body) for body in bodies))
    assert [listener.data for listener in listeners] == bodies


async def test_every_chunk_is_there_before_the_next_is_made(pair: Pair) -> None:
    received: list[bytes] = []
    wanted = asyncio.Semaphore(0)

    async def speak(job: IncomingJob) -> None:
        job.send_head(JobReplyHead(status=200))
        for i in range(20):
            await wanted.acquire()
            await job.send_data(f"{i};".encode())

    async with connected(*pair, work=speak) as ends:
        _, listener = ends.open()
        for i in range(20):
            wanted.release()
            await until(lambda: len(listener.pieces) > len(received))
            received.append(listener.pieces[-1])
            assert listener.pieces == [f"{n};".encode() for n in range(i + 1)]


async def test_a_node_stops_at_the_window_until_the_client_takes_something(pair: Pair) -> None:
    body = bytes(2 * LINK_STREAM_WINDOW_BYTES)
    async with connected(*pair) as ends:
        stream, listener = ends.open(body)
        await until(lambda: len(listener.data) == LINK_STREAM_WINDOW_BYTES)
        await ends.ask(b"another job passes")
        assert len(listener.data) == LINK_STREAM_WINDOW_BYTES
        grant(stream, LINK_STREAM_WINDOW_BYTES)
        await until(lambda: listener.over)
    assert listener.data == body


async def test_a_cancel_stops_the_job_on_the_node(pair: Pair) -> None:
    stopped = asyncio.Event()

    async def work(job: IncomingJob) -> None:
        try:
            job.send_head(JobReplyHead(status=200))
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


async def test_a_ping_comes_back(pair: Pair) -> None:
    async with connected(*pair) as ends:
        ends.gateway.ping()
        await until(lambda: ends.observer.rtts_s)


async def test_a_socket_that_breaks_is_noticed_at_both_ends(pair: Pair) -> None:
    async with connected(*pair) as ends:
        pair[0].abort()
        await until(lambda: len(ends.broke) >= 2)
