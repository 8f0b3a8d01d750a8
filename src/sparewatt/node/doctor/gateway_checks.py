"""The way to the gateway: name, TLS, answer, version, clock, and whether a WebSocket gets through."""

from __future__ import annotations

import asyncio
import email.utils
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp

from sparewatt import __version__
from sparewatt.core.errors import StartupError
from sparewatt.core.versions import version_conflict
from sparewatt.node.doctor.check import DoctorCheck, failure, ok, warning
from sparewatt.node.process import check_gateway_url
from sparewatt.protocol.link.frames import LINK_PATH

ASK_S = 10.0
SKEW_S = 60.0
"""Signatures carry no time, but schedules and logs do; more than this confuses people."""
TOKEN_START = "join-sw-"  # noqa: S105 (how tokens begin)


async def check_gateway(
    url: str, session: aiohttp.ClientSession, *, unix_s: Callable[[], float], insecure: bool = False
) -> list[DoctorCheck]:
    """Each step needs the one before; the first that fails is the last that is told."""
    try:
        check_gateway_url(url, insecure=insecure)
    except StartupError as error:
        return [failure("gateway", error.message, "Check the address.")]
    root = url.rstrip("/").removesuffix("/v1")
    try:
        async with session.get(f"{root}/version", timeout=aiohttp.ClientTimeout(total=ASK_S)) as reply:
            told: Any = await reply.json(content_type=None)
            date, status = reply.headers.get("Date"), reply.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return [describe_connection_error(root, error)]
    if status != 200 or not isinstance(told, dict) or "link_protocol" not in told:
        return [failure("gateway", f"{root} answers, but is no Sparewatt gateway ({status})", "Check the address.")]
    checks = [ok("gateway", f"{root} answers"), check_version(str(told.get("version"))), check_clock(date, unix_s())]
    return [*checks, await _check_socket(root, session)]


def describe_connection_error(root: str, error: Exception) -> DoctorCheck:
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            found = f"the certificate of {root} is not to be trusted ({error})"
            advice = (
                "Check the address and this machine's clock; if a company proxy is in between, install its certificate."
            )
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            found = f"{root} does not speak TLS"
            advice = "Is it http:// and not https://, or another port?"
        case aiohttp.ClientConnectorDNSError():
            found = f"the name in {root} cannot be found"
            advice = "Check the address, and this machine's connection."
        case TimeoutError():
            found = f"{root} does not answer within {ASK_S:.0f} s"
            advice = "A firewall may let nothing out to that port; the node needs only this one outgoing connection."
        case aiohttp.ClientConnectorError():
            found = f"{root} refuses connections ({error.strerror or error})"
            advice = "Is the gateway running, and the port right?"
        case _:
            found = f"{root} answers nothing that makes sense ({type(error).__name__})"
            advice = "Check the address: is there a Sparewatt gateway?"
    return failure("gateway", found, advice)


def check_version(gateway: str) -> DoctorCheck:
    apart = version_conflict(agent=__version__, gateway=gateway)
    if apart is not None:
        return failure("version", apart, "pip install the wheel that the gateway's join line names.")
    return ok("version", f"agent {__version__} and gateway {gateway} work together")


def check_clock(date: str | None, now_unix_s: float) -> DoctorCheck:
    """By the gateway's own clock, to the second."""
    try:
        skew_s = now_unix_s - email.utils.parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return warning("clock", "the gateway does not tell its time", "Nothing to do.")
    if abs(skew_s) > SKEW_S:
        ahead = "ahead of" if skew_s > 0 else "behind"
        found = f"this machine's clock is {abs(skew_s):.0f} s {ahead} the gateway's"
        return warning("clock", found, "Switch on time synchronisation: schedules and certificates depend on it.")
    return ok("clock", f"within {max(1, round(abs(skew_s)))} s of the gateway's")


async def _check_socket(root: str, session: aiohttp.ClientSession) -> DoctorCheck:
    """Outgoing only: nothing has to be opened in a router."""
    try:
        async with asyncio.timeout(ASK_S), session.ws_connect(root + LINK_PATH):
            return ok("link", "a WebSocket gets through: no port has to be open here")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        found = f"the gateway answers, but no WebSocket gets through ({type(error).__name__})"
        return failure("link", found, "A proxy on the way must let WebSockets pass; try another network.")


def check_token(token: str | None) -> list[DoctorCheck]:
    """Only its form: looking at it would use it up."""
    if token is None:
        return []
    if not token.startswith(TOKEN_START):
        return [
            failure(
                "token", "this is no join token", f"It begins with {TOKEN_START}; 'sparewatt node token' makes one."
            )
        ]
    return [ok("token", "it has the form of a join token (each is good once, for 24 hours)")]
