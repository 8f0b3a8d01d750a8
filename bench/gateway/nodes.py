"""A thousand nodes in one process: real keys, handshakes, links and receipts, but no model.

They answer as `backend.c` does. A node's answers of one rate advance together, like an engine's batch, as one message
per step. Everything is callbacks: this process shares a core with the load generator.

    python -m bench.gateway.nodes --gateway URL --tokens FILE --ready FILE

`FILE` has one join token per line, and there are as many nodes. `--ready` is written when all have joined; a lost
link ends the process, since a measurement without it would not count.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop
from bench.gateway.answers import (
    TOKENS,
    WHOLE_TOKENS,
    first_token,
    next_token,
    prompt_tokens,
    read_request,
    stream_end,
    whole,
)
from bench.gateway.fleet import fleet
from bench.gateway.websocket import Wire, dial

from sparewatt import __version__
from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.node_end import GatewayLink, IncomingJob
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import LINK_PATH, JobEnd, JobReplyHead, Opcode, Welcome
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.link.receipts import SHEET_MAX, Receipt, SignedSheet, sheet_digest
from sparewatt.protocol.signing import SigningKey

JOINING_AT_ONCE = 16
SIGN_S = 0.5
"""How long a node collects receipts for one signature (`node/jobs/receipt_issuer.py`)."""
_HEADER = struct.Struct(">BII")
_WHOLE_HEAD = JobReplyHead(status=200, content_type="application/json")
_STREAM_HEAD = JobReplyHead(status=200, content_type="text/event-stream; charset=utf-8")


def _data(number: int, data: bytes) -> bytes:
    return _HEADER.pack(Opcode.DATA, number, len(data)) + data


class DirectSendQueue(SendQueue):
    """Sends all frames of one tick of the event loop as one message, without a task that would have to be woken."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self._waiting: list[bytes] = []
        self._later = asyncio.get_running_loop().call_soon

    def put(self, frame: bytes) -> None:
        if not self._waiting:
            self._later(self._send)
        self._waiting.append(frame)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._wire.send_now(b"".join(waiting))


class ReceiptSigner:
    """Signs the receipts of half a second together."""

    def __init__(self, key: SigningKey, link: GatewayLink) -> None:
        self._key = key
        self._link = link
        self._waiting: list[Receipt] = []

    def write(self, receipt: Receipt) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(SIGN_S, self._sign)
        self._waiting.append(receipt)

    def _sign(self) -> None:
        receipts, self._waiting = self._waiting, []
        for at in range(0, len(receipts), SHEET_MAX):
            self._link.send_receipt(self._sheet(receipts[at : at + SHEET_MAX]))

    def _sheet(self, receipts: list[Receipt]) -> SignedSheet:
        digest = sheet_digest(self._key.address, [receipt.digest() for receipt in receipts])
        return SignedSheet(receipts, self._key.sign(digest).hex())


class OpenStream:
    """A streamed answer that is not finished."""

    __slots__ = ("began_s", "job", "left", "prompt", "wants_usage")

    def __init__(self, job: IncomingJob, *, prompt: int, wants_usage: bool, began_s: float) -> None:
        self.job = job
        self.prompt = prompt
        self.wants_usage = wants_usage
        self.began_s = began_s
        self.left = TOKENS - 1


