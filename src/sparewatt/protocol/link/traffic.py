"""Frames of the lease traffic: logs, terminals and ports of leases, over a WebSocket of their own that the node dials.

Frames look as those of the link (`frames`), with operations of their own. Every stream is numbered by the gateway.
Flow control is by credit in both directions: a sender may have `TRAFFIC_WINDOW_BYTES` under way on a stream, each frame
counted with an overhead, and more as CREDIT arrives. So a reader that stalls holds back its own stream only.

    gateway → node   OPEN, OUT, EOF, CREDIT, RESIZE, CANCEL
    node → gateway   OPENED, OUT, ERR, EOF, CREDIT, END
"""

from __future__ import annotations

import enum
import struct
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import KIB
from sparewatt.protocol.contracts.lease_content import ARGUMENTS_MAX, Argument, Port
from sparewatt.protocol.link.lease_frames import Hash

TRAFFIC_PATH = "/link/v1/traffic"
TRAFFIC_WINDOW_BYTES = 256 * KIB
"""Under way on one stream in one direction: 2.5 MB/s over a path of 100 ms, and 32 MiB for all streams of a node."""
TRAFFIC_FRAME_COST = 64
"""Counted for each frame beside its payload, so that many small ones are bounded too."""
TRAFFIC_PIECE_BYTES = 32 * KIB
"""Payload of one data frame: keystrokes of a terminal do not wait long behind a download."""
TRAFFIC_STREAMS_MAX = 128
"""On one socket. Their windows together stay below what its send queue holds."""
LOG_LINES_MAX = 10_000
END_CHARS_MAX = 300
TERMINAL_MAX = 1_000
_CREDIT = struct.Struct(">I")

Columns = Annotated[int, Meta(ge=1, le=TERMINAL_MAX)]


class TrafficOp(enum.IntEnum):
    OPEN = 1
    OPENED = 2
    """The log begins, the command runs, or the port is connected."""
    OUT = 3
    """Bytes: of a log or command its stdout, of a port what was received; to the node: input."""
    ERR = 4
    """Bytes of stderr."""
    EOF = 5
    """The sender sends no more bytes."""
    CREDIT = 6
    RESIZE = 7
    END = 8
    CANCEL = 9


class LogsOpen(msgspec.Struct, frozen=True, kw_only=True, tag="logs", tag_field="kind"):
    order_id: Hash
    follow: bool = False
    tail: Annotated[int, Meta(ge=0, le=LOG_LINES_MAX)] = LOG_LINES_MAX


class ExecOpen(msgspec.Struct, frozen=True, kw_only=True, tag="exec", tag_field="kind"):
    order_id: Hash
    command: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=ARGUMENTS_MAX)]
    tty: bool = False
    columns: Columns = 80
    rows: Columns = 24


class PortOpen(msgspec.Struct, frozen=True, kw_only=True, tag="port", tag_field="kind"):
    order_id: Hash
    port: Port


StreamOpen = LogsOpen | ExecOpen | PortOpen
_open_decoder: msgspec.json.Decoder[LogsOpen | ExecOpen | PortOpen] = msgspec.json.Decoder(StreamOpen)


class TerminalResize(msgspec.Struct, frozen=True):
    columns: Columns
    rows: Columns


EndCode = Literal[
    "ended", "unknown_lease", "not_running", "unknown_port", "unreachable", "refused", "unavailable", "too_many",
    "lost", "idle", "cancelled",
]  # fmt: skip
"""`ended`: as it should. The next seven are a node's. `lost`: the socket is gone. `idle`: a time limit is over."""


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    code: EndCode = "ended"
    exit_code: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    """Of a command."""
    message: Annotated[str, Meta(max_length=END_CHARS_MAX)] = ""
    """In the node's words."""


def decode_open(payload: bytes) -> StreamOpen:
    """Raises ProtocolViolation."""
    try:
        return _open_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ProtocolViolation("OPEN names no stream that is known here") from None


def frame_cost(payload: bytes) -> int:
    """What a data frame takes of the window."""
    return len(payload) + TRAFFIC_FRAME_COST


def encode_credit(n_bytes: int) -> bytes:
    return _CREDIT.pack(n_bytes)


def decode_credit(payload: bytes) -> int:
    """Raises ProtocolViolation."""
    if len(payload) != _CREDIT.size:
        raise ProtocolViolation("a credit has four bytes")
    return int(_CREDIT.unpack(payload)[0])
