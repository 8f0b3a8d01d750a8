"""`/v1/leases/{lease}/logs`, `/exec`, `/ports/{port}` and `/tickets`: what a renter and a gateway say on these.

A terminal's socket: the client's first message is an `ExecRequest` as text; then its binary messages are input, and
text messages are `SocketControl`. The gateway's binary messages begin with a byte, 1 for stdout and 2 for stderr; its
text messages are `SocketNotice`, the last of which has the exit code or an error. A port's socket has bytes as they
are, and the same text messages.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparewatt.protocol.api.inference import ErrorObject
from sparewatt.protocol.contracts.lease_content import ARGUMENTS_MAX, Argument, Port
from sparewatt.protocol.link.traffic import Columns, TerminalResize

STDOUT_BYTE, STDERR_BYTE = b"\x01", b"\x02"


class LeaseTicket(msgspec.Struct, frozen=True):
    """Opens one socket of one lease, once: `…/exec?ticket=…`, from a page of this gateway."""

    ticket: str
    lease: str
    """The lease's id, for the socket's path."""
    expires_at: float
    """Unix seconds."""


class LeaseSiteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: Port
    """One that the order lists."""


class LeaseSite(msgspec.Struct, frozen=True):
    """The public address of a lease; without port and address once it is closed."""

    lease: str
    port: int | None
    url: str | None


class LeaseLogPiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `…/logs?format=json`. An empty line in between is a keep-alive."""

    stream: Literal["stdout", "stderr"] = "stdout"
    text: str = ""
    """A part of the output, with its line ends."""
    error: ErrorObject | None = None
    """Why the log broke off: the last line."""


class ExecRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=ARGUMENTS_MAX)]
    tty: bool = False
    columns: Columns = 80
    rows: Columns = 24


class SocketControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    resize: TerminalResize | None = None
    eof: bool = False
    """The client sends no more input."""


class SocketNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    started: bool = False
    eof: bool = False
    """The lease's side of a port sends no more."""
    exit_code: int | None = None
    ended: bool = False
    """It is over as it should be."""
    error: ErrorObject | None = None
