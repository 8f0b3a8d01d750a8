"""A request head that came before, byte for byte: what was parsed and authorised then need not be parsed again.

A client that keeps its connection sends the same head with every request, but for the length of its body. Whatever is
not exactly that goes through the parser. Worth 10 % of a request's processor time (ADR 31).
"""

from __future__ import annotations

import re

from sparewatt.accounts.principal import Principal
from sparewatt.core.limits import KNOWN_HEADS_MAX
from sparewatt.edge.exchange import Endpoint, Exchange
from sparewatt.edge.request_head import RequestHead
from sparewatt.inference.service import RequestOptions

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?")
_END = b"\r\n\r\n"
_DIGITS_MAX = 8
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade", "idempotency-key", "cookie", "origin"})
"""Fields that change how a request is read or answered: such a head is not remembered."""


class KnownHead:
    """In two pieces: the bytes before the body's length, and those after it."""

    __slots__ = ("after", "before", "endpoint", "head", "options", "principal")

    def __init__(
        self,
        before: bytes,
        after: bytes,
        *,
        head: RequestHead,
        endpoint: Endpoint,
        principal: Principal,
        options: RequestOptions,
    ) -> None:
        self.before = before
        self.after = after
        self.head = head
        self.endpoint = endpoint
        self.principal = principal
        self.options = options

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` (which begins with `before`) is this head and a whole body; else None."""
        start = len(self.before)
        end = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        at = end + len(self.after)
        return data[at:] if len(data) - at == int(digits) else None


class KnownHeads:
    """Shared by all connections: clients of one kind with one key all send the same head."""

    def __init__(self) -> None:
        self._by_bytes: dict[tuple[bytes, bytes], KnownHead] = {}

    def shared(self, found: KnownHead) -> KnownHead:
        """The one that is stored already, unless its key has changed since."""
        bytes_ = found.before, found.after
        stored = self._by_bytes.get(bytes_)
        if stored is None or stored.principal.key is not found.principal.key:
            if len(self._by_bytes) >= KNOWN_HEADS_MAX:
                self._by_bytes.clear()
            stored = self._by_bytes[bytes_] = found
        return stored


def known_head(data: bytes, head: RequestHead, exchange: Exchange) -> KnownHead | None:
    """Of a request that is all of `data`, and whose exchange has identified its sender."""
    principal, options = exchange.principal, exchange.options
    if principal is None or options is None or not _UNUSUAL.isdisjoint(head.headers):
        return None
    end = data.find(_END) + len(_END)
    found = _LENGTH.search(data, 0, end)
    if found is None:
        return None
    after = data.find(b"\r", found.end())
    known = KnownHead(
        data[: found.end()],
        data[after:end],
        head=head,
        endpoint=exchange.endpoint,
        principal=principal,
        options=options,
    )
    return known if known.body_of(data) is not None else None
