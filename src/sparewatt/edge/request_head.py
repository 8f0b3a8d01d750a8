"""The head of a request as llhttp read it: fields, framing, and why it is refused if it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from sparewatt.core.errors import (
    BadRequest,
    ExpectationFailed,
    HeadTooLarge,
    MethodNotAllowed,
    SparewattError,
    UnsupportedMediaType,
)
from sparewatt.core.limits import HEAD_BYTES_MAX, HEAD_FIELDS_MAX, TARGET_BYTES_MAX
from sparewatt.protocol.link.frames import LINK_PATH

RawHeaders = Sequence[tuple[bytes, bytes]]
_ONCE = ("host", "authorization", "content-length", "content-type", "idempotency-key", "content-encoding")
"""Fields that may occur once: with two, two readers of the same bytes would see two requests (request smuggling)."""
_PATH_END = re.compile(r"[?#]")
_HOST = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=\-]+(:[0-9]{0,5})?|\[[0-9A-Fa-f:.%]+\](:[0-9]{0,5})?")


class RequestHead(NamedTuple):
    method: bytes
    target: bytes
    version: str
    keep_alive: bool
    raw: RawHeaders
    headers: dict[str, str]
    """Names in lower case; repeated fields are joined by a comma."""

    @property
    def is_link(self) -> bool:
        """Whether a node opens its WebSocket link."""
        upgrade = self.headers.get("upgrade", "").lower()
        return self.method == b"GET" and self.path == LINK_PATH and upgrade == "websocket"

    @property
    def is_expecting(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        return "expect" in self.headers and self.version == "1.1"

    @property
    def path(self) -> str:
        """As the router reads it: decoded, without scheme and host where those are named. An encoded slash stays."""
        target = self.target.decode("latin-1")
        if not target.startswith("/"):
            host, slash, rest = target.partition("://")[2].partition("/")
            target = slash + rest if _HOST.fullmatch(host) else ""
        path = _PATH_END.split(target, maxsplit=1)[0]
        return unquote(path) if "%" in path and "%2f" not in path.lower() else path

    @property
    def length(self) -> int | None:
        """Of the body, where it was declared. llhttp has checked that it is a number."""
        declared = self.headers.get("content-length")
        return int(declared) if declared is not None else None

    @property
    def is_chunked(self) -> bool:
        return "transfer-encoding" in self.headers


def without_upgrade(head: RequestHead) -> bytes:
    """The same head as bytes, as if the client had not offered another protocol."""
    kept = {n: v for n, v in head.headers.items() if n not in ("connection", "upgrade", "http2-settings")}
    if not head.keep_alive:
        kept["connection"] = "close"
    return head_bytes(head, kept)


def head_bytes(head: RequestHead, headers: Mapping[str, str]) -> bytes:
    """Serialised anew: every field once."""
    lines = [b"%b %b HTTP/%b" % (head.method, head.target, head.version.encode())]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def join_fields(raw: RawHeaders) -> tuple[dict[str, str], str | None]:
    """The fields by name, and the name of one that may occur once and occurs twice."""
    headers: dict[str, str] = {}
    twice: str | None = None
    for raw_name, raw_value in raw:
        name, value = raw_name.lower().decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            twice = name if name in _ONCE else twice
            value = f"{headers[name]}{'; ' if name == 'cookie' else ', '}{value}"
        headers[name] = value
    return headers, twice


def fault_of(head: RequestHead, *, twice: str | None, size_bytes: int) -> SparewattError | None:
    """Why a head that could be parsed is refused. Such a request is answered, and its connection closed."""
    if size_bytes > HEAD_BYTES_MAX or len(head.raw) > HEAD_FIELDS_MAX or len(head.target) > TARGET_BYTES_MAX:
        return HeadTooLarge(
            f"The request's head is too large: at most {HEAD_BYTES_MAX // 1024} KiB and {HEAD_FIELDS_MAX} fields."
        )
    if twice is not None:
        return BadRequest(f"The header {twice!r} stands there twice.")
    if head.version not in ("1.0", "1.1"):
        return BadRequest("This speaks HTTP/1.1, and 1.0.")
    host = head.headers.get("host", "" if head.version == "1.1" else "any")
    if not _HOST.fullmatch(host):
        return BadRequest("A request names the host that it is for.")
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
