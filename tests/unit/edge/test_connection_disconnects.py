"""Clients that leave at every stage leave nothing behind: no task, no socket, no job, no reservation, no garbage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.edge.aiohttp_bridge import AiohttpBridge
from sparewatt.edge.connection import Connection
from sparewatt.edge.exchange import Exchange
from sparewatt.edge.http1 import RequestParser
from sparewatt.gateway.services import Services
from sparewatt.inference.admission.service import Ticket
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.service import Submission
from sparewatt.testing.clocks import ManualClock
from tests.unit.edge.served import served
from tests.unit.gateway.small_gateway import USER, make_services
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import BODY, DONE, FINISH, ROLE, ScriptedNode, text_event
from tests.waiting import until

STREAM = BODY[:-1] + b',"stream":true}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % (USER.encode(), len(STREAM)) + STREAM
MODELS = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % USER.encode()
TIMES = 10
OF_A_REQUEST = (Connection, RequestParser, AiohttpBridge, Exchange, Submission, Ticket, JobRun, Attempt)


@dataclass(frozen=True, slots=True)
class Place:
    port: int
    node: ScriptedNode
    services: Services

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def a_place() -> AsyncIterator[Place]:
    services = make_services()
    assert isinstance(services.clock, ManualClock)
    services.table.connect(node_id(1), some_specs(a_model()), now_s=NOW_S)
    node = ScriptedNode(1, services.clock, services.table)
    services.links.links[node.id] = node.link
    async with served(services) as port:
        yield Place(port, node, services)


async def without_a_word(place: Place) -> asyncio.StreamWriter:
    _, writer = await place.connect()
    return writer


async def within_the_head(place: Place) -> asyncio.StreamWriter:
    _, writer = await place.connect()
    writer.write(REQUEST[:40])
    return writer


async def within_the_body(place: Place) -> asyncio.StreamWriter:
    _, writer = await place.connect()
    writer.write(REQUEST[:-5])
    return writer


async def before_the_answer(place: Place) -> asyncio.StreamWriter:
    before = len(place.node.opened)
    _, writer = await place.connect()
    writer.write(REQUEST)
    await until(lambda: len(place.node.opened) > before)
    return writer


async def within_the_answer(place: Place) -> asyncio.StreamWriter:
    before = len(place.node.opened)
    reader, writer = await place.connect()
    writer.write(REQUEST)
    await until(lambda: len(place.node.opened) > before)
    place.node.begin(ROLE, text_event("Hi"))
    await reader.readuntil(b"Hi")
    return writer


async def behind_the_answer(place: Place) -> asyncio.StreamWriter:
    before = len(place.node.opened)
    reader, writer = await place.connect()
    writer.write(REQUEST)
    await until(lambda: len(place.node.opened) > before)
    place.node.answer(ROLE, text_event("Hi"), FINISH, DONE)
    await reader.readuntil(b"[DONE]")
    return writer


async def behind_a_list(place: Place) -> asyncio.StreamWriter:
    reader, writer = await place.connect()
    writer.write(MODELS)
    await reader.readuntil(b"}")
    return writer


async def within_a_pipeline(place: Place) -> asyncio.StreamWriter:
    before = len(place.node.opened)
    _, writer = await place.connect()
    writer.write(REQUEST * 3)
    await until(lambda: len(place.node.opened) > before)
    return writer


STAGES = (
    without_a_word,
    within_the_head,
    within_the_body,
    before_the_answer,
    within_the_answer,
    behind_the_answer,
    behind_a_list,
    within_a_pipeline,
)


STARTED = frozenset({before_the_answer, within_the_answer, behind_the_answer, within_a_pipeline})


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("is_rude", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
async def test_a_client_that_disconnects_leaves_nothing_behind(
    stage: Callable[[Place], Awaitable[asyncio.StreamWriter]], *, is_rude: bool
) -> None:
    async with a_place() as place:
        tasks, files = asyncio.all_tasks(), open_files()
        for _ in range(TIMES):
            writer = await stage(place)
            if is_rude:
                writer.transport.abort()
            else:
                writer.close()
        await until(lambda: asyncio.all_tasks() <= tasks)
        await until(lambda: open_files() <= files)
        assert place.services.dispatcher.running == 0
        assert place.services.table.expire_reservations(older_than_s=-1, now_s=NOW_S) == 0
        assert len(place.node.opened) == (TIMES if stage in STARTED else 0)


@contextmanager
def without_the_collector() -> Iterator[None]:
    """What is there already is set aside: it need not be looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def still_there() -> int:
    """Of what was made since `without_the_collector`."""
    return sum(isinstance(found, OF_A_REQUEST) for found in gc.get_objects())


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
async def test_what_belonged_to_a_request_is_freed_with_it(
    stage: Callable[[Place], Awaitable[asyncio.StreamWriter]],
) -> None:
    """Objects that hold each other wait for the collector, which looks at those that lived for long hardly ever."""
    async with a_place() as place:
        with without_the_collector():
            before = still_there()
            for _ in range(TIMES):
                (await stage(place)).close()
            await until(lambda: still_there() <= before)
