from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.node.backends.reply_stream import throttled, without_events
from sparewatt.testing import InstantClock
from sparewatt.testing.clocks import ManualClock
from tests.waiting import turns

EVENTS = [f'data: {{"n":{i}}}\n\n'.encode() for i in range(8)]


async def stream(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Pacing:
    """Chunks that pass, on a clock that stands still."""

    def __init__(self, chunks: AsyncIterator[bytes], *, limit_tps: float | None, clock: ManualClock) -> None:
        self.passed: list[bytes] = []
        self.clock = clock
        self.task = asyncio.create_task(self._run(throttled(chunks, limit_tps=limit_tps, clock=clock)))

    async def _run(self, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self.passed.append(chunk)

    async def after(self, seconds: float) -> bytes:
        """All that has passed when that much more time has."""
        await turns()
        self.clock.advance(seconds)
        await turns(100)
        return b"".join(self.passed)


async def test_without_a_limit_everything_passes_at_once() -> None:
    pacing = Pacing(stream(EVENTS), limit_tps=None, clock=ManualClock())
    assert await pacing.after(0) == b"".join(EVENTS)


async def test_events_pass_no_faster_than_the_limit() -> None:
    pacing = Pacing(stream(EVENTS), limit_tps=2.0, clock=ManualClock())
    assert await pacing.after(0.49) == b""
    assert await pacing.after(0.02) == EVENTS[0]
    assert await pacing.after(0.5) == b"".join(EVENTS[:2])
    assert await pacing.after(0.5) == b"".join(EVENTS[:3])
    await pacing.after(60)
    await pacing.task


async def test_events_that_come_together_pass_one_by_one() -> None:
    pacing = Pacing(stream([b"".join(EVENTS[:3]), EVENTS[3][:5], EVENTS[3][5:]]), limit_tps=2.0, clock=ManualClock())
    assert await pacing.after(0.5) == EVENTS[0]
    assert await pacing.after(0.5) == b"".join(EVENTS[:2])
    await pacing.after(0.5)
    assert await pacing.after(0.5) == b"".join(EVENTS[:4])
    await pacing.task


async def test_a_body_in_one_piece_stays_one() -> None:
    body = b'{\n  "choices": [],\n  "usage": {}\n}\n'
    assert [chunk async for chunk in throttled(stream([body]), limit_tps=100.0, clock=InstantClock())] == [body]


async def test_the_schedule_does_not_drift_when_the_source_is_late() -> None:
    clock, late = ManualClock(), asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        yield EVENTS[0]
        await late.wait()
        yield EVENTS[1]

    pacing = Pacing(source(), limit_tps=2.0, clock=clock)
    assert await pacing.after(10) == EVENTS[0]
    late.set()
    assert await pacing.after(0) == EVENTS[0] + EVENTS[1]


@pytest.mark.parametrize("n_bytes", [1, 3, 7, 1000])
async def test_where_the_network_cuts_makes_no_difference(n_bytes: int) -> None:
    whole = b"".join(EVENTS)
    clock = InstantClock()
    chunks = [whole[at : at + n_bytes] for at in range(0, len(whole), n_bytes)]
    passed = [chunk async for chunk in throttled(stream(chunks), limit_tps=2.0, clock=clock)]
    assert b"".join(passed) == whole
    assert clock.now_s() == pytest.approx(len(EVENTS) / 2.0)


async def test_an_error_of_the_source_is_raised() -> None:
    async def source() -> AsyncIterator[bytes]:
        yield EVENTS[0]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        _ = [chunk async for chunk in throttled(source(), limit_tps=5.0, clock=InstantClock())]


# events that are dropped


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_marked_events_are_dropped_wherever_the_network_cuts(size: int) -> None:
    whole = b"".join(EVENTS) + b"data: [DONE]"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    kept = b"".join([chunk async for chunk in without_events(stream(pieces), b'"n":3')])
    assert kept == whole.replace(EVENTS[3], b"")


async def test_an_event_is_passed_on_as_soon_as_it_is_whole() -> None:
    passed = without_events(stream([EVENTS[0], EVENTS[1], EVENTS[2][:4]]), b'"n":0')
    assert await anext(passed) == EVENTS[1]


async def test_an_event_without_end_is_refused() -> None:
    with pytest.raises(BadBackendReply, match="without end"):
        _ = [chunk async for chunk in without_events(stream([b"x" * (SSE_EVENT_BYTES_MAX + 1)]), b"n")]
