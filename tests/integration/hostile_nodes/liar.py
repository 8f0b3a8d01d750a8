"""A node that may lie: the link protocol spoken directly, without the agent's checks, over the agent's own sockets.

It joins with the real handshake and a real join token. What it answers to a job is up to a behaviour, which can send
any bytes at any time. Whatever a behaviour does not lie about, this end does as the protocol says: it answers pings,
keeps to its credit and reports its load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from sparewatt import __version__
from sparewatt.core.errors import LinkError
from sparewatt.core.rng import SystemRng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.sockets import LINK_BATCH_BYTES, Socket
from sparewatt.protocol.link.frames import (
    LINK_PATH,
    Credit,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    Opcode,
    decode_message,
    encode_frame,
    encode_message,
    split_frames,
)
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.engine.text import count_tokens, expected_text, render_chat, tokenize

JOIN_S = 10.0
EVENT_STREAM = "text/event-stream"
JSON = "application/json"

Piece = str | Mapping[str, Any]
"""Of an answer: a text, or a delta."""
Usage = Mapping[str, Any] | str
"""What a reply claims to have used; a string is put into the JSON as it is."""


@dataclass(slots=True, eq=False)
class HostileJob:
    """One job at a hostile node, with what an honest node would answer."""

    node: HostileNode
    number: int
    meta: JobRequest
    body: bytearray = field(default_factory=bytearray)
    credit: int = 0
    more_credit: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.credit = self.meta.window_bytes

    @property
    def request(self) -> dict[str, Any]:
        asked: dict[str, Any] = json.loads(bytes(self.body[: len(self.body) - self.meta.continue_bytes]))
        return asked

    @property
    def prompt(self) -> str:
        return render_chat(self.request.get("messages", []))

    @property
    def prompt_tokens(self) -> int:
        return count_tokens(self.prompt)

    def tokens(self) -> list[str]:
        """The right answer."""
        asked = self.request
        most = asked.get("max_completion_tokens") or asked.get("max_tokens")
        return tokenize(expected_text(self.prompt, max_tokens=most))

    def usage(self, completion: int, prompt: int | None = None) -> dict[str, int]:
        prompt = self.prompt_tokens if prompt is None else prompt
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    # frames

    def send(self, op: Opcode, payload: bytes = b"") -> None:
        self.node.send(encode_frame(op, self.number, payload))

    def head(self, status: int = 200, content_type: str = EVENT_STREAM) -> None:
        self.send(Opcode.HEAD, msgspec.json.encode(JobReplyHead(status, content_type)))

    async def data(self, data: bytes) -> None:
        """Within its credit."""
        at = 0
        while at < len(data):
            while self.credit <= 0:
                self.more_credit.clear()
                await self.more_credit.wait()
            piece = data[at : at + min(self.credit, LINK_BATCH_BYTES)]
            self.credit -= len(piece)
            at += len(piece)
            self.send(Opcode.DATA, piece)

    def end(self) -> None:
        self.send(Opcode.END, msgspec.json.encode(JobEnd(load=NodeLoad())))

    def fail(self, failure: JobFailure) -> None:
        self.send(Opcode.FAIL, msgspec.json.encode(failure))

    # replies of a model server

    def chunk(
        self,
        delta: Mapping[str, Any] | None,
        *,
        finish: str | None = None,
        index: int = 0,
        usage: Usage | None = None,
        **more: Any,
    ) -> bytes:
        """One event. Without a delta it has no choice."""
        choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
        made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.meta.model}
        return event({**made, "choices": [choice] if delta is not None else []}, usage)

    async def say(
        self,
        pieces: Sequence[Piece],
        *,
        usage: Usage | None = None,
        finish: str | None = "stop",
        pause_s: float = 0.0,
    ) -> None:
        """A whole answer, streamed or not as the job asks."""
        deltas = [{"content": piece} if isinstance(piece, str) else dict(piece) for piece in pieces]
        if not self.meta.stream:
            await self._say_whole(deltas, usage, finish)
            return
        self.head()
        await self.data(self.chunk({"role": "assistant", "content": ""}))
        for delta in deltas:
            await self.data(self.chunk(delta))
            if pause_s:
                await asyncio.sleep(pause_s)
        if finish is not None:
            await self.data(self.chunk({}, finish=finish))
        if usage is not None:
            await self.data(self.chunk(None, usage=usage))
        await self.data(b"data: [DONE]\n\n")
        self.end()

    async def _say_whole(self, deltas: Iterable[dict[str, Any]], usage: Usage | None, finish: str | None) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for delta in deltas:
            message["content"] += delta.get("content") or ""
            message |= {name: value for name, value in delta.items() if name != "content"}
        made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.meta.model}
        reply = {**made, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        self.head(content_type=JSON)
        await self.data(_with_usage(reply, usage))
        self.end()

    async def refuse(self, status: int, body: bytes, content_type: str = JSON) -> None:
        self.head(status, content_type)
        await self.data(body)
        self.end()


def event(value: Mapping[str, Any], usage: Usage | None = None) -> bytes:
    return b"data: " + _with_usage(value, usage) + b"\n\n"


def _with_usage(value: Mapping[str, Any], usage: Usage | None) -> bytes:
    if usage is None:
        return json.dumps(value).encode()
    told = usage if isinstance(usage, str) else json.dumps(usage)
    return (json.dumps(value)[:-1] + f', "usage": {told}}}').encode()


Answer = Callable[[HostileJob], Awaitable[None]]


@dataclass(slots=True, eq=False)
class LinkListener:
    """Passes on what one socket of a node calls, until it ends. Implements SocketListener."""

    node: HostileNode
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, message: bytes) -> None:
        for op, number, payload in split_frames(message):
            self.node.receive_frame(op, number, payload)

    def on_lost(self, _: LinkError) -> None:
        self.lost.set()

    def resume(self) -> None:
        """Nothing waits here: behaviours look at `is_paused`."""


@dataclass(slots=True, kw_only=True, eq=False)
class HostileNode:
    """A node with one link to a gateway, or with none."""

    root_url: str
    token: str
    specs: NodeSpecs
    answer: Answer
    session: aiohttp.ClientSession
    key: SigningKey = field(default_factory=lambda: SigningKey.generate(rng=SystemRng()))
    load: NodeLoad = field(default_factory=NodeLoad)
    opened: int = 0
    """Jobs that it was given."""
    _socket: Socket | None = None
    _listener: LinkListener | None = None
    _jobs: dict[int, HostileJob] = field(default_factory=dict)
    _answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)

    @property
    def node_id(self) -> str:
        return self.key.address

    async def join(self) -> None:
        """Raises LinkError or an OSError where the gateway does not let it in."""
        async with asyncio.timeout(JOIN_S):
            socket = await dial(self.root_url + LINK_PATH, session=self.session)
            await authenticate_to_gateway(
                socket,
                key=self.key,
                host=host_of(self.root_url),
                token=self.token,
                specs=self.specs,
                agent_version=__version__,
                rng=SystemRng(),
            )
        self._end_answers()  # of the last link, whose numbers are given again
        self._socket, self._listener = socket, LinkListener(self)
        socket.attach(self._listener)
        self.send(encode_message(Opcode.LOAD, self.load))

    def send(self, message: bytes) -> None:
        """Any bytes, as one WebSocket message."""
        if self._socket is not None:
            self._socket.send(message)

    @property
    def is_linked(self) -> bool:
        return self._listener is not None and not self._listener.lost.is_set()

    @property
    def is_paused(self) -> bool:
        """Whether the gateway reads more slowly than this end writes."""
        return self._socket is not None and self._socket.is_paused

    def report(self, specs: NodeSpecs) -> None:
        self.specs = specs
        self.send(encode_message(Opcode.SPECS, specs))

    def hang_up(self) -> None:
        """Without a goodbye."""
        if self._socket is not None:
            self._socket.abort()

    async def leave(self) -> None:
        self._end_answers()
        if self._socket is not None:
            self._socket.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._socket.wait_closed(), JOIN_S)

    def _end_answers(self) -> None:
        answers, self._answers, self._jobs = list(self._answers.values()), {}, {}
        for task in answers:
            task.cancel()

    # what its link calls

    def receive_frame(self, op: int, number: int, payload: bytes) -> None:
        match op:
            case Opcode.PING:
                self.send(encode_frame(Opcode.PONG, 0, payload) + encode_message(Opcode.LOAD, self.load))
            case Opcode.OPEN:
                self.opened += 1
                self._jobs[number] = HostileJob(self, number, decode_message(payload, JobRequest))
            case Opcode.BODY if (job := self._jobs.get(number)) is not None:
                job.body += payload
                if len(job.body) >= job.meta.body_bytes:
                    self._start(job)
            case Opcode.CREDIT if (job := self._jobs.get(number)) is not None:
                job.credit += decode_message(payload, Credit).n_bytes
                job.more_credit.set()
            case Opcode.CANCEL:
                self._stop(number)
            case _:
                pass

    def _start(self, job: HostileJob) -> None:
        task = asyncio.ensure_future(self.answer(job))
        self._answers[job.number] = task
        task.add_done_callback(lambda done: self._on_answered(job.number, done))

    def _on_answered(self, number: int, done: asyncio.Future[None]) -> None:
        if self._answers.get(number) is done:
            del self._answers[number], self._jobs[number]
        if not done.cancelled() and (error := done.exception()) is not None:
            context = {"message": "a behaviour is broken", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _stop(self, number: int) -> None:
        if (task := self._answers.get(number)) is not None:
            task.cancel()
        else:
            self._jobs.pop(number, None)  # its body is not here yet
