"""Breaking good input a little: what a parser nearly understands finds more than noise does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

INTERESTING = (
    b"\x00", b"\r", b"\n", b"\r\n\r\n", b"\n\n", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b'"', b"\\", b"{", b"}", b"[",
    b"]", b":", b",", b";", b"-1", b"0", b"1e999", b"NaN", b"null", b"99999999999999999999", b"\\ud800", b"data: ",
    b"chunked", b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1", b" ", b"\t", b"0\r\n\r\n",
)  # fmt: skip
STEPS_MAX = 6
REPEATS_MAX = 200


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds after a few changes. The same chance makes the same bytes."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, STEPS_MAX)):
        chance.choice(_CHANGES)(data, seeds, chance)
    return bytes(data)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """The same bytes as a network might deliver them."""
    cuts = sorted({chance.randint(0, len(data)) for _ in range(chance.randint(0, 8))} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(cuts)]


def _span(data: bytearray, chance: random.Random) -> slice:
    start = chance.randint(0, len(data))
    return slice(start, min(len(data), start + chance.choice((1, 2, 4, 16, 64))))


def _flip(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del data[_span(data, chance)]


def _truncate(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randint(0, len(data)) :]


def _insert(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(INTERESTING)


def _overwrite(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    data[_span(data, chance)] = chance.choice(INTERESTING)


def _repeat(data: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    span = _span(data, chance)
    data[span] = data[span] * chance.randint(2, REPEATS_MAX)


def _splice(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(seeds)
    data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]


_CHANGES: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _flip, _cut, _truncate, _insert, _overwrite, _repeat, _splice,
)  # fmt: skip
