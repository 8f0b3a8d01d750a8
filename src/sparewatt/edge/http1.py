"""HTTP/1.1 on the wire: a bounded request parser, the heads of requests and replies, and chunked framing.

llhttp (`httptools`) parses. This module bounds whatever a client could send without end and refuses what two readers
could understand differently (request smuggling). It has no sockets: a `RequestReader` gets heads, body pieces and
ends, in order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import unquote

import httptools

from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    ExpectationFailed,
    HeadTooLarge,
    MethodNotAllowed,
    SparewattError,
    UnsupportedMediaType,
)
from sparewatt.core.limits import KIB
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.traffic import TRAFFIC_PATH

HEAD_BYTES_MAX = 32 * KIB
"""A request's head: a policy of 8 KiB, cookies of as much, and room."""
HEAD_FIELDS_MAX = 100
"""Header fields of one request; clients and proxies together send thirty."""
TARGET_BYTES_MAX = 8 * KIB
"""The request target: path and query."""
STRAY_BYTES_MAX = 1 * KIB
"""Empty lines between two requests; old clients sent one."""
FRAMING_PER_BODY_BYTE_MAX = 8
"""Bytes on the wire per byte of a body: chunks of a single byte take six."""

SERVER = "sparewatt"
"""The `server` header: the product, never its version or its libraries."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n"
"""A chunk's length and its data."""
LAST_CHUNK = b"0\r\n\r\n"

_ONCE = (
    *("host", "authorization", "x-api-key", "content-length", "content-type", "idempotency-key"),
    "content-encoding",
)
"""Fields that may occur once: with two, two readers of the same bytes would see two requests (request smuggling)."""
_UPGRADE_FIELDS = ("connection", "upgrade", "http2-settings")
_SOCKET_PATH = re.compile(f"{LINK_PATH}|{TRAFFIC_PATH}|/v1/leases/[^/]+/(exec|ports/[0-9]{{1,5}})|/v1/responses")
_PATH_END = re.compile(r"[?#]")
_TARGET_END = re.compile(rb"[?#]")
_SLASHES = re.compile(rb"/{2,}")
_HOST = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=\-]+(:[0-9]{0,5})?|\[[0-9A-Fa-f:.%]+\](:[0-9]{0,5})?")
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus} | {
    529: "HTTP/1.1 529 Overloaded\r\n"
}
"""The last one is Anthropic's own."""
_NOT_HTTP = "This is not a valid HTTP request."

RawHeaders = Sequence[tuple[bytes, bytes]]


class RequestHead(NamedTuple):
    method: bytes
    target: bytes
    version: str
    keep_alive: bool
    headers: dict[str, str]
    """Names in lower case; repeated fields are joined by a comma."""

    @property
    def is_link(self) -> bool:
        """Whether a node opens its WebSocket link."""
        upgrade = self.headers.get("upgrade", "").lower()
        return self.method == b"GET" and self.path == LINK_PATH and upgrade == "websocket"

    @property
    def offers_socket(self) -> bool:
        """Whether the client would go on with WebSocket."""
        return self.method == b"GET" and self.headers.get("upgrade", "").lower() == "websocket"

    @property
    def is_socket(self) -> bool:
        """Whether somebody opens a WebSocket at a path that has one."""
        return self.offers_socket and _SOCKET_PATH.fullmatch(self.path) is not None

    @property
    def is_expecting(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        return "expect" in self.headers and self.version == "1.1"

    @property
    def path(self) -> str:
        """As the router reads it: decoded, without scheme and host of an absolute target. `%2F` stays encoded."""
        target = self.target.decode("latin-1")
        if not target.startswith("/"):
            host, slash, rest = target.partition("://")[2].partition("/")
            target = slash + rest if _HOST.fullmatch(host) else ""
        path = _PATH_END.split(target, maxsplit=1)[0]
        return unquote(path) if "%" in path and "%2f" not in path.lower() else path

    def canonical(self) -> RequestHead:
        """The same with one slash where the path has several, and none at its end: base URLs end in one, or in two.

        Whoever asks for a route, or for what it needs, sees this target and no other. `%2F` is no slash.
        """
        end = _TARGET_END.search(self.target)
        at = end.start() if end else len(self.target)
        path = self.target[:at]
        if not path.startswith(b"/") or (b"//" not in path and (path == b"/" or not path.endswith(b"/"))):
            return self
        once = _SLASHES.sub(b"/", path)
        return self._replace(target=(once.rstrip(b"/") or b"/") + self.target[at:])

    @property
    def length(self) -> int | None:
        """The declared length of the body. llhttp has checked that it is a number."""
        declared = self.headers.get("content-length")
        return int(declared) if declared is not None else None

    @property
    def is_chunked(self) -> bool:
        return "transfer-encoding" in self.headers

    def to_bytes(self, *, without: Sequence[str] = ()) -> bytes:
        """The head serialised from what was parsed: every field once, and no byte that the parser did not accept."""
        lines = [b"%b %b HTTP/%b" % (self.method, self.target, self.version.encode())]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in self.headers.items() if name not in without]
        if "connection" in without and not self.keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"


