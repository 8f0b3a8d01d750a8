"""A case of the corpus: a raw request, what must come of it, and the parts that requests are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.integration.hostile.target import CHAT, Target

Then = Literal["closes", "stays", "either"]
NOTHING = 0
"""In place of a status: the connection is closed without a reply."""

REFUSED = frozenset({400})
REFUSED_OR_DROPPED = frozenset({400, 505, NOTHING})
SERVED = frozenset({200})
UNKNOWN_METHOD = frozenset({400, 404, 405, 501})
TOO_LARGE = frozenset({400, 413, 414, 431})

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    why: str
    make: Callable[[Target], bytes]
    statuses: frozenset[int] = REFUSED
    then: Then = "closes"
    """`stays`: the connection can be used for another request."""
    ends_sending: bool = False
    """The client half-closes behind the request, which is shorter than it announced."""


def headed(*lines: bytes, body: Callable[[Target], bytes] | None = None) -> Callable[[Target], bytes]:
    """A chat with these lines in its head, and a hidden request behind it unless `body` says otherwise."""
    return lambda target: target.head(*lines) + (body(target) if body is not None else zero_then_hidden(target))


def zero_then_hidden(target: Target) -> bytes:
    """Whoever reads chunks sees an empty body and a second request; whoever counts bytes sees neither."""
    return b"0\r\n\r\n" + target.hidden()


def chat_then_hidden(target: Target) -> bytes:
    return target.chat_body() + target.hidden()


def sized(value: bytes) -> Callable[[Target], bytes]:
    return headed(b"Content-Length: " + value, body=chat_then_hidden)


def encoded(line: bytes) -> Callable[[Target], bytes]:
    return headed(line)


def with_chunks(framing: Callable[[Target], bytes]) -> Callable[[Target], bytes]:
    return headed(b"Transfer-Encoding: chunked", body=framing)


def with_start(start: bytes) -> Callable[[Target], bytes]:
    """A whole chat with another request line."""
    return lambda target: target.chat().replace(b"POST " + CHAT + b" HTTP/1.1", start, 1)


def with_field(line: bytes) -> Callable[[Target], bytes]:
    """A whole chat with one more line in its head."""
    return lambda target: target.chat("x", line)


def wrapped(start: bytes) -> Callable[[Target], bytes]:
    """A hidden request as the body of another: no route may leave a body unread and take it for the next request."""

    def make(target: Target) -> bytes:
        inner = target.hidden()
        return target.head(b"Content-Length: %d" % len(inner), start=start) + inner

    return make


def wrong_key(target: Target) -> bytes:
    inner = target.hidden()
    return target.head(b"Content-Length: %d" % len(inner), key=b"sk-sw-wrong") + inner


def two_hosts(target: Target) -> bytes:
    return target.chat("x", b"Host: elsewhere")


def no_host(target: Target) -> bytes:
    return target.chat().replace(b"Host: gateway\r\n", b"", 1)


def with_host(value: bytes) -> Callable[[Target], bytes]:
    return lambda target: target.chat().replace(b"Host: gateway", b"Host: " + value, 1)


def http_1_0(*lines: bytes) -> Callable[[Target], bytes]:
    return lambda target: target.chat("x", *lines).replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def zero_then_hidden_old(target: Target) -> bytes:
    head = target.head(b"Connection: keep-alive", b"Transfer-Encoding: chunked", start=b"POST " + CHAT + b" HTTP/1.0")
    return head + zero_then_hidden(target)