class TimerWheel:
    """A timer wheel for all nodes: steps that are due within the same millisecond share one timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, list[Callable[[], None]]] = {}

    def in_ms(self, wait_ms: int, step: Callable[[], None]) -> None:
        at_ms = int(self._loop.time() * 1000) + wait_ms
        steps = self._due.get(at_ms)
        if steps is None:
            self._due[at_ms] = steps = []
            self._loop.call_at(at_ms / 1000, self._fire, at_ms)
        steps.append(step)

    def _fire(self, at_ms: int) -> None:
        for step in self._due.pop(at_ms):
            step()


class Node:
    """Implements JobRunner."""

    def __init__(self, key: SigningKey, wire: Wire, *, timers: TimerWheel) -> None:
        self._key = key
        self._link = GatewayLink(
            send_queue=DirectSendQueue(wire), runner=self, clock=SystemClock(), on_ping=self.send_heartbeat
        )
        self._signer = ReceiptSigner(key, self._link)
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._batches: dict[int, list[OpenStream]] = {}
        """By milliseconds between tokens. Every batch has a timer for its next step."""
        self._running = 0
        wire.on_message = self._receive

    def _receive(self, message: bytes) -> None:
        """Ignores credit frames: no answer is longer than the initial credit of a job."""
        op, _, length = _HEADER.unpack_from(message)
        if op != Opcode.CREDIT or len(message) > _HEADER.size + length:
            self._link.receive(message)

    def send_heartbeat(self) -> None:
        """Sent with the answer to each ping, as by a real node (`node/joined_link.py`)."""
        self._link.send_load(self._load())

    def start(self, job: IncomingJob) -> None:
        request = read_request(job.body)
        prompt, began_s = prompt_tokens(len(job.body)), self._loop.time()
        if not request.stream:
            self._answer_whole(job, prompt)
            return
        self._running += 1
        stream = OpenStream(job, prompt=prompt, wants_usage=request.wants_usage, began_s=began_s)
        job.send_head(_STREAM_HEAD)
        self._link.send(_data(job.number, first_token(time.monotonic_ns())))
        if request.pace_ms:
            self._join_batch(stream, request.pace_ms)
        else:
            self._send_at_once(stream)

    def cancel(self, job: IncomingJob) -> None:
        for batch in self._batches.values():
            left = [stream for stream in batch if stream.job is not job]
            self._running -= len(batch) - len(left)
            batch[:] = left

    def _answer_whole(self, job: IncomingJob, prompt: int) -> None:
        job.send_head(_WHOLE_HEAD)
        self._link.send(_data(job.number, whole(prompt)))
        job.end(JobEnd(load=self._load()))
        self._sign(job, prompt, WHOLE_TOKENS, 0.0)

    def _send_at_once(self, stream: OpenStream) -> None:
        number = stream.job.number
        while stream.left:
            stream.left -= 1
            self._link.send(_data(number, next_token(time.monotonic_ns())))
        self._finish(stream)

    def _join_batch(self, stream: OpenStream, pace_ms: int) -> None:
        batch = self._batches.get(pace_ms)
        if batch is None:
            batch = self._batches[pace_ms] = []
            self._timers.in_ms(pace_ms, partial(self._step, pace_ms))
        batch.append(stream)

    def _step(self, pace_ms: int) -> None:
        """One token for each answer; all have the same time stamp and so the same bytes."""
        batch = self._batches.pop(pace_ms)
        if not batch:
            return
        token = next_token(time.monotonic_ns())
        size, pack = len(token), _HEADER.pack
        self._link.send(b"".join([pack(Opcode.DATA, stream.job.number, size) + token for stream in batch]))
        left = []
        for stream in batch:
            stream.left -= 1
            if stream.left:
                left.append(stream)
            else:
                self._finish(stream)
        if left:
            self._batches[pace_ms] = left
            self._timers.in_ms(pace_ms, partial(self._step, pace_ms))

    def _finish(self, stream: OpenStream) -> None:
        job = stream.job
        self._running -= 1
        self._link.send(_data(job.number, stream_end(stream.prompt, wants_usage=stream.wants_usage)))
        duration_s = self._loop.time() - stream.began_s
        job.end(JobEnd(load=self._load(), first_byte_s=0.0, duration_s=duration_s))
        self._sign(job, stream.prompt, TOKENS, duration_s)

    def _load(self) -> NodeLoad:
        return NodeLoad(running=self._running)

    def _sign(self, job: IncomingJob, prompt: int, tokens: int, duration_s: float) -> None:
        self._signer.write(
            Receipt(
                job=job.meta.job,
                node=self._key.address,
                model=job.meta.model,
                prompt_tokens=prompt,
                completion_tokens=tokens,
                first_token_ms=0,
                duration_ms=round(1000 * duration_s),
            )
        )


async def join(url: str, token: str, specs: NodeSpecs, *, timers: TimerWheel, rng: Rng) -> None:
    """Opens a link to the gateway, and one to each further process that its welcome lists."""
    key = SigningKey.generate(rng=rng)
    welcome = await _link(url, key, token, specs, timers=timers, rng=rng)
    for port in set(getattr(welcome, "link_ports", ())) - {getattr(welcome, "link_port", None)}:
        await _link(f"http://{urlsplit(url).hostname}:{port}", key, None, specs, timers=timers, rng=rng)


async def _link(
    url: str, key: SigningKey, token: str | None, specs: NodeSpecs, *, timers: TimerWheel, rng: Rng
) -> Welcome:
    wire = await dial(url, LINK_PATH)
    welcome = await authenticate_to_gateway(
        cast(Socket, wire), key=key, host=host_of(url), token=token, specs=specs, agent_version=__version__, rng=rng
    )
    Node(key, wire, timers=timers)
    wire.on_lost = partial(sys.exit, f"{specs.name} lost its link")
    return welcome


async def run(url: str, tokens: Sequence[str], *, on_joined: Callable[[], object]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    slots, timers = asyncio.Semaphore(JOINING_AT_ONCE), TimerWheel()

    async def join_with_slot(token: str, specs: NodeSpecs) -> None:
        async with slots:
            await join(url, token, specs, timers=timers, rng=SystemRng())

    async with asyncio.TaskGroup() as tasks:
        for token, specs in zip(tokens, fleet(len(tokens)), strict=True):
            tasks.create_task(join_with_slot(token, specs))
    on_joined()
    await stop.wait()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gateway", required=True, metavar="URL")
    parser.add_argument("--tokens", required=True, type=Path, metavar="FILE", help="Join tokens, one per line.")
    parser.add_argument("--ready", required=True, type=Path, metavar="FILE", help="Written once all have joined.")
    options = parser.parse_args(argv)
    tokens = options.tokens.read_text().split()
    uvloop.run(run(options.gateway, tokens, on_joined=options.ready.touch))


if __name__ == "__main__":
    main(sys.argv[1:])
