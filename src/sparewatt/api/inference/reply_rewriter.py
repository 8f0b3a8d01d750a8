"""Rewrites a reply, whole or event by event, for the client of one request: the frame around what is rewritten."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_DATA, _END = b"data: ", b"\n\n"
"""Of a server-sent event."""


class ReplyRewriter(ABC):
    """Implements ReplyFilter."""

    def __init__(self) -> None:
        self._partial_event = b""

    @property
    def is_done(self) -> bool:
        """Whether the rest of a stream may be passed on unread."""
        return False

    @abstractmethod
    def rewrite(self, reply: bytes) -> bytes:
        """A whole reply, or the chunk of an event. Raises ValueError if it is not a completion."""

    def whole(self, body: bytes) -> bytes:
        return self.rewrite(body)

    def feed(self, data: bytes) -> bytes:
        if self.is_done:
            return self.rest() + data
        *events, self._partial_event = (self._partial_event + data).split(_END)
        return b"".join(self._rewrite_event(event) + _END for event in events)

    def rest(self) -> bytes:
        partial, self._partial_event = self._partial_event, b""
        return partial

    def _rewrite_event(self, event: bytes) -> bytes:
        if not event.startswith(_DATA + b"{"):
            return event
        try:
            return _DATA + self.rewrite(event.removeprefix(_DATA))
        except ValueError:
            return event


def decoded(decoder: msgspec.json.Decoder[_T], reply: bytes) -> _T:
    """Raises ValueError."""
    try:
        return decoder.decode(reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
