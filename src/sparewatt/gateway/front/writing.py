"""The bytes of a reply's head."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Dates:
    """The date header's value, written once a second."""

    def __init__(self) -> None:
        self._at = -1
        self._text = ""

    def now(self) -> str:
        at = int(time.time())
        if at != self._at:
            self._at, self._text = at, formatdate(at, usegmt=True)
        return self._text


def head_bytes(status: int, headers: Mapping[str, str], framing: str) -> bytes:
    """`framing`: what says where the body ends, and the connection. Whoever sets a header cannot add another by it."""
    text = _LINES[status] + framing + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n"
    if text.count("\n") != len(headers) + framing.count("\n") + 2:
        return head_bytes(status, {name: _UNFIT.sub(" ", value) for name, value in headers.items()}, framing)
    return text.encode("latin-1", "replace")


def chunk_bytes(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
