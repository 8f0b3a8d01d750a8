"""A WebSocket into a lease, as commands use it: opened with the key, with errors as the network words them."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec

from sparewatt.cli.client import ApiClient
from sparewatt.cli.errors import CliError, NoReply
from sparewatt.core.limits import MIB
from sparewatt.protocol.api.lease_access import SocketControl, SocketNotice

OPEN_S = 30.0
"""The gateway waits up to 12 s for a machine whose agent starts again."""


async def open_socket(client: ApiClient, session: aiohttp.ClientSession, path: str) -> aiohttp.ClientWebSocketResponse:
    """Raises CliError."""
    url, headers = client.socket_address(path)
    try:
        async with asyncio.timeout(OPEN_S):
            return await session.ws_connect(url, headers=headers, max_msg_size=MIB, compress=0)
    except aiohttp.WSServerHandshakeError as error:
        await asyncio.to_thread(client.get, path)  # raises what the network says about it
        raise NoReply(f"The network answered with HTTP status {error.status}.", next_step="Try again.") from None
    except TimeoutError:
        raise NoReply(f"{client.base_url} did not answer in time.", next_step="Try again.") from None
    except (aiohttp.ClientError, OSError) as error:
        raise NoReply(f"No connection to {client.base_url} ({type(error).__name__}).", next_step="Try again.") from None


async def send_control(socket: aiohttp.ClientWebSocketResponse, control: SocketControl) -> None:
    """A socket that has ended does not hear it."""
    try:
        await socket.send_str(msgspec.json.encode(control).decode())
    except ConnectionError:
        return


def read_notice(client: ApiClient, text: str) -> SocketNotice:
    """Raises CliError for an error that the network tells."""
    try:
        notice = msgspec.json.decode(text, type=SocketNotice)
    except msgspec.DecodeError:
        raise CliError("The network sent something that this version does not know.") from None
    if notice.error is not None:
        raise client.build_error(notice.error, status=502, path="/leases")
    return notice