def join_fields(raw: RawHeaders) -> tuple[dict[str, str], str | None]:
    """The fields by name, and the name of one that may occur once but occurs twice."""
    headers: dict[str, str] = {}
    repeated: str | None = None
    for raw_name, raw_value in raw:
        name, value = raw_name.lower().decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            repeated = name if name in _ONCE else repeated
            value = f"{headers[name]}{'; ' if name == 'cookie' else ', '}{value}"
        headers[name] = value
    return headers, repeated


def fault_of(head: RequestHead, *, repeated: str | None, n_fields: int, size_bytes: int) -> SparewattError | None:
    """Why a head that could be parsed is refused. Such a request gets a reply, then its connection is closed."""
    if size_bytes > HEAD_BYTES_MAX or n_fields > HEAD_FIELDS_MAX or len(head.target) > TARGET_BYTES_MAX:
        return HeadTooLarge(
            f"The request's head is too large: at most {HEAD_BYTES_MAX // KIB} KiB and {HEAD_FIELDS_MAX} fields."
        )
    if repeated is not None:
        return BadRequest(f"The header {repeated!r} occurs twice. Send it once.")
    if head.version not in ("1.0", "1.1"):
        return BadRequest("This server speaks HTTP/1.1, and 1.0.")
    host = head.headers.get("host", "" if head.version == "1.1" else "any")
    if not _HOST.fullmatch(host):
        return BadRequest("A request names the host that it is for, in a valid 'host' header.")
    return _unsupported(head)


