"""A head that came before, word for word: what was read and judged then need not be read again.

A client that keeps its connection sends the same head with every request, but for the length of its body. Whatever is
not exactly that goes through the parser.
"""

from __future__ import annotations

import re

from sparewatt.core.limits import KNOWN_HEADS_MAX
from sparewatt.gateway.front.exchange import Endpoint
from sparewatt.gateway.front.head import Head
from sparewatt.gateway.openai.serving import Caller

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?")
_END = b"\r\n\r\n"
_DIGITS_MAX = 8
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade", "idempotency-key", "cookie", "origin"})
"""What changes how a request is read or answered."""


class KnownHead:
    """One that was let in, in pieces: the bytes before the length of the body, and those after it."""

    __slots__ = ("after", "before", "caller", "endpoint", "head")

    def __init__(self, before: bytes, after: bytes, head: Head, endpoint: Endpoint, caller: Caller) -> None:
        self.before = before
        self.after = after
        self.head = head
        self.endpoint = endpoint
        self.caller = caller

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if the data (which begin as this head) are this head and a whole body; else None."""
        start = len(self.before)
        end = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        at = end + len(self.after)
        return data[at:] if len(data) - at == int(digits) else None


class KnownHeads:
    """One of each for all connections: clients of one kind, with one key, all say the same."""

    def __init__(self) -> None:
        self._by_words: dict[tuple[bytes, bytes], KnownHead] = {}

    def shared(self, found: KnownHead) -> KnownHead:
        """The one that is kept already, unless its key has changed since."""
        words = found.before, found.after
        kept = self._by_words.get(words)
        if kept is None or kept.caller.who.key is not found.caller.who.key:
            if len(self._by_words) >= KNOWN_HEADS_MAX:
                self._by_words.clear()
            kept = self._by_words[words] = found
        return kept


def known_head(data: bytes, head: Head, endpoint: Endpoint, caller: Caller) -> KnownHead | None:
    """Of a request that is all of `data`, and whose head was found to be in order."""
    if not _UNUSUAL.isdisjoint(head.headers):
        return None
    end = data.find(_END) + len(_END)
    found = _LENGTH.search(data, 0, end)
    if found is None:
        return None
    after = data.find(b"\r", found.end())
    known = KnownHead(data[: found.end()], data[after:end], head, endpoint, caller)
    return known if known.body_of(data) is not None else None
