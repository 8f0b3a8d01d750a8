"""Cutting a byte stream into server-sent events, wherever the network happened to cut it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_LINE_BYTES_MAX = 4
DONE = b"[DONE]"


class EventSplitter:
    """Feed bytes, get whole events back, each with the blank line that ends it. Every byte is looked at once."""

    __slots__ = ("_is_plain", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_plain = True
        """Whether every line so far ended in a line feed alone, as nearly everywhere: found three times as fast."""

    def feed(self, data: bytes) -> list[bytes]:
        if not self._rest and data.find(b"\n\n") == len(data) - 2 >= 0 and b"\r" not in data:
            return [data]  # nearly every piece is just one event
        look_from = max(0, len(self._rest) - _BLANK_LINE_BYTES_MAX + 1)
        self._rest += data
        self._is_plain = self._is_plain and b"\r" not in data
        events: list[bytes] = []
        at = 0
        for end in self._plain_ends(look_from) if self._is_plain else self._ends(look_from):
            events.append(bytes(self._rest[at:end]))
            at = end
        del self._rest[:at]
        if len(self._rest) > SSE_EVENT_BYTES_MAX:
            raise ProtocolViolation("a server-sent event is over the limit")
        return events

    def _plain_ends(self, at: int) -> Iterator[int]:
        while (found := self._rest.find(b"\n\n", at)) >= 0:
            at = found + 2
            yield at

    def _ends(self, at: int) -> Iterator[int]:
        return (found.end() for found in _BLANK_LINE.finditer(self._rest, at))

    @property
    def has_rest(self) -> bool:
        return bool(self._rest)

    @property
    def rest(self) -> bytes:
        """An event that has not ended yet."""
        return bytes(self._rest)


def event_data(event: bytes) -> bytes | None:
    """The data of one event, or None if it carries none (a comment, say)."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2 and b"\r" not in event:
        return event[6:].rstrip(b"\n")
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
