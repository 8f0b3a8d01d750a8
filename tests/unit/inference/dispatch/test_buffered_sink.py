from __future__ import annotations

import asyncio

from sparewatt.core.errors import NoCapacity
from sparewatt.inference.dispatch.buffered_sink import BufferedSink


async def test_pieces_that_wait_are_taken_together_in_order() -> None:
    sink = BufferedSink()
    sink.start({"a": "b"})
    sink.data(b"one ")
    sink.data(b"two")
    await sink.begun()
    assert sink.headers == {"a": "b"}
    assert await sink.take() == b"one two"


async def test_taking_waits_for_the_next_piece() -> None:
    sink = BufferedSink()
    sink.start({})
    taking = asyncio.ensure_future(sink.take())
    await asyncio.sleep(0)
    assert not taking.done()
    sink.data(b"late")
    assert await taking == b"late"


async def test_there_is_nothing_after_the_end() -> None:
    sink = BufferedSink()
    sink.start({})
    sink.data(b"all")
    sink.finish()
    assert await sink.take() == b"all"
    assert await sink.take() is None
    assert await sink.take() is None


async def test_a_waiting_taker_learns_of_the_end() -> None:
    sink = BufferedSink()
    sink.start({})
    taking = asyncio.ensure_future(sink.take())
    await asyncio.sleep(0)
    sink.finish()
    assert await taking is None


async def test_all_is_everything_until_the_end() -> None:
    sink = BufferedSink()
    sink.start({})
    sink.data(b"a")
    taking = asyncio.ensure_future(sink.take_all())
    await asyncio.sleep(0)
    sink.data(b"b")
    sink.finish()
    assert await taking == b"ab"


async def test_a_failure_begins_and_ends_at_once() -> None:
    sink = BufferedSink()
    begun = asyncio.ensure_future(sink.begun())
    await asyncio.sleep(0)
    assert not begun.done()
    error = NoCapacity("full")
    sink.fail(error, {"x": "y"})
    await begun
    assert sink.error is error
    assert sink.headers == {"x": "y"}
    assert await sink.take() is None
