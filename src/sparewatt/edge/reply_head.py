"""The head of a reply as bytes, and chunked framing."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n"
"""A chunk's length, and itself."""
LAST_CHUNK = b"0\r\n\r\n"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class DateHeader:
    """The `date` header's line, formatted once a second."""

    def __init__(self) -> None:
        self._at = -1
        self._text = ""

    def line(self) -> str:
        at = int(time.time())
        if at != self._at:
            self._at, self._text = at, f"date: {formatdate(at, usegmt=True)}\r\n"
        return self._text


def reply_head_bytes(status: int, headers: Mapping[str, str], framing: str, own: str = "") -> bytes:
    """`framing`: lines that say where the body ends. `own`: lines that hold no bytes of anybody else."""
    return f"{_LINES[status]}{framing}{header_lines(headers)}{own}\r\n".encode("latin-1", "replace")


def header_lines(headers: Mapping[str, str]) -> str:
    """A value with a line break cannot add a header (response splitting)."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers):
        return header_lines({name: _UNFIT.sub(" ", value) for name, value in headers.items()})
    return text


def chunk_bytes(data: bytes) -> bytes:
    return CHUNK % (len(data), data)
