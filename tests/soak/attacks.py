"""What hostile clients do, one round at a time: whoever measures repeats it for as long as it takes.

A round returns the statuses that it was answered with; 0 stands for a connection that was closed without a word.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sparewatt.core.limits import MIB
from tests.integration.hostile.corpus import CASES
from tests.integration.hostile.raw import address_of, wire_to
from tests.integration.hostile.sizes import SIZES
from tests.integration.hostile.target import Target

PIECE = b"%x\r\n%b\r\n" % (MIB, bytes(MIB))
DEEP = 10_000
BURST = 500
REPLY_S = 60.0
WAITING_S = 0.3
"""Some of the corpus wait for more, as is their right."""

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/match", "/v1/login")


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    rounds: Callable[[Target], Iterator[int]]
    """Endless; each step is one request, and what was answered."""
    statuses: frozenset[int]


def send(target: Target, raw: bytes, *, timeout_s: float = REPLY_S) -> int:
    """One request on a connection of its own."""
    with wire_to(target.network, timeout_s=timeout_s) as wire:
        wire.send(raw)
        try:
            reply = wire.reply()
        except TimeoutError:
            return 0
    return reply.status if reply is not None else 0


def send_all(target: Target, raws: Sequence[bytes], *, timeout_s: float = REPLY_S) -> Iterator[int]:
    """One after another, for ever."""
    return (send(target, raw, timeout_s=timeout_s) for raw in itertools.cycle(raws))


def post(target: Target, path: str, body: bytes) -> bytes:
    start = b"POST %b HTTP/1.1" % path.encode()
    return target.head(b"Content-Length: %d" % len(body), start=start) + body


def huge_body(target: Target, n_bytes: int) -> tuple[int, int]:
    """Sent in chunks for as long as somebody takes it, so that its size is not announced. Status, and bytes sent."""
    sent = 0
    with wire_to(target.network, timeout_s=REPLY_S) as wire:
        wire.send(target.head(b"Transfer-Encoding: chunked"))
        while sent < n_bytes and wire.send(PIECE):
            sent += MIB
        reply = wire.reply()
    return (reply.status if reply is not None else 0), sent


def deep_json(target: Target) -> Iterator[int]:
    chat = b'"messages": [{"role": "user", "content": "x"}]'
    values = (b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"[" * MIB, b'[{"a":' * DEEP)
    bodies = [b'{"model": "%b", %b, "x": %b, "input": %b}' % (target.model.encode(), chat, v, v) for v in values]
    return send_all(target, [post(target, path, body) for path in PATHS for body in bodies])


def crowded_json(target: Target) -> Iterator[int]:
    """A million fields or more, of 20 MiB in all: at the top, below it, and as values of a list, a route for each."""
    fields = b",".join(b'"k%d":1' % number for number in range(1_500_000))
    bodies = [
        b'{"model":"m","messages":[{}],%b}' % fields,
        b'{"model":"m","prompt":[%b]}' % (b"{}," * 6_000_000 + b"{}"),
        b'{"model":"m","input":[%b]}' % (b"1," * 9_000_000 + b"1"),
        b'{"model":"m","input":"x","text":{"format":{%b}}}' % fields,
    ]
    return send_all(target, [post(target, path, body) for path, body in zip(PATHS, bodies, strict=False)])


def head_bombs(target: Target) -> Iterator[int]:
    return send_all(target, [case.make(target) for case in SIZES if case.name != "forwarded-for-of-8-kb"])


def corpus(target: Target) -> Iterator[int]:
    return send_all(target, [case.make(target) for case in CASES], timeout_s=WAITING_S)


def bursts(target: Target) -> Iterator[int]:
    """Connections that come all at once and go without a word."""
    while True:
        held = [socket.create_connection(address_of(target.network), timeout=REPLY_S) for _ in range(BURST)]
        for each in held:
            each.close()
        yield 0


def crowds(target: Target) -> Iterator[int]:
    """Requests that come all at once over connections that stand open, with a key that nobody has."""
    raw = target.chat("let us in", key=b"sw_nobody")
    with ExitStack() as stack:
        wires = [stack.enter_context(wire_to(target.network, timeout_s=REPLY_S)) for _ in range(BURST)]
        while True:
            for wire in wires:
                wire.send(raw)
            for wire in wires:
                reply = wire.reply()
                yield reply.status if reply is not None else 0


REFUSED = frozenset({0, *range(400, 500)})
ANYTHING = frozenset({0, *range(200, 500), 501, 505})

ATTACKS = (
    Attack(f"JSON {DEEP:,} deep", deep_json, REFUSED),
    Attack("20 MiB of JSON fields and values", crowded_json, REFUSED),
    Attack("heads of up to a megabyte, 10,000 fields", head_bombs, REFUSED),
    Attack(f"the corpus of {len(CASES)} broken and smuggling requests", corpus, ANYTHING),
    Attack(f"bursts of {BURST:,} connections", bursts, frozenset({0})),
    Attack(f"crowds of {BURST:,} requests", crowds, REFUSED),
)
