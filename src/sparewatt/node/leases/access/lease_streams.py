"""Serves the streams that a gateway opens: a log, a command or a port of a lease that this node has.

That the stream's renter may have it is the gateway's word. The node's own rules: the lease is placed here, and a port
is one that the order lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import assert_never

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.log import Logger
from sparewatt.link.traffic import StreamOver, TrafficStream
from sparewatt.node.leases.runtime.model import (
    ContainerMissing,
    EngineUnavailable,
    LeaseLabel,
    LeaseRuntimeError,
    OutputStream,
    PortUnreachable,
)
from sparewatt.node.leases.runtime.runtime import ExecSession, LeaseRuntime
from sparewatt.protocol.link.frames import decode_message
from sparewatt.protocol.link.traffic import (
    END_CHARS_MAX,
    EndCode,
    ExecOpen,
    LogsOpen,
    PortOpen,
    StreamEnd,
    StreamOpen,
    TerminalResize,
    TrafficOp,
)

_log = Logger("sparewatt.node")
READ_BYTES = 32 * 1024
EXIT_CODE_TRIES, EXIT_CODE_EVERY_S = 50, 0.1
"""The engine may need a moment to note that a command has ended whose output is over."""
END_OF_TERMINAL = b"\x04"
_OPS: dict[OutputStream, TrafficOp] = {"stdout": TrafficOp.OUT, "stderr": TrafficOp.ERR}


@dataclass(frozen=True, slots=True)
class ReachableLease:
    label: LeaseLabel
    ports: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseStreams:
    """Implements StreamAcceptor: a task for each stream."""

    runtime: LeaseRuntime
    find: Callable[[str], ReachableLease | None]
    """By order; None if it is not placed here."""
    clock: Clock
    _tasks: dict[TrafficStream, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def accept(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        task = asyncio.create_task(self._serve(stream, wanted))
        self._tasks[stream] = task
        task.add_done_callback(lambda _: self._tasks.pop(stream, None))

    def drop(self, stream: TrafficStream) -> None:
        if (task := self._tasks.get(stream)) is not None:
            task.cancel()

    async def _serve(self, stream: TrafficStream, wanted: StreamOpen) -> None:
        lease = self.find(wanted.order_id)
        if lease is None:
            stream.finish(_failed("unknown_lease", "this node does not have the lease"))
            return
        try:
            end = await self._carry(stream, lease, wanted)
        except StreamOver:
            return
        except LeaseRuntimeError as error:
            end = _failed(_code_of(error), str(error))
        except OSError as error:
            end = _failed("unreachable", error.strerror or type(error).__name__)
        stream.finish(end)

    async def _carry(self, stream: TrafficStream, lease: ReachableLease, wanted: StreamOpen) -> StreamEnd:
        match wanted:
            case LogsOpen():
                return await self._carry_logs(stream, lease, wanted)
            case ExecOpen():
                return await self._carry_command(stream, lease, wanted)
            case PortOpen():
                return await self._carry_port(stream, lease, wanted)
            case _:
                assert_never(wanted)

    async def _carry_logs(self, stream: TrafficStream, lease: ReachableLease, wanted: LogsOpen) -> StreamEnd:
        if await self.runtime.container(lease.label) is None:
            raise ContainerMissing("its container was not made yet")
        stream.opened()
        async with aclosing(self.runtime.logs(lease.label, follow=wanted.follow, tail=wanted.tail)) as output:  # type: ignore[type-var]
            async for name, data in output:
                await stream.send(data, _OPS[name])
        return StreamEnd()

    async def _carry_command(self, stream: TrafficStream, lease: ReachableLease, wanted: ExecOpen) -> StreamEnd:
        size = (wanted.columns, wanted.rows)
        session = await self.runtime.exec(lease.label, wanted.command, tty=wanted.tty, size=size)
        _log.info("lease_command_started", order=wanted.order_id, tty=wanted.tty)
        try:
            stream.opened()
            await _both(_pass_input(stream, session, is_tty=wanted.tty), _pass_output(stream, session))
            return StreamEnd(exit_code=await self._exit_code(session))
        except (asyncio.CancelledError, StreamOver):
            if wanted.tty:  # a shell whose terminal is gone ends
                with suppress(LeaseRuntimeError, asyncio.CancelledError):
                    await session.write(END_OF_TERMINAL)
            raise
        finally:
            await session.close()

    async def _exit_code(self, session: ExecSession) -> int | None:
        for _ in range(EXIT_CODE_TRIES):
            if (code := await session.exit_code()) is not None:
                return code
            await sleep_until(self.clock, self.clock.now_s() + EXIT_CODE_EVERY_S)
        return None

    async def _carry_port(self, stream: TrafficStream, lease: ReachableLease, wanted: PortOpen) -> StreamEnd:
        if wanted.port not in lease.ports:
            known = ", ".join(map(str, lease.ports)) or "none"
            return _failed("unknown_port", f"the order's ports are: {known}")
        reader, writer = await self.runtime.connect(lease.label, wanted.port)
        try:
            stream.opened()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_to_port(stream, writer))
                tasks.create_task(_pass_from_port(stream, reader))
        except* (OSError, StreamOver):
            pass  # either side reset the connection
        finally:
            writer.close()
        return StreamEnd()


async def _both(into: Coroutine[None, None, None], out: Coroutine[None, None, None]) -> None:
    """Until the output is over; the input may still wait for more."""
    pump = asyncio.create_task(into)
    try:
        await out
    finally:
        pump.cancel()
        await asyncio.wait([pump])
    if not pump.cancelled() and (error := pump.exception()) is not None and not isinstance(error, LeaseRuntimeError):
        raise error


async def _pass_input(stream: TrafficStream, session: ExecSession, *, is_tty: bool) -> None:
    while (item := await stream.receive()) is not None:
        match item.op:
            case TrafficOp.EOF:
                await (session.write(END_OF_TERMINAL) if is_tty else session.write_eof())
            case TrafficOp.RESIZE:
                size = decode_message(item.payload, TerminalResize)
                await session.resize((size.columns, size.rows))
            case _:
                await session.write(item.payload)


async def _pass_output(stream: TrafficStream, session: ExecSession) -> None:
    while (output := await session.read()) is not None:
        name, data = output
        await stream.send(data, _OPS[name])


async def _pass_to_port(stream: TrafficStream, writer: asyncio.StreamWriter) -> None:
    while (item := await stream.receive()) is not None:
        if item.op is TrafficOp.EOF:
            if writer.can_write_eof():
                writer.write_eof()
            return
        writer.write(item.payload)
        await writer.drain()


async def _pass_from_port(stream: TrafficStream, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(READ_BYTES):
        await stream.send(data)
    stream.send_eof()


def _code_of(error: LeaseRuntimeError) -> EndCode:
    match error:
        case ContainerMissing():
            return "not_running"
        case PortUnreachable():
            return "unreachable"
        case EngineUnavailable():
            return "unavailable"
        case _:
            return "refused"


def _failed(code: EndCode, message: str) -> StreamEnd:
    return StreamEnd(code=code, message=message[:END_CHARS_MAX])
