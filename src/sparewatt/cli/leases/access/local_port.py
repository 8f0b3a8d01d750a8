"""A local port that leads to a port of a lease: each connection is a socket of its own through the gateway."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.leases.access.lease_socket import open_socket, read_notice, send_control
from sparewatt.protocol.api.lease_access import SocketControl
from sparewatt.protocol.api.leases import LeaseDetails

LOOPBACK = "127.0.0.1"
READ_BYTES = 32 * 1024
CONNECTIONS_MAX = 64
"""As many as the gateway allows for one lease; more wait."""


def serve_port(client: ApiClient, wanted: str, port: int, *, local_port: int | None, as_json: bool) -> None:
    """Until Ctrl-C. Raises CliError."""
    lease = client.get(path_of("leases", wanted)).parse(LeaseDetails)
    listed = lease.content.get("ports", [])
    if port not in listed:
        known = ", ".join(map(str, listed)) or "none"
        raise CliError(
            f"The order of this lease does not list port {port}; its ports are: {known}.",
            next_step="Order it with --port, or 'ports' in the order file.",
            exit_code=ExitCode.USAGE,
        )
    asyncio.run(_LocalPort(client, lease.id, port).serve(local_port, as_json=as_json))


@dataclass(slots=True, eq=False)
class _LocalPort:
    client: ApiClient
    lease_id: str
    port: int
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS_MAX))
    _told: str = ""
    """The last trouble that was shown: repeated ones are not."""

    async def serve(self, local_port: int | None, *, as_json: bool) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            connections: set[asyncio.Task[None]] = set()

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._carry(session, reader, writer))
                connections.add(task)
                task.add_done_callback(connections.discard)

            server = await self._listen(accept, local_port)
            found = server.sockets[0].getsockname()[1]
            if as_json:
                output.print_json({"lease": self.lease_id, "port": self.port, "host": LOOPBACK, "local_port": found})
            else:
                print(f"{LOOPBACK}:{found} leads to port {self.port} of the lease {self.lease_id}.", flush=True)
                output.note("Ctrl-C ends it.")
            await stop.wait()
            server.close()
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _listen(self, accept: object, local_port: int | None) -> asyncio.Server:
        """On the same port if none was chosen and it is free here."""
        wanted = self.port if local_port is None else local_port
        try:
            return await asyncio.start_server(accept, LOOPBACK, wanted)  # type: ignore[arg-type]
        except OSError as error:
            if local_port is None:
                return await asyncio.start_server(accept, LOOPBACK, 0)  # type: ignore[arg-type]
            raise CliError(
                f"Cannot listen on {LOOPBACK}:{wanted} ({error.strerror}).", next_step="Choose another --local."
            ) from None

    async def _carry(
        self, session: aiohttp.ClientSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        path = path_of("leases", self.lease_id, "ports", str(self.port))
        try:
            async with self._places:
                socket = await open_socket(self.client, session, path)
                self._told = ""
                try:
                    await self._relay(socket, reader, writer)
                finally:
                    await socket.close()
        except CliError as error:
            self._tell(error)
        except OSError:
            pass  # the local program has left
        finally:
            writer.close()

    async def _relay(
        self, socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        sending = asyncio.create_task(_send_all(socket, reader))
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    writer.write(message.data)
                    await writer.drain()
                elif message.type is aiohttp.WSMsgType.TEXT:
                    notice = read_notice(self.client, message.data)
                    if notice.eof and writer.can_write_eof():
                        writer.write_eof()
                    if notice.ended:
                        return
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    def _tell(self, error: CliError) -> None:
        if error.message != self._told:
            self._told = error.message
            output.note(error.message)


async def _send_all(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while data := await reader.read(READ_BYTES):
            await socket.send_bytes(data)
        await send_control(socket, SocketControl(eof=True))
