"""HTTP/1.1 requests out of a byte stream: llhttp (`httptools`) with bounds on everything that could go on for ever.

It knows nothing of sockets or replies: a `RequestReader` hears of heads, body pieces and ends, in order. What is not
HTTP, or too long for it, is reported once as an error.
"""

from __future__ import annotations

from typing import Protocol

import httptools

from sparewatt.core.errors import BadRequest, BodyTooLarge, HeadTooLarge, SparewattError
from sparewatt.core.limits import HEAD_BYTES_MAX, HEAD_FIELDS_MAX, STRAY_BYTES_MAX
from sparewatt.edge.request_head import RequestHead, fault_of, join_fields, without_upgrade

WRAPPING_MAX = 8
"""Bytes on the wire per byte of a body: chunks of a single byte take six."""


class RequestReader(Protocol):
    def on_request_begin(self) -> None:
        """The first byte of a head is here."""
        ...

    def on_head(self, head: RequestHead, fault: SparewattError | None) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_request_end(self, error: SparewattError | None) -> None:
        """All of its body is here. `error`: why what follows the body is refused."""
        ...

    def on_upgrade(self, rest: bytes) -> None:
        """The bytes after an upgrade head are another protocol's."""
        ...

    def on_parser_error(self, error: SparewattError) -> None: ...

    def on_crash(self, error: BaseException) -> None:
        """One of these methods raised."""
        ...

    @property
    def body_size_bytes(self) -> int | None:
        """Of the request that was read last and is not answered yet; None if there is none."""
        ...


class RequestParser:
    """One per connection. Also what llhttp calls; llhttp's own state is made only when there is something to parse."""

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
        """Since the last request began, or ended."""
        self._rewritten = b""
        """A head without its offer of another protocol, to be parsed in its place."""
        self.is_reading_head = False
        self.is_muted = False
        """Whether the reader wants to hear of nothing more."""

    @property
    def is_between_requests(self) -> bool:
        return not self.is_reading_head and not self._fed_bytes

    def release(self) -> None:
        """Free llhttp's state, a kilobyte; it also refers to this object, which only the collector would undo."""
        self._llhttp = None

    def close(self) -> None:
        """The connection is gone. Reader and parser refer to each other: cut here, both are freed at once."""
        self.release()
        self.is_muted = True  # nothing asks for the reader any more
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
            self._leave_http(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            reader.on_crash(error)
        except httptools.HttpParserError:
            reader.on_parser_error(BadRequest("This is not a valid HTTP request."))
        if not self.is_muted:
            self._refuse_endless()

    def _refuse_endless(self) -> None:
        """A head, empty lines or chunk wrapping that go on and on without being a request."""
        body_size = self._reader.body_size_bytes
        if self.is_reading_head and self._head_bytes > HEAD_BYTES_MAX:
            error = HeadTooLarge(f"The request's head is larger than {HEAD_BYTES_MAX >> 10} KiB.")
            self._reader.on_parser_error(error)
        elif not self.is_reading_head and body_size is None and self._fed_bytes > STRAY_BYTES_MAX:
            self._reader.on_parser_error(BadRequest("This is not a valid HTTP request."))
        elif body_size is not None and self._fed_bytes > 2 * HEAD_BYTES_MAX + WRAPPING_MAX * body_size:
            self._reader.on_parser_error(BodyTooLarge("The body is nearly all wrapping."))

    def _leave_http(self, rest: bytes) -> None:
        """An offer of a protocol that is not spoken here is parsed again as if it had not been made."""
        if self.is_muted:
            return
        if self._rewritten:
            again, self._rewritten = self._rewritten + rest, b""
            self._llhttp = None
            self.feed(again)
        else:
            self._reader.on_upgrade(rest)

    # what llhttp calls

    def on_message_begin(self) -> None:
        if not self.is_muted:
            self._reader.on_request_begin()
        self.is_reading_head = True
        self._raw, self._target = [], b""
        self._head_bytes = self._fields_bytes = self._fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailer fields behind a body in chunks come here too: they are counted, and otherwise ignored."""
        self._fields_bytes += len(name) + len(value)
        if self.is_reading_head and len(self._raw) <= HEAD_FIELDS_MAX and self._fields_bytes <= HEAD_BYTES_MAX:
            self._raw.append((name, value))  # more is refused anyway

    def on_headers_complete(self) -> None:
        self.is_reading_head = False
        llhttp = self._llhttp
        if self.is_muted or llhttp is None:
            return
        headers, twice = join_fields(self._raw)
        head = RequestHead(
            llhttp.get_method(),
            self._target,
            llhttp.get_http_version(),
            llhttp.should_keep_alive(),
            self._raw,
            headers,
        )
        if "upgrade" in headers and llhttp.should_upgrade() and not head.is_link:
            self._rewritten = without_upgrade(head)
            return
        size, self._fields_bytes = self._fields_bytes + len(self._target), 0
        fault = fault_of(head, twice=twice, size_bytes=size)
        self._raw = []
        self._reader.on_head(head._replace(raw=()), fault)

    def on_body(self, data: bytes) -> None:
        if not self.is_muted:
            self._reader.on_body(data)

    def on_message_complete(self) -> None:
        if self.is_muted or self._rewritten:
            return
        self._fed_bytes = 0
        error = None
        if self._fields_bytes > HEAD_BYTES_MAX:
            error = HeadTooLarge(f"What follows the body is larger than {HEAD_BYTES_MAX >> 10} KiB.")
        self._reader.on_request_end(error)
