"""The event log of a response: many readers, each from its own event on, and a bounded size."""

from __future__ import annotations

import asyncio

import pytest

from sparewatt.core.errors import JobFailed
from sparewatt.inference.responses import event_log
from sparewatt.inference.responses.event_log import EventLog


async def test_every_reader_starts_at_its_own_event() -> None:
    log = EventLog()
    readers = [asyncio.ensure_future(_read(log, after)) for after in (-1, 0, 5)]
    await log.add([b"0", b"1"])
    await asyncio.sleep(0)
    await log.add([b"2"])
    log.close()
    assert await asyncio.gather(*readers) == [[b"0", b"1", b"2"], [b"1", b"2"], []]


async def test_a_reader_of_events_that_were_dropped_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "RESPONSE_LOG_BYTES_MAX", 2)
    log = EventLog()
    await log.add([b"0", b"1", b"2"])
    log.close()
    assert await _read(log, 0) == [b"1", b"2"]
    with pytest.raises(JobFailed):
        await _read(log, -1)


async def _read(log: EventLog, after: int) -> list[bytes]:
    return [event async for event in log.follow(after=after)]
