"""Mails with password reset tokens, sent by SMTP in the background, one at a time.

A request does not wait for the mail server, so its duration does not show whether an address is known.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger

SEND_S = 20.0
MAILS_WAITING_MAX = 100
"""More are dropped, as when the mail server is away; users then ask again."""
_PORTS = {"smtp": 587, "smtps": 465}
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_log = Logger("sparewatt.mail")


@dataclass(frozen=True, slots=True)
class MailServer:
    """`smtp://` uses STARTTLS, except to this machine; `smtps://` uses TLS from the first byte."""

    scheme: str
    host: str
    port: int
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)


def read_mail_server(url: str | None, sender: str | None) -> MailServer | None:
    """From the settings `smtp_url` and `smtp_from`, both or neither. Raises StartupError, which repeats no password."""
    if url is None and sender is None:
        return None
    parts = urlsplit(url or "")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in _PORTS or not host or not sender or "@" not in sender:
        raise StartupError(
            "Mail needs smtp_url, like smtp://user:password@mail.example:587, and smtp_from, like net@mail.example."
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.scheme, host, port or _PORTS[parts.scheme], sender, user, password)


class Mailer:
    def __init__(self, server: MailServer) -> None:
        self._server = server
        self._waiting: asyncio.Queue[EmailMessage] = asyncio.Queue(MAILS_WAITING_MAX)

    def enqueue(self, message: EmailMessage) -> None:
        """Send it later; drop it if too many wait."""
        message["From"] = self._server.sender
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            _log.warning("mail_dropped", waiting=self._waiting.qsize())

    async def send_next(self) -> None:
        """Wait for a mail, and send it."""
        message = await self._waiting.get()
        try:
            await asyncio.to_thread(send, self._server, message)
            _log.info("mail_sent")
        except (OSError, smtplib.SMTPException) as error:
            _log.warning("mail_failed", error=type(error).__name__)


def send(server: MailServer, message: EmailMessage) -> None:
    """Blocks. Raises OSError or SMTPException."""
    with _connected(server) as smtp:
        if server.user:
            smtp.login(server.user, server.password)
        smtp.send_message(message)


def _connected(server: MailServer) -> smtplib.SMTP:
    if server.scheme == "smtps":
        return smtplib.SMTP_SSL(server.host, server.port, timeout=SEND_S, context=ssl.create_default_context())
    smtp = smtplib.SMTP(server.host, server.port, timeout=SEND_S)
    if server.host not in _LOCAL:
        smtp.starttls(context=ssl.create_default_context())
    return smtp


def reset_message(email: str, token: str, *, root_url: str) -> EmailMessage:
    message = EmailMessage()
    message["To"] = email
    message["Subject"] = "Your Sparewatt password"
    message.set_content(
        f"Somebody, probably you, asked to set a new password for {email} at {root_url}.\n\n"
        f"To set it, run this within the hour and paste the token below:\n\n"
        f"  sparewatt password reset --base-url {root_url}/v1\n\n"
        f"  {token}\n\n"
        "If it was not you, do nothing: your password stays as it is.\n"
    )
    return message
