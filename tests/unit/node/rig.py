"""A node in one process: real inventory, jobs and link end over an engine or a scripted model server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.rng import seeded
from sparewatt.link.node_end import GatewayLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.node.backends.backend import Backend, BackendLoad, BackendModel, BackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import (
    JobEnd,
    JobFailure,
    JobRequest,
    LinkFrame,
    Opcode,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.link.node_report import ModelState
from sparewatt.testing import EngineSettings, InstantClock, running_engine
from tests.unit.link.ends import Wire
from tests.waiting import until

MODEL = "stub"
HARDWARE = Hardware(gpu="RTX 4090", gpu_count=1, vram_bytes=24 * 10**9, tflops=82.6)


def node_settings(data_dir: Path, **changes: Any) -> NodeSettings:
    given: dict[str, Any] = {"gateway_url": "http://127.0.0.1:8484", "data_dir": data_dir}
    return NodeSettings(**(given | changes))


def chat_body(content: str = "hi", **changes: Any) -> bytes:
    request = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": True}
    return msgspec.json.encode(request | changes)


def backend_model(name: str = MODEL, state: ModelState = "warm", **changes: Any) -> BackendModel:
    given: dict[str, Any] = {"context_length": 4096, "quantization": None, "weights_bytes": 10**9}
    given |= {"kv_bytes_per_token": 1000, "parameters": 10**9} | changes
    return BackendModel(name, state, **given)


@dataclass(slots=True)
class Rig:
    """The node, seen from the gateway's side of its link."""

    url: str
    backend: OpenAIBackend
    inventory: Inventory
    jobs: NodeJobRunner
    link: GatewayLink
    wire: Wire
    session: aiohttp.ClientSession
    notices: list[str]
    """What was shown to the owner."""
    _frames: list[LinkFrame] = field(default_factory=list)

    def send(
        self, stream: int, *, model: str = MODEL, body: bytes | None = None, is_streamed: bool = True, **more: Any
    ) -> None:
        body = chat_body() if body is None else body
        more.setdefault("path", "/v1/chat/completions")
        meta = JobRequest(
            model=model,
            body_bytes=len(body),
            stream=is_streamed,
            window_bytes=1 << 20,
            **more,
        )
        self.link.receive(encode_message(Opcode.OPEN, meta, stream=stream) + encode_frame(Opcode.BODY, stream, body))

    def frames(self, stream: int) -> list[LinkFrame]:
        """Everything the node has sent for one job."""
        self._frames += self.wire.frames()
        return [frame for frame in self._frames if frame.stream == stream]

    def ops(self, stream: int) -> list[Opcode]:
        """What it sent, runs of DATA as one."""
        ops = [frame.op for frame in self.frames(stream)]
        return [op for i, op in enumerate(ops) if op is not Opcode.DATA or i == 0 or ops[i - 1] is not Opcode.DATA]

    def data(self, stream: int) -> bytes:
        return b"".join(frame.payload for frame in self.frames(stream) if frame.op is Opcode.DATA)

    async def until_over(self, stream: int) -> None:
        await until(lambda: set(self.ops(stream)) & {Opcode.END, Opcode.FAIL})

    async def failed(self, stream: int) -> JobFailure:
        await self.until_over(stream)
        return decode_message(self.frames(stream)[-1].payload, JobFailure)

    async def ended(self, stream: int) -> JobEnd:
        await self.until_over(stream)
        return decode_message(self.frames(stream)[-1].payload, JobEnd)

    async def fault(self, kind: str, **more: Any) -> None:
        async with self.session.post(f"{self.url}/engine/faults", json={"kind": kind} | more) as reply:
            assert reply.status == 200

    async def stats(self) -> dict[str, int]:
        async with self.session.get(f"{self.url}/engine/stats") as reply:
            return dict(await reply.json())


@asynccontextmanager
async def rigged(
    data_dir: Path, *, engine: EngineSettings | None = None, clock: Clock | None = None, **changes: Any
) -> AsyncIterator[Rig]:
    """A node whose engine never makes it wait. Its inventory has not polled yet."""
    chosen = engine or EngineSettings(models=(MODEL,))
    async with running_engine(chosen, clock=InstantClock()) as url, _session() as session:
        rig = _rig(url, session, data_dir, clock=clock or SystemClock(), changes=changes)
        try:
            yield rig
        finally:
            await rig.jobs.close()


def _rig(url: str, session: aiohttp.ClientSession, data_dir: Path, *, clock: Clock, changes: dict[str, Any]) -> Rig:
    settings, notices, queue = node_settings(data_dir, **changes), list[str](), SendQueue()
    backend = OpenAIBackend(url, session)
    inventory = Inventory(settings, backend, HARDWARE, clock=clock, rng=seeded(1), notify=notices.append)
    jobs = NodeJobRunner(backend, inventory, clock=clock)
    link = GatewayLink(send_queue=queue, runner=jobs, clock=clock)
    return Rig(url, backend, inventory, jobs, link, Wire(queue), session, notices)


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=20)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=timeout)


class ScriptedBackend(Backend):
    """A model server that answers every request with the same bytes, for what the engine cannot do."""

    kind = "scripted"
    aborts_on_disconnect = False
    capabilities_to_probe = ()

    def __init__(
        self, chunks: Iterable[bytes] = (), *, status: int = 200, content_type: str = "text/event-stream"
    ) -> None:
        self._chunks = chunks
        self._status = status
        self._content_type = content_type
        self.bodies: list[bytes] = []

    async def models(self) -> list[BackendModel]:
        return []

    async def load(self) -> BackendLoad | None:
        return None

    async def slots(self) -> int:
        return 1

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        self.bodies.append(body)
        yield BackendReply(self._status, self._content_type, self._stream())

    async def _stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
