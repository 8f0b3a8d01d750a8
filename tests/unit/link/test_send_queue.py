from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_FRAME_BYTES_MAX, MIB, REQUEST_BODY_BYTES_MAX
from sparewatt.link import send_queue as send_queue_module
from sparewatt.link.send_queue import LINK_SEND_QUEUE_BYTES_MAX, SendQueue
from sparewatt.link.sockets import LINK_BATCH_BYTES, Socket
from sparewatt.testing.memory_socket import MemorySocket, socket_pair
from tests.waiting import turns, until

BIG = bytes(LINK_FRAME_BYTES_MAX)


class Sending:
    """A send queue on one end of a pair. Implements SocketListener, as a link does."""

    def __init__(self, *, capacity: int = 1024) -> None:
        self.near, self.far = socket_pair(capacity=capacity)
        self.queue = SendQueue()
        self.stuck: list[LinkLost] = []
        self.done = 0

    def start(self) -> Sending:
        self.queue.attach(self.near, on_stuck=self.stuck.append)
        self.near.attach(self)
        return self

    def finish(self) -> None:
        self.queue.finish(self._on_done)

    def _on_done(self) -> None:
        self.done += 1
        self.near.close()

    def receive(self, message: bytes) -> None: ...

    def on_lost(self, error: Exception) -> None: ...

    def resume(self) -> None:
        self.queue.resume()

    async def jam(self) -> None:
        """The peer stops reading, and the line is full."""
        self.far.stop_reading()
        self.queue.put(b"taken")
        await turns()
        self.queue.put(b"stuck")
        await turns()
        assert self.near.is_paused


class Received(list[bytes]):
    """Implements SocketListener: records every message."""

    is_over = False

    def __init__(self, socket: MemorySocket) -> None:
        super().__init__()
        socket.attach(self)

    def receive(self, message: bytes) -> None:
        self.append(message)

    def on_lost(self, error: Exception) -> None:
        self.is_over = True

    def resume(self) -> None: ...


