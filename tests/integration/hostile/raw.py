"""Talking to a gateway byte by byte: what is sent is sent as it stands, what comes back is cut into replies strictly.

`http.client` would repair what a hostile client wants broken, so none of it is used here.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.integration.networks import Network

REPLY_S = 30.0
"""A reply that takes longer counts as none."""

NO_BODY = frozenset({204, 304})
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing is a reset."""

End = Literal["closed", "reset", "open"]


class NotHttp(AssertionError):
    """What came back is no reply."""


@dataclass(frozen=True, slots=True)
class RawReply:
    version: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """Of a whole chat."""
        return str(self.json()["choices"][0]["message"]["content"])


@dataclass(slots=True)
class Wire:
    """One connection."""

    socket: socket.socket
    _file: io.BufferedReader
    ended: End = "open"

    def send(self, data: bytes) -> bool:
        """False if the other end has closed meanwhile; what it said before can still be read."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def send_no_more(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Gone without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def reply(self, *, is_head: bool = False) -> RawReply | None:
        """The next reply, an interim one included; None when the connection is over. Raises TimeoutError."""
        try:
            return self._read(is_head=is_head)
        except ConnectionResetError:
            self.ended = "reset"
        return None

    def replies(self) -> list[RawReply]:
        """All that are still to come, up to the end of the connection. Raises TimeoutError if it does not end."""
        found = []
        while (reply := self.reply()) is not None:
            found.append(reply)
        return found

    def line(self) -> bytes:
        """A line of a body that is still being written; nothing at its end."""
        return self._file.readline(1 << 20)

    def head(self) -> tuple[str, int, dict[str, str]] | None:
        """The head of a reply whose body the caller reads. None: the connection is over."""
        first = self._file.readline(1 << 16)
        if not first:
            self.ended = "closed"
            return None
        version, _, rest = first.decode("latin-1").partition(" ")
        if version not in ("HTTP/1.0", "HTTP/1.1") or not rest[:3].isdigit() or not first.endswith(b"\r\n"):
            raise NotHttp(f"a reply begins with {first[:80]!r}")
        return version, int(rest[:3]), self._headers()

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        while (line := self._file.readline(1 << 16)) not in (b"\r\n", b""):
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not line.endswith(b"\r\n"):
                raise NotHttp(f"a reply has the header {line[:80]!r}")
            headers[name.lower()] = value.strip()
        return headers

    def _read(self, *, is_head: bool) -> RawReply | None:
        head = self.head()
        if head is None:
            return None
        version, status, headers = head
        if is_head or status in NO_BODY or status < 200:
            return RawReply(version, status, headers, b"")
        return RawReply(version, status, headers, self._body(headers))

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self._chunks())
        if "content-length" in headers:
            length = int(headers["content-length"])
            body = self._file.read(length)
            if len(body) < length:
                raise NotHttp("a reply ends before its body does")
            return body
        return self._file.read()

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._file.readline(1 << 10) or b"-1", 16):
            if size < 0:
                raise NotHttp("a reply ends before its last chunk")
            yield self._file.read(size)
            if self._file.read(2) != b"\r\n":
                raise NotHttp("a chunk has no end")
        while self._file.readline(1 << 10) not in (b"\r\n", b""):
            pass


def address_of(network: Network) -> tuple[str, int]:
    parts = urlsplit(network.root_url)
    return parts.hostname or "", parts.port or 80


@contextmanager
def wire_to(network: Network, *, timeout_s: float = REPLY_S, receive_bytes: int | None = None) -> Iterator[Wire]:
    """`receive_bytes`: how little the kernel may take for a client that does not read."""
    wire = open_wire(network, timeout_s=timeout_s, receive_bytes=receive_bytes)
    try:
        yield wire
    finally:
        wire.close()


def open_wire(network: Network, *, timeout_s: float = REPLY_S, receive_bytes: int | None = None) -> Wire:
    connection = socket.socket()
    connection.settimeout(timeout_s)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.connect(address_of(network))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(connection, connection.makefile("rb"))
