"""Dials a gateway with picows where it is installed, else with aiohttp.

Errors of both libraries come out alike: `UpgradeRefused`, `LinkLost` or an `OSError`. When to dial again is up to the
agent.
"""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

import aiohttp

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX
from sparewatt.link.aiohttp_sockets import AiohttpSocket
from sparewatt.link.sockets import Socket
from sparewatt.link.websocket_library import WebSocketLibrary, has_picows


class UpgradeRefused(LinkLost):
    """An HTTP server answered, but did not switch to WebSocket."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answered {status}")
        self.answered_status = status


async def dial(url: str, *, session: aiohttp.ClientSession, library: WebSocketLibrary = "auto") -> Socket:
    """Raises LinkLost, OSError or aiohttp's ClientError. Only aiohttp sends a name and password from the URL."""
    if library == "aiohttp" or (library == "auto" and (not has_picows() or urlsplit(url).username is not None)):
        return await _dial_aiohttp(url, session)
    return await _dial_picows(url)


async def _dial_aiohttp(url: str, session: aiohttp.ClientSession) -> Socket:
    try:
        return AiohttpSocket(await session.ws_connect(url, max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=0))
    except aiohttp.WSServerHandshakeError as error:
        raise UpgradeRefused(error.status) from None


async def _dial_picows(url: str) -> Socket:
    from picows import WSError, WSHandshakeError  # noqa: PLC0415 (may not be installed)

    from sparewatt.link.picows_sockets import dial_picows  # noqa: PLC0415 (likewise)

    try:
        return await dial_picows(url)
    except WSHandshakeError as error:
        if error.response is not None:
            raise UpgradeRefused(error.response.status) from None
        raise LinkLost(f"its answer makes no sense ({type(error).__name__})") from None
    except WSError as error:
        raise LinkLost(str(error)[:200]) from None


def explain_permanent_error(root_url: str, error: Exception) -> str | None:
    """What the owner has to correct in `root_url`; None for an error that dialling again may get over."""
    match error:
        case UpgradeRefused():
            return f"{root_url} is no Sparewatt gateway: it answered {error.answered_status}. Check the address."
        case aiohttp.ClientConnectorCertificateError():
            return _untrusted(root_url, error.certificate_error)
        case ssl.SSLCertVerificationError():
            return _untrusted(root_url, error)
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return f"{root_url} cannot be found. Check the address."
        case _:
            return None


def _untrusted(root_url: str, error: Exception) -> str:
    return (
        f"The certificate of {root_url} is not trusted here ({error}). "
        "If it is your own, say where it is: SSL_CERT_FILE=gateway.crt."
    )