def fill(queue: SendQueue) -> None:
    """One frame more than may wait."""
    for _ in range(LINK_SEND_QUEUE_BYTES_MAX // len(BIG) + 1):
        queue.put(BIG)


async def everything(socket: Socket) -> AsyncIterator[bytes]:
    """All messages until the other end closes."""
    with suppress(LinkLost):
        while True:
            yield await socket.receive()


async def test_what_is_put_in_one_tick_leaves_as_one_message() -> None:
    sending = Sending().start()
    for frame in (b"a", b"b", b"c"):
        sending.queue.put(frame)
    assert await sending.far.receive() == b"abc"


async def test_what_is_put_in_another_tick_leaves_as_another_message() -> None:
    sending = Sending().start()
    for frame in (b"a", b"b"):
        sending.queue.put(frame)
        await turns()
    assert [await sending.far.receive(), await sending.far.receive()] == [b"a", b"b"]


async def test_frames_put_before_there_is_a_socket_are_sent() -> None:
    sending = Sending()
    sending.queue.put(b"early")
    sending.start()
    assert await sending.far.receive() == b"early"


async def test_frames_leave_in_order_and_a_batch_is_bounded() -> None:
    sending = Sending().start()
    received = Received(sending.far)
    frames = [bytes([i % 251]) * (LINK_BATCH_BYTES // (1, 10, 20, 30)[i % 4]) for i in range(60)]
    for frame in frames:
        sending.queue.put(frame)
    sending.finish()
    await until(lambda: received.is_over)
    assert b"".join(received) == b"".join(frames)
    assert all(len(message) <= LINK_BATCH_BYTES for message in received)
    assert len(received) < len(frames)


async def test_frames_that_make_exactly_a_batch_are_two_messages() -> None:
    sending = Sending().start()
    for _ in range(4):
        sending.queue.put(bytes(LINK_BATCH_BYTES // 4))
    assert len(await sending.far.receive()) == LINK_BATCH_BYTES * 3 // 4
    assert len(await sending.far.receive()) == LINK_BATCH_BYTES // 4


async def test_a_frame_that_is_longer_than_a_batch_is_a_message_by_itself() -> None:
    sending = Sending().start()
    for frame in (BIG, b"small"):
        sending.queue.put(frame)
    assert [len(await sending.far.receive()), await sending.far.receive()] == [len(BIG), b"small"]


async def test_finishing_sends_what_is_queued_and_takes_no_more() -> None:
    sending = Sending().start()
    sending.queue.put(b"last")
    sending.finish()
    sending.queue.put(b"too late")
    assert [message async for message in everything(sending.far)] == [b"last"]
    assert sending.done == 1


async def test_finishing_waits_for_a_peer_that_is_slow() -> None:
    sending = Sending(capacity=1).start()
    await sending.jam()
    sending.finish()
    await turns()
    assert sending.done == 0
    sending.far.resume_reading()
    assert [message async for message in everything(sending.far)] == [b"taken", b"stuck"]
    assert sending.done == 1


async def test_a_paused_socket_is_sent_nothing_until_it_resumes() -> None:
    sending = Sending(capacity=1).start()
    await sending.jam()
    sending.queue.put(b" too")
    await turns()
    sending.far.resume_reading()
    assert [await sending.far.receive(), await sending.far.receive()] == [b"taken", b"stuck too"]


async def test_a_queue_that_overflows_before_there_is_a_socket_ends_the_link() -> None:
    sending = Sending()
    fill(sending.queue)
    sending.start()
    await until(lambda: sending.stuck)
    assert "stopped reading" in str(sending.stuck[0])


async def test_a_queue_may_be_full_to_its_limit() -> None:
    sending = Sending()
    for _ in range(LINK_SEND_QUEUE_BYTES_MAX // len(BIG)):
        sending.queue.put(BIG)
    assert not sending.queue.has_room(1)
    sending.start()
    Received(sending.far)
    await until(lambda: sending.queue.has_room(LINK_SEND_QUEUE_BYTES_MAX))
    assert not sending.stuck


async def test_a_queue_that_overflows_while_the_peer_does_not_read_ends_the_link_soon_but_not_within_the_put() -> None:
    sending = Sending(capacity=1).start()
    await sending.jam()
    fill(sending.queue)
    assert not sending.stuck
    await turns()
    assert len(sending.stuck) == 1


async def test_a_queue_that_overflowed_ends_the_link_even_if_the_peer_reads_again() -> None:
    """Frames were lost: going on without them would be worse than the end."""
    sending = Sending(capacity=1).start()
    await sending.jam()
    fill(sending.queue)
    sending.far.resume_reading()
    await turns()
    sending.queue.put(b"later")
    await turns()
    assert len(sending.stuck) == 1
    assert await sending.far.receive() == b"taken"
    assert not sending.far._early


async def test_a_message_that_is_never_sent_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue_module, "LINK_SEND_S", 0.01)
    sending = Sending(capacity=1).start()
    await sending.jam()
    await until(lambda: sending.stuck)
    assert "stopped reading" in str(sending.stuck[0])


async def test_a_slow_reader_does_not_end_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue_module, "LINK_SEND_S", 0.2)
    sending = Sending(capacity=1).start()
    for _ in range(4):
        await sending.jam()
        await asyncio.sleep(0.08)
        sending.far.resume_reading()
        assert [await sending.far.receive(), await sending.far.receive()] == [b"taken", b"stuck"]
    assert not sending.stuck


async def test_an_idle_link_may_stay_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue_module, "LINK_SEND_S", 0.01)
    sending = Sending().start()
    sending.queue.put(b"one")
    assert await sending.far.receive() == b"one"
    await asyncio.sleep(0.05)
    sending.queue.put(b"two")
    assert await sending.far.receive() == b"two"
    assert not sending.stuck


async def test_after_the_end_nothing_is_queued() -> None:
    sending = Sending().start()
    sending.queue.put(b"x")
    sending.queue.drop()
    fill(sending.queue)
    await turns()
    assert sending.queue.has_room(LINK_SEND_QUEUE_BYTES_MAX)
    assert (sending.stuck, sending.far._early) == ([], type(sending.far._early)())


def test_the_largest_body_fits_into_an_empty_queue() -> None:
    assert SendQueue().has_room(REQUEST_BODY_BYTES_MAX + MIB)