def _unsupported(head: RequestHead) -> SparewattError | None:
    """What HTTP allows and this server does not do."""
    headers = head.headers
    if head.method == b"CONNECT":
        return MethodNotAllowed("CONNECT does not work here.")
    encoding = headers.get("transfer-encoding")
    if encoding is not None and (encoding.lower() != "chunked" or head.version != "1.1"):
        return BadRequest("The only transfer encoding is 'chunked', of HTTP/1.1.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return UnsupportedMediaType("Send the body as it is, without a content encoding.")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        return ExpectationFailed("The only expectation that can be met is '100-continue'.")
    return None


class RequestReader(Protocol):
    """Gets what the parser reads."""

    def on_request_begin(self) -> None:
        """The first byte of a head was read."""

    def on_head(self, head: RequestHead, fault: SparewattError | None) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_request_end(self, error: SparewattError | None) -> None:
        """The body is complete. `error`: why its trailer fields are refused."""

    def takes_socket(self, head: RequestHead) -> bool:
        """Whether an offered WebSocket may be taken; else the offer is left out of the request."""
        ...

    def on_upgrade(self, rest: bytes) -> None:
        """The bytes after an upgrade head belong to another protocol."""

    def on_parser_error(self, error: SparewattError) -> None: ...

    def on_crash(self, error: BaseException) -> None:
        """One of these methods raised."""

    @property
    def body_size_bytes(self) -> int | None:
        """Of the request that was read last and has no reply yet; None if there is none."""


class RequestParser:
    """One per connection. llhttp calls it back; llhttp's own state is made only when there is something to parse."""

    __slots__ = (
        "_fed_bytes", "_fields_bytes", "_head_bytes", "_llhttp", "_raw", "_reader", "_rewritten", "_target",
        "is_muted", "is_reading_head",
    )  # fmt: skip

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self._llhttp: httptools.HttpRequestParser | None = None
        self._raw: list[tuple[bytes, bytes]] = []
        self._target = b""
        self._head_bytes = 0
        self._fields_bytes = 0
        self._fed_bytes = 0
        """Since the last request began or ended."""
        self._rewritten = b""
        """A head without its upgrade fields, to be parsed instead of the one that came."""
        self.is_reading_head = False
        self.is_muted = False
        """Whether the reader gets no more callbacks."""

    @property
    def is_between_requests(self) -> bool:
        return not self.is_reading_head and not self._fed_bytes

    def release(self) -> None:
        """Free llhttp's state of a kilobyte. It refers back to this object: a cycle for the garbage collector."""
        self._llhttp = None

    def close(self) -> None:
        """The connection is gone. Reader and parser refer to each other; without the cycle both are freed at once."""
        self.release()
        self.is_muted = True  # so that nothing reads the reader any more
        del self._reader

    def feed(self, data: bytes) -> None:
        if self.is_reading_head:
            self._head_bytes += len(data)
        self._fed_bytes += len(data)
        if self._llhttp is None:
            self._llhttp = httptools.HttpRequestParser(self)
        reader = self._reader
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            reader.on_crash(error)
        except httptools.HttpParserError:
            reader.on_parser_error(BadRequest(_NOT_HTTP))
        if not self.is_muted:
            self._refuse_endless()

    def _refuse_endless(self) -> None:
        """Refuse a head, empty lines or chunk framing that go on without becoming a request."""
        body_size = self._reader.body_size_bytes
        if self.is_reading_head and self._head_bytes > HEAD_BYTES_MAX:
            error = HeadTooLarge(f"The request's head is larger than {HEAD_BYTES_MAX // KIB} KiB.")
            self._reader.on_parser_error(error)
        elif not self.is_reading_head and body_size is None and self._fed_bytes > STRAY_BYTES_MAX:
            self._reader.on_parser_error(BadRequest(_NOT_HTTP))
        elif body_size is not None and self._fed_bytes > 2 * HEAD_BYTES_MAX + FRAMING_PER_BODY_BYTE_MAX * body_size:
            self._reader.on_parser_error(BodyTooLarge("The body is nearly all chunk framing. Send larger chunks."))

    def _upgrade(self, rest: bytes) -> None:
        """Leave HTTP, or parse a request that offers an unknown protocol again without the offer."""
        if self.is_muted:
            return
        if self._rewritten:
            again, self._rewritten = self._rewritten + rest, b""
            self._llhttp = None
            self.feed(again)
        else:
            self._reader.on_upgrade(rest)

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        if not self.is_muted:
            self._reader.on_request_begin()
        self.is_reading_head = True
        self._raw, self._target = [], b""
        self._head_bytes = self._fields_bytes = self._fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailer fields of a chunked body come here too: they are counted, and otherwise ignored."""
        self._fields_bytes += len(name) + len(value)
        if self.is_reading_head and len(self._raw) <= HEAD_FIELDS_MAX and self._fields_bytes <= HEAD_BYTES_MAX:
            self._raw.append((name, value))  # beyond the limits it is refused anyway

    def on_headers_complete(self) -> None:
        self.is_reading_head = False
        llhttp, raw = self._llhttp, self._raw
        if self.is_muted or llhttp is None:
            return
        headers, repeated = join_fields(raw)
        head = RequestHead(
            llhttp.get_method(), self._target, llhttp.get_http_version(), llhttp.should_keep_alive(), headers
        )
        if "upgrade" in headers and llhttp.should_upgrade() and not self._reader.takes_socket(head):
            self._rewritten = head.to_bytes(without=_UPGRADE_FIELDS)
            return
        size_bytes, self._fields_bytes = self._fields_bytes + len(self._target), 0
        self._raw = []
        self._reader.on_head(head, fault_of(head, repeated=repeated, n_fields=len(raw), size_bytes=size_bytes))

    def on_body(self, data: bytes) -> None:
        if not self.is_muted:
            self._reader.on_body(data)

    def on_message_complete(self) -> None:
        if self.is_muted or self._rewritten:
            return
        self._fed_bytes = 0
        error = None
        if self._fields_bytes > HEAD_BYTES_MAX:
            error = HeadTooLarge(f"What follows the body is larger than {HEAD_BYTES_MAX // KIB} KiB.")
        self._reader.on_request_end(error)


class DateHeader:
    """The `date` header's line, formatted once a second."""

    def __init__(self) -> None:
        self._at_unix_s = -1
        self._line = ""

    def line(self) -> str:
        unix_s = int(time.time())
        if unix_s != self._at_unix_s:
            self._at_unix_s, self._line = unix_s, f"date: {formatdate(unix_s, usegmt=True)}\r\n"
        return self._line


def reply_head_bytes(status: int, headers: Mapping[str, str], framing: str, own: str = "") -> bytes:
    """`framing`: the lines that say where the body ends. `own`: lines made of our own words only, not escaped."""
    return f"{_STATUS_LINES[status]}{framing}{header_lines(headers)}{own}\r\n".encode("latin-1", "replace")


def header_lines(headers: Mapping[str, str]) -> str:
    """A value with a line break cannot add a header (response splitting)."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers):
        return header_lines({name: _CONTROL_CHARS.sub(" ", value) for name, value in headers.items()})
    return text


def chunk_bytes(data: bytes) -> bytes:
    return CHUNK % (len(data), data)
