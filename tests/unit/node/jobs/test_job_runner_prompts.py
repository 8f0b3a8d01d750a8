"""Prompts that hold addresses, and prompts whose client leaves while they are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import MediaNotFetched
from sparewatt.core.rng import seeded
from sparewatt.link.node_end import GatewayLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.node.backends.backend import BackendLoad, BackendModel, BackendReply
from sparewatt.node.egress.media_fetcher import MediaFetcher
from sparewatt.node.jobs import abandoned_requests
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import JobPath, JobReplyHead, Opcode, decode_message, encode_frame
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad
from tests.unit.link.ends import Wire
from tests.unit.node.rig import HARDWARE, MODEL, Rig, ScriptedBackend, backend_model, chat_body, node_settings
from tests.waiting import turns, until

PICTURE = {"type": "image_url", "image_url": {"url": "https://images.example.org/a.png"}}
PRIVATE = {"type": "image_url", "image_url": {"url": "http://192.168.1.1/admin"}}


def chat_with(part: dict[str, Any]) -> bytes:
    return chat_body(messages=[{"role": "user", "content": [part]}])


class FetchedPictures(MediaFetcher):
    """Fetches nothing: each picture is this, or cannot be had."""

    def __init__(self, data: str | None) -> None:
        super().__init__()
        self._data = data

    async def inlined(self, path: JobPath, body: bytes) -> bytes:
        if self._data is None:
            raise MediaNotFetched("A picture of the request could not be fetched.", param="messages")
        return body.replace(PICTURE["image_url"]["url"].encode(), self._data.encode())  # type: ignore[index]


class SlowServer(ScriptedBackend):
    """Reads a prompt until it is told to stop, and reports what it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = 0
        self.may_stop = asyncio.Event()

    async def models(self) -> list[BackendModel]:
        return [backend_model()]

    async def load(self) -> BackendLoad:
        return BackendLoad(running=self.reading)

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        self.bodies.append(body)
        self.reading += 1
        try:
            await asyncio.Event().wait()
            yield BackendReply(200, "text/event-stream", self._stream())
        finally:
            self._give_up = asyncio.create_task(self._stop_reading())

    async def _stop_reading(self) -> None:
        """Between two batches."""
        await self.may_stop.wait()
        self.reading -= 1


@asynccontextmanager
async def node_over(
    backend: ScriptedBackend, data_dir: Path, *, media: MediaFetcher | None = None
) -> AsyncIterator[Rig]:
    clock, queue = SystemClock(), SendQueue()
    inventory = Inventory(node_settings(data_dir), backend, HARDWARE, clock=clock, rng=seeded(1), notify=lambda _: None)
    jobs = NodeJobRunner(backend, inventory, clock=clock, media=media)
    link = GatewayLink(send_queue=queue, runner=jobs, clock=clock)
    models = (ModelReport(MODEL, "warm", 10**9, 1000, 0, 0),)
    inventory.specs = msgspec.structs.replace(inventory.specs, slots=4, models=models)
    rig = Rig("", backend, inventory, jobs, link, Wire(queue), None, [])  # type: ignore[arg-type]  # neither is used
    try:
        yield rig
    finally:
        await jobs.close()


def foreign(load: NodeLoad) -> tuple[int, int, Sequence[str]]:
    return load.running, load.foreign, load.foreign_models


# addresses


async def test_an_address_that_reaches_the_node_never_reaches_its_server(tmp_path: Path) -> None:
    """From a hostile gateway, or an older one."""
    backend = ScriptedBackend([b"data: [DONE]\n\n"])
    async with node_over(backend, tmp_path) as rig:
        rig.send(1, body=chat_with(PRIVATE))
        failure = await rig.failed(1)
    assert failure.code == "refused"
    assert "192.168" not in failure.message
    assert backend.bodies == []


async def test_a_fetched_picture_reaches_the_server_as_data(tmp_path: Path) -> None:
    backend = ScriptedBackend([b"data: [DONE]\n\n"])
    async with node_over(backend, tmp_path, media=FetchedPictures("data:image/png;base64,AAAA")) as rig:
        rig.send(1, body=chat_with(PICTURE))
        await rig.ended(1)
    (body,) = backend.bodies
    assert b"data:image/png;base64,AAAA" in body
    assert b"example.org" not in body


async def test_a_picture_that_cannot_be_had_is_the_clients_error(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with node_over(backend, tmp_path, media=FetchedPictures(None)) as rig:
        rig.send(1, body=chat_with(PICTURE))
        await rig.ended(1)
        head = decode_message(rig.frames(1)[0].payload, JobReplyHead)
        error = json.loads(rig.data(1))["error"]
    assert (head.status, head.content_type) == (400, "application/json")
    assert (error["code"], error["param"]) == ("media_not_fetched", "messages")
    assert backend.bodies == []


# clients that leave


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned_requests, "POLLS_S", ())
    monkeypatch.setattr(abandoned_requests, "POLL_S", 0.005)


@pytest.mark.usefixtures("quick_polls")
async def test_an_abandoned_prompt_counts_as_foreign_until_the_server_is_free(tmp_path: Path) -> None:
    backend = SlowServer()
    async with node_over(backend, tmp_path) as rig:
        rig.send(1)
        await until(lambda: backend.reading)
        assert foreign(rig.jobs.load()) == (1, 0, ())
        news = rig.inventory.load_version
        rig.link.receive(encode_frame(Opcode.CANCEL, 1))
        await until(lambda: rig.jobs.count() == 0)
        assert foreign(rig.jobs.load()) == (0, 1, (MODEL,))
        assert rig.inventory.load_version > news
        assert rig.inventory.own_jobs == 1  # what the server reports of it is not counted a second time
        await turns(50)
        assert rig.jobs.load().foreign == 1
        news = rig.inventory.load_version
        backend.may_stop.set()
        await until(lambda: rig.jobs.load().foreign == 0)
        assert rig.inventory.load_version > news
        assert rig.inventory.own_jobs == 0


@pytest.mark.usefixtures("quick_polls")
async def test_an_abandoned_prompt_is_counted_beside_jobs_that_go_on(tmp_path: Path) -> None:
    backend = SlowServer()
    async with node_over(backend, tmp_path) as rig:
        rig.send(1)
        rig.send(2)
        await until(lambda: backend.reading == 2)
        rig.link.receive(encode_frame(Opcode.CANCEL, 1))
        await until(lambda: rig.jobs.load().foreign == 1)
        assert rig.jobs.load().running == 1
        backend.may_stop.set()
        await until(lambda: rig.jobs.load().foreign == 0)
        assert rig.jobs.load().running == 1


async def test_a_drain_does_not_wait_for_an_abandoned_prompt(tmp_path: Path) -> None:
    backend = SlowServer()
    async with node_over(backend, tmp_path) as rig:
        rig.send(1)
        await until(lambda: backend.reading)
        rig.link.receive(encode_frame(Opcode.CANCEL, 1))
        assert await rig.jobs.wait_until_idle(5.0)
