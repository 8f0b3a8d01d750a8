"""What a link needs of a socket: the same on memory, on picows and on aiohttp, and between the two."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from sparewatt.core.errors import LinkFlooded, LinkLost, ProtocolViolation
from sparewatt.core.limits import KIB, LINK_MESSAGE_BYTES_MAX
from sparewatt.core.rng import seeded
from sparewatt.link.sockets import CLOSE_FLOODED, CLOSED_FOR, LINK_EARLY_BYTES_MAX, Socket
from tests.contract.link.conftest import Pair
from tests.contract.link.listeners import RecordingListener
from tests.waiting import CEILING_S, until


async def receive_in_time(socket: Socket) -> bytes:
    async with asyncio.timeout(CEILING_S):
        return await socket.receive()


@pytest.mark.parametrize("n_bytes", [0, 1, 125, 126, 8193, 64 * KIB, 256 * KIB + 1, LINK_MESSAGE_BYTES_MAX - 1])
async def test_a_message_arrives_as_it_was_sent(pair: Pair, n_bytes: int) -> None:
    message = seeded(n_bytes).randbytes(n_bytes)
    for sender, receiver in (pair, reversed(pair)):
        sender.send(message)
        assert await receive_in_time(receiver) == message


async def test_messages_arrive_in_order_and_apart(pair: Pair) -> None:
    near, far = pair
    listener = RecordingListener(far)
    for i in range(2000):
        near.send(str(i).encode())
    await until(lambda: len(listener.received) == 2000)
    assert listener.received == [str(i).encode() for i in range(2000)]


async def test_what_came_before_there_was_a_listener_is_received_first(pair: Pair) -> None:
    near, far = pair
    near.send(b"one")
    near.send(b"two")
    assert await receive_in_time(far) == b"one"
    await until(lambda: far._early)
    listener = RecordingListener(far)
    assert listener.received == [b"two"]
    near.send(b"three")
    await until(lambda: len(listener.received) == 2)
    assert listener.received == [b"two", b"three"]


async def test_both_directions_flow_at_once(pair: Pair) -> None:
    listeners = [RecordingListener(socket) for socket in pair]
    message = seeded(1).randbytes(256 * KIB)
    for _ in range(20):
        for socket in pair:
            socket.send(message)
    await until(lambda: all(len(listener.received) == 20 for listener in listeners))
    assert all(set(listener.received) == {message} for listener in listeners)


async def test_long_messages_that_are_sent_in_one_tick_do_not_mix(pair: Pair) -> None:
    near, far = pair
    listener = RecordingListener(near)
    sizes = [20 * KIB + i for i in range(200)]
    for size in sizes:
        far.send(bytes(size))
    await until(lambda: len(listener.received) == len(sizes))
    assert [len(message) for message in listener.received] == sizes


async def test_an_answer_may_be_sent_from_inside_a_message(pair: Pair) -> None:
    near, far = pair
    RecordingListener(far, on_message=far.send)
    near.send(b"echo")
    assert await receive_in_time(near) == b"echo"


async def test_what_was_sent_before_the_end_still_arrives(pair: Pair) -> None:
    near, far = pair
    big = seeded(2).randbytes(LINK_MESSAGE_BYTES_MAX - 1)
    listener = RecordingListener(far)
    near.send(big)
    near.send(b"last words")
    near.close()
    await until(lambda: listener.ends)
    assert listener.received == [big, b"last words"]
    assert isinstance(listener.ends[0], LinkLost)


async def test_a_receiver_that_waits_learns_of_the_end(pair: Pair) -> None:
    near, far = pair
    waiting = asyncio.create_task(receive_in_time(far))
    await asyncio.sleep(0)
    near.close()
    with pytest.raises(LinkLost):
        await waiting


async def test_a_listener_learns_of_the_end_once_and_of_its_own_not_at_all(pair: Pair) -> None:
    near, far = pair
    here, there = RecordingListener(near), RecordingListener(far)
    near.close()
    near.close()
    await until(lambda: there.ends)
    far.close()
    far.abort()
    async with asyncio.timeout(CEILING_S):
        await asyncio.gather(near.wait_closed(), far.wait_closed())
    assert (here.ends, len(there.ends)) == ([], 1)


async def test_after_the_own_end_nothing_is_sent_or_received(pair: Pair) -> None:
    near, far = pair
    listener = RecordingListener(far)
    near.close()
    near.send(b"x")
    with pytest.raises(LinkLost):
        await receive_in_time(near)
    await until(lambda: listener.ends)
    assert listener.received == []
    far.send(b"y")


async def test_a_connection_that_is_taken_away_is_told_at_both_ends(pair: Pair) -> None:
    here, there = (RecordingListener(socket) for socket in pair)
    pair[0].abort()
    assert len(here.ends) == 1
    await until(lambda: there.ends)
    assert isinstance(there.ends[0], LinkLost)


async def test_a_listener_that_rejects_a_message_ends_the_connection(pair: Pair) -> None:
    near, far = pair

    def refuse(message: bytes) -> None:
        raise ProtocolViolation("nonsense")

    here, there = RecordingListener(near), RecordingListener(far, on_message=refuse)
    near.send(b"a")
    near.send(b"b")
    await until(lambda: here.ends)
    assert there.received == [b"a"]
    assert [str(end) for end in there.ends] == ["nonsense"]


async def test_a_peer_that_sends_too_much_learns_by_the_close_code_why_it_is_ended(pair: Pair) -> None:
    near, far = pair

    def refuse(message: bytes) -> None:
        raise LinkFlooded("it sent too many")

    here, there = RecordingListener(near), RecordingListener(far, on_message=refuse)
    near.send(b"a")
    await until(lambda: here.ends)
    assert [str(end) for end in here.ends] == [CLOSED_FOR[CLOSE_FLOODED]]
    assert [str(end) for end in there.ends] == ["it sent too many"]


async def test_a_listener_that_raises_ends_the_connection_and_is_not_swallowed(pair: Pair) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    near, far = pair

    def divide(message: bytes) -> None:
        raise ZeroDivisionError

    here, there = RecordingListener(near), RecordingListener(far, on_message=divide)
    near.send(b"a")
    await until(lambda: here.ends)
    assert isinstance(there.ends[0], LinkLost)
    assert [type(error.get("exception")) for error in errors] == [ZeroDivisionError]


async def test_a_peer_that_talks_before_it_is_asked_is_bounded(pair: Pair) -> None:
    near, far = pair
    for _ in range(LINK_EARLY_BYTES_MAX // (64 * KIB) + 1):
        near.send(bytes(64 * KIB))
    await until(lambda: far.is_over)
    assert far._early_bytes <= LINK_EARLY_BYTES_MAX + 65 * KIB


async def test_a_listener_attached_after_the_end_gets_on_lost_at_once(pair: Pair) -> None:
    """The peer may close right behind the last message of a handshake."""
    near, far = pair
    far.send(b"welcome")
    far.close()
    assert await receive_in_time(near) == b"welcome"
    await until(lambda: near.is_over)
    assert [type(error) for error in RecordingListener(near).ends] == [LinkLost]


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("ends_by", ["violation", "close", "abort"])
async def test_an_ended_socket_frees_its_listener_without_the_garbage_collector(pair: Pair, ends_by: str) -> None:
    """Nodes come and go by the thousand, and the collector hardly ever looks at what has lived for seconds."""
    near, far = pair

    def refuse(message: bytes) -> None:
        raise ProtocolViolation("nonsense")

    listener = RecordingListener(far, on_message=refuse)
    freed = weakref.ref(listener)
    {"violation": lambda: near.send(b"a"), "close": near.close, "abort": near.abort}[ends_by]()
    await until(lambda: far.is_over)
    del listener
    await until(lambda: freed() is None)


async def test_the_error_of_the_end_leads_to_no_frame(pair: Pair) -> None:
    near, far = pair
    near.close()
    await until(lambda: far.is_over)
    for _ in range(2):
        with pytest.raises(LinkLost) as raised:
            await receive_in_time(far)
        assert raised.value is not far._end
    assert far._end is not None
    assert far._end.__traceback__ is None
