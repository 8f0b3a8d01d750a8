from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_FRAME_BYTES_MAX, LINK_MESSAGE_BYTES_MAX, LINK_SEND_QUEUE_BYTES_MAX
from sparewatt.link import outbox as outbox_module
from sparewatt.link.outbox import Outbox
from sparewatt.link.sockets import Socket
from sparewatt.testing.sockets import socket_pair
from tests.waiting import CEILING_S, turns

BIG = bytes(LINK_FRAME_BYTES_MAX)


def fill(outbox: Outbox) -> None:
    """One frame more than may wait."""
    for _ in range(LINK_SEND_QUEUE_BYTES_MAX // len(BIG) + 1):
        outbox.put(BIG)


async def everything(socket: Socket) -> AsyncIterator[bytes]:
    """All messages until the other end closes."""
    with suppress(LinkLost):
        while True:
            yield await socket.receive()


async def test_what_is_put_in_one_turn_leaves_as_one_message() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    running = asyncio.create_task(outbox.run(near))
    await turns()
    outbox.put(b"a")
    outbox.put(b"b")
    outbox.put(b"c")
    assert await far.receive() == b"abc"
    outbox.close()
    await running


async def test_what_is_put_in_another_turn_leaves_as_another_message() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    running = asyncio.create_task(outbox.run(near))
    for frame in (b"a", b"b"):
        outbox.put(frame)
        await turns()
    assert [await far.receive(), await far.receive()] == [b"a", b"b"]
    outbox.close()
    await running


async def test_frames_put_before_the_sender_runs_are_sent() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    outbox.put(b"early")
    outbox.close()
    await outbox.run(near)
    assert await far.receive() == b"early"


async def test_order_is_kept_and_no_message_reaches_the_limit() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    frames = [bytes([i % 251]) * (LINK_FRAME_BYTES_MAX // (1 + i % 3)) for i in range(60)]
    for frame in frames:
        outbox.put(frame)
    outbox.close()
    await outbox.run(near)
    await near.close()
    received = [message async for message in everything(far)]
    assert b"".join(received) == b"".join(frames)
    assert all(len(message) < LINK_MESSAGE_BYTES_MAX for message in received)
    assert len(received) < len(frames)


async def test_frames_that_make_exactly_the_limit_are_two_messages() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    for _ in range(LINK_MESSAGE_BYTES_MAX // LINK_FRAME_BYTES_MAX):
        outbox.put(BIG)
    outbox.close()
    await outbox.run(near)
    assert len(await far.receive()) == LINK_MESSAGE_BYTES_MAX - LINK_FRAME_BYTES_MAX
    assert len(await far.receive()) == LINK_FRAME_BYTES_MAX


async def test_closing_sends_what_is_queued_and_takes_no_more() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    outbox.put(b"last")
    outbox.close()
    outbox.put(b"too late")
    await outbox.run(near)
    await near.close()
    assert await far.receive() == b"last"
    with pytest.raises(LinkLost):
        await far.receive()


async def test_a_queue_that_overflows_before_anything_is_sent_ends_the_link() -> None:
    outbox, (near, _) = Outbox(), socket_pair()
    fill(outbox)
    with pytest.raises(LinkLost, match="stopped reading"):
        await outbox.run(near)


async def test_a_queue_may_be_full_to_its_limit() -> None:
    outbox, (near, _) = Outbox(), socket_pair()
    for _ in range(LINK_SEND_QUEUE_BYTES_MAX // len(BIG)):
        outbox.put(BIG)
    assert not outbox.has_room(1)
    outbox.close()
    await outbox.run(near)


async def test_a_queue_that_overflows_while_the_peer_does_not_read_ends_the_link_at_once() -> None:
    outbox, (near, _) = Outbox(), socket_pair(capacity=1)
    running = asyncio.create_task(outbox.run(near))
    outbox.put(b"taken")
    await turns()
    outbox.put(b"stuck")
    await turns()
    assert not running.done()
    fill(outbox)
    async with asyncio.timeout(CEILING_S):
        with pytest.raises(LinkLost, match="stopped reading"):
            await running


async def test_a_queue_that_overflowed_ends_the_link_even_if_the_peer_reads_again() -> None:
    """Frames were lost: going on without them would be worse than the end."""
    outbox, (near, far) = Outbox(), socket_pair(capacity=1)
    running = asyncio.create_task(outbox.run(near))
    outbox.put(b"taken")
    await turns()
    outbox.put(b"stuck")
    await turns()
    fill(outbox)
    assert await far.receive() == b"taken"
    with pytest.raises(LinkLost, match="stopped reading"):
        await running


async def test_a_message_that_is_never_taken_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LINK_SEND_S", 0.01)
    outbox, (near, _) = Outbox(), socket_pair(capacity=1)
    running = asyncio.create_task(outbox.run(near))
    outbox.put(b"taken")
    await turns()
    outbox.put(b"stuck")
    async with asyncio.timeout(CEILING_S):
        with pytest.raises(LinkLost, match="stopped reading"):
            await running


async def test_an_idle_link_may_stay_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LINK_SEND_S", 0.01)
    outbox, (near, far) = Outbox(), socket_pair()
    running = asyncio.create_task(outbox.run(near))
    outbox.put(b"one")
    assert await far.receive() == b"one"
    await asyncio.wait([running], timeout=0.05)
    outbox.put(b"two")
    assert await far.receive() == b"two"
    outbox.close()
    await running


async def test_a_socket_that_is_gone_ends_the_link() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    await far.close()
    outbox.put(b"x")
    with pytest.raises(LinkLost):
        await outbox.run(near)


async def test_after_the_end_nothing_piles_up() -> None:
    outbox, (near, far) = Outbox(), socket_pair()
    await far.close()
    outbox.put(b"x")
    with pytest.raises(LinkLost):
        await outbox.run(near)
    fill(outbox)
    assert outbox.has_room(LINK_SEND_QUEUE_BYTES_MAX)
