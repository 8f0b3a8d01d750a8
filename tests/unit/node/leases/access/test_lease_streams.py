"""A node serves logs, commands and ports of its leases, with an engine in memory and a real traffic link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.link.traffic import TrafficLink, TrafficStream
from sparewatt.node.leases.access.lease_streams import LeaseStreams, ReachableLease
from sparewatt.node.leases.access.reachable import find_reachable
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel
from sparewatt.node.leases.runtime.probe_image import PROGRAM
from sparewatt.protocol.link.lease_tasks import TaskState
from sparewatt.protocol.link.traffic import (
    ExecOpen,
    LogsOpen,
    PortOpen,
    StreamEnd,
    StreamOpen,
    TerminalResize,
    TrafficOp,
)
from sparewatt.testing.memory_runtime import MemoryEngine, MemoryRuntime
from sparewatt.testing.memory_socket import socket_pair
from tests.unit.node.leases.placed.placed_world import IMAGE, Node, running, task, until
from tests.waiting import CEILING_S

ORDER, UNKNOWN = "0x" + "01" * 32, "0x" + "02" * 32
LABEL = LeaseLabel(ORDER, 1, 0, "0x" + "aa" * 20)
LASTING = ("say", "hello", "complain", "oh", "listen", "80")


@dataclass(slots=True)
class Rig:
    gateway: TrafficLink
    runtime: MemoryRuntime
    streams: LeaseStreams

    async def start(self, *words: str) -> None:
        plan = ContainerPlan(
            label=LABEL,
            image=IMAGE,
            command=(PROGRAM, *words),
            cpu_milli=100,
            memory_mib=64,
            disk_mib=64,
            egress=False,
        )
        await self.runtime.start(plan)

    async def open(self, wanted: StreamOpen) -> TrafficStream:
        stream = self.gateway.open(wanted)
        await asyncio.wait_for(stream.wait_opened(), CEILING_S)
        return stream


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    engine, clock = MemoryEngine(images=[IMAGE]), SystemClock()
    runtime = MemoryRuntime(engine, clock=clock, rng=seeded(1))
    reachable = {ORDER: ReachableLease(LABEL, (80, 81))}
    streams = LeaseStreams(runtime=runtime, find=reachable.get, clock=clock)
    near, far = socket_pair()
    gateway, node = TrafficLink(), TrafficLink(acceptor=streams)
    gateway.start(near)
    node.start(far)
    yield Rig(gateway, runtime, streams)
    gateway.close()
    node.close()
    await asyncio.gather(*streams._tasks.values(), return_exceptions=True)
    await engine.close()


async def all_of(stream: TrafficStream, op: TrafficOp = TrafficOp.OUT) -> bytes:
    found = b""
    async with asyncio.timeout(CEILING_S):
        while (item := await stream.receive()) is not None:
            found += item.payload if item.op is op else b""
    return found


async def until_listening(rig: Rig) -> bytes:
    """Its output until then."""
    async with asyncio.timeout(CEILING_S):
        while True:
            out = await all_of(await rig.open(LogsOpen(order_id=ORDER)))
            if out.endswith(b"listen 80\n"):
                return out
            await asyncio.sleep(0.01)


async def test_a_log_has_both_streams_and_ends(rig: Rig) -> None:
    await rig.start(*LASTING)
    assert await until_listening(rig) == b"hello\nlisten 80\n"
    stream = await rig.open(LogsOpen(order_id=ORDER))
    assert await all_of(stream, TrafficOp.ERR) == b"oh\n"
    assert stream.end == StreamEnd()


async def test_a_followed_log_goes_on_until_it_is_cancelled(rig: Rig) -> None:
    await rig.start("say", "early", "wait", "50", "say", "late", "wait", "1000000")
    stream = await rig.open(LogsOpen(order_id=ORDER, follow=True))
    text = b""
    async with asyncio.timeout(CEILING_S):
        while b"late" not in text:
            item = await stream.receive()
            assert item is not None
            text += item.payload
    stream.cancel()
    await until(lambda: not rig.streams._tasks, "the node still reads the log")


async def test_a_command_has_its_streams_and_its_exit_code(rig: Rig) -> None:
    await rig.start(*LASTING)
    stream = await rig.open(ExecOpen(order_id=ORDER, command=(PROGRAM, "say", "x", "complain", "y", "exit", "7")))
    assert await all_of(stream) == b"x\n"
    assert stream.end == StreamEnd(exit_code=7)


async def test_a_commands_input_reaches_it_and_its_end_too(rig: Rig) -> None:
    await rig.start(*LASTING)
    stream = await rig.open(ExecOpen(order_id=ORDER, command=(PROGRAM, "echo")))
    await stream.send(b"through ")
    await stream.send(b"and back")
    stream.send_eof()
    assert await all_of(stream) == b"through and back"
    assert stream.end == StreamEnd(exit_code=0)


async def test_a_terminal_has_the_size_that_was_said_last(rig: Rig) -> None:
    await rig.start(*LASTING)
    stream = await rig.open(
        ExecOpen(order_id=ORDER, command=(PROGRAM, "size", "wait", "100", "size"), tty=True, columns=90, rows=20)
    )
    stream.resize(TerminalResize(120, 40))
    assert await all_of(stream) == b"size 90 20\nwait\nsize 120 40\n"


async def test_a_command_that_is_left_ends_at_the_node(rig: Rig) -> None:
    await rig.start(*LASTING)
    stream = await rig.open(ExecOpen(order_id=ORDER, command=(PROGRAM, "wait", "1000000")))
    stream.cancel()
    await until(lambda: not rig.streams._tasks, "the command is still carried")


async def test_a_port_that_the_order_lists_is_connected(rig: Rig) -> None:
    await rig.start(*LASTING)
    await until_listening(rig)
    stream = await rig.open(PortOpen(order_id=ORDER, port=80))
    stream.send_eof()
    assert await all_of(stream) == b"probe\n"
    assert stream.end == StreamEnd()


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (PortOpen(order_id=ORDER, port=22), "unknown_port", "the order's ports are: 80, 81"),
        (PortOpen(order_id=ORDER, port=81), "unreachable", "nothing answers at port 81"),
        (PortOpen(order_id=UNKNOWN, port=80), "unknown_lease", "this node does not have the lease"),
        (LogsOpen(order_id=UNKNOWN), "unknown_lease", "this node does not have the lease"),
        (ExecOpen(order_id=UNKNOWN, command=("sh",)), "unknown_lease", "this node does not have the lease"),
    ],
)
async def test_what_cannot_be_reached_is_told(rig: Rig, wanted: StreamOpen, code: str, words: str) -> None:
    await rig.start(*LASTING)
    stream = await rig.open(wanted)
    assert stream.end is not None
    assert (stream.end.code, stream.end.message, stream.is_opened) == (code, words, False)


@pytest.mark.parametrize(
    "wanted", [LogsOpen(order_id=ORDER), ExecOpen(order_id=ORDER, command=("sh",)), PortOpen(order_id=ORDER, port=80)]
)
async def test_a_lease_without_a_container_is_told(rig: Rig, wanted: StreamOpen) -> None:
    stream = await rig.open(wanted)
    assert stream.end is not None
    assert stream.end.code == "not_running"


async def test_a_command_in_a_paused_container_is_refused(rig: Rig) -> None:
    await rig.start(*LASTING)
    await rig.runtime.pause(LABEL)
    stream = await rig.open(ExecOpen(order_id=ORDER, command=(PROGRAM, "say", "x")))
    assert stream.end is not None
    assert stream.end.code == "refused"


async def test_a_node_finds_leases_that_it_has_and_no_others(tmp_path: Path) -> None:
    engine = MemoryEngine(images=[IMAGE])
    async with running(Node(tmp_path, engine)) as node:
        given = task(state=TaskState.ACTIVE)
        assert find_reachable(node.runner, given.order_id) is None
        node.runner.on_task(given)
        await until(lambda: find_reachable(node.runner, given.order_id) is not None, "it is not known")
        found = find_reachable(node.runner, given.order_id)
        assert found is not None
        assert (found.label.lease_id, found.label.term, found.ports) == (given.order_id, 1, ())
        node.runner.on_task(task(state=TaskState.OVER))
        await until(lambda: find_reachable(node.runner, given.order_id) is None, "it is over")
    await engine.close()
