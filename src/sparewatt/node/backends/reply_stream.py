"""What the node does with the chunks of a model server's reply: collect, split, filter and throttle them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.node.backends.backend import BadBackendReply

_EVENT_END = b"\n\n"


async def collect(chunks: AsyncIterator[bytes], *, bytes_max: int) -> bytes:
    """The whole reply. Raises BadBackendReply if it is longer than that."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > bytes_max:
            raise BadBackendReply(f"the model server's answer is over {bytes_max >> 20} MiB")
    return bytes(body)


class EventDataSplitter:
    """Splits a stream into the data of its server-sent events (SSE), wherever the network cuts it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each `data:` line that is complete now. Raises BadBackendReply for one without end."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > SSE_EVENT_BYTES_MAX:
            raise BadBackendReply("the model server streams an event without end")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


async def without_events(chunks: AsyncIterator[bytes], mark: bytes) -> AsyncIterator[bytes]:
    """The stream without the events that hold `mark`. Raises BadBackendReply for an event without end."""
    rest = b""
    async for chunk in chunks:
        *events, rest = (rest + chunk).split(_EVENT_END)
        if len(rest) > SSE_EVENT_BYTES_MAX:
            raise BadBackendReply("the model server streams an event without end")
        if kept := b"".join(event + _EVENT_END for event in events if mark not in event):
            yield kept
    if rest:
        yield rest


async def throttled(chunks: AsyncIterator[bytes], *, limit_tps: float | None, clock: Clock) -> AsyncIterator[bytes]:
    """Pass events (tokens) on at most at the owner's speed limit, each at its time, also if several came together.

    Waits are scheduled from the first byte, so that they do not drift.
    """
    began_s: float | None = None
    lines = 0
    async for chunk in chunks:
        if limit_tps is None:
            yield chunk
            continue
        began_s = clock.now_s() if began_s is None else began_s
        for event in _events(chunk):
            lines += event.count(b"\n")  # two for each event, wherever the network cuts
            await sleep_until(clock, began_s + lines / 2 / limit_tps)
            yield event


def _events(chunk: bytes) -> Iterator[bytes]:
    """The chunk, cut after each empty line."""
    start = 0
    while start < len(chunk):
        found = chunk.find(_EVENT_END, start)
        end = len(chunk) if found < 0 else found + len(_EVENT_END)
        yield chunk[start:end]
        start = end
