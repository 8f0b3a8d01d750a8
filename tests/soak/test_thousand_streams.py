"""A thousand streams at once for ten minutes: each token says whose it is, memory stands still, nothing stays open.

`make soak-streams`; writes docs/measurements/streams-1000.md. STREAMS_N, STREAMS_S and STREAMS_WARM_UP change how many,
how long, and how many short questions come before. What is measured begins when all that a gateway keeps of the past is
full (the ring of matches above all) and every client has read one stream to its end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import platform
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparewatt.core.limits import MATCHES_KEPT
from tests.integration.hostile.raw import address_of
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.processes import wait_until
from tests.soak.hostile import SLOTS, ask_often, open_files, raise_open_files, roomy_network, rss_bytes, say, tasks

STREAMS = int(os.environ.get("STREAMS_N", "1000"))
SECONDS = float(os.environ.get("STREAMS_S", "600"))
TOKENS = 60
DECODE_TPS = 1.5
WARM_UP = int(os.environ.get("STREAMS_WARM_UP", str(MATCHES_KEPT + MATCHES_KEPT // 10)))
WARM_UP_S_MAX = 300.0
GROWTH_MAX = 1.05
FIRST_SHARE = 0.1
"""Of the time that is measured: what the rest of it is compared with."""

SAMPLE_S = 2.0
TOLD_S = 20.0
STREAM_S_MAX = 240.0
"""After this long a stream counts as stuck."""

FAULTS_MAX = 1000
"""With more than that there is nothing left to learn."""

LEFT_S_MAX = 90.0

REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "streams-1000.md"


@dataclass(slots=True)
class Tally:
    whole: int = 0
    tokens: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    open_now: int = 0
    open_most: int = 0
    places_done: set[int] = field(default_factory=set)
    """Clients that have read a stream to its end."""
    settled_s: float | None = None
    """When all had."""
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since then, and the gateway's memory."""

    def growth(self) -> float:
        """The most that it ever took over the most that it took in the first tenth of the time."""
        first = [n_bytes for at_s, n_bytes in self.samples if at_s <= SECONDS * FIRST_SHARE]
        return max(self.memory()) / max(first) if first else math.nan

    def memory(self) -> list[int]:
        return [n_bytes for _, n_bytes in self.samples]

    def is_over(self, now_s: float) -> bool:
        return self.settled_s is not None and now_s - self.settled_s >= SECONDS


async def read_stream(target: Target, label: str, tally: Tally) -> None:
    """One stream on a connection of its own, to its end."""
    reader, writer = await asyncio.open_connection(*address_of(target.network))
    tally.open_now += 1
    tally.open_most = max(tally.open_most, tally.open_now)
    try:
        more: dict[str, Any] = {"stream": True, "ignore_eos": True, "max_tokens": TOKENS}
        writer.write(target.chat(f"[label {label}]", b"Connection: close", **more))
        fault = await _check(reader, label, tally)
        if fault is None:
            tally.whole += 1
        else:
            tally.faults[fault] += 1
    finally:
        tally.open_now -= 1
        writer.close()


async def _check(reader: asyncio.StreamReader, label: str, tally: Tally) -> str | None:
    """What is wrong with it. Every token must be the next one of this very stream."""
    count, is_done = 0, False
    async for line in reader:
        if line.startswith(b"HTTP/1.1 ") and not line.startswith(b"HTTP/1.1 200"):
            return f"status {line[9:12].decode()}"
        is_done = is_done or line.startswith(b"data: [DONE]")
        if is_done or not line.startswith(b"data: "):
            continue
        for token in _tokens(json.loads(line[6:])):
            if token != f" {label}_{count}":
                return "a token out of order" if token.startswith(f" {label}_") else "another stream's token"
            count += 1
    tally.tokens += count
    if not is_done:
        return "cut"
    return None if count == TOKENS else f"{count} tokens"


def _tokens(event: dict[str, Any]) -> list[str]:
    """An error has none: its stream ends without [DONE]."""
    return [text for choice in event.get("choices", ()) if (text := choice["delta"].get("content"))]


async def stream_all(network: Network, target: Target) -> Tally:
    tally = Tally()

    async def one_after_another(place: int) -> None:
        """Clients come one by one, all within the time that one stream takes, and stay apart."""
        await asyncio.sleep(TOKENS / DECODE_TPS * place / STREAMS)
        for turn in itertools.count(1):
            try:
                async with asyncio.timeout(STREAM_S_MAX):
                    await read_stream(target, f"s{place}x{turn}", tally)
            except (TimeoutError, OSError) as error:
                tally.faults[type(error).__name__] += 1
            tally.places_done.add(place)
            if tally.is_over(time.monotonic()) or tally.faults.total() > FAULTS_MAX:
                return

    watching = asyncio.create_task(watch(network, tally))
    await asyncio.gather(*(one_after_another(place) for place in range(STREAMS)))
    watching.cancel()
    return tally


async def watch(network: Network, tally: Tally) -> None:
    """Memory, from when all clients have read a stream to when the time is over; and a word now and then."""
    told_s = time.monotonic()
    while True:
        await asyncio.sleep(SAMPLE_S)
        now_s, taken = time.monotonic(), rss_bytes(network.pid)
        if tally.settled_s is None and len(tally.places_done) == STREAMS:
            tally.settled_s = now_s
        if tally.settled_s is not None and not tally.is_over(now_s):
            tally.samples.append((now_s - tally.settled_s, taken))
        if now_s - told_s >= TOLD_S:
            told_s = now_s
            at = "warming up" if tally.settled_s is None else f"{now_s - tally.settled_s:.0f} s of {SECONDS:.0f}"
            say(f"{at}: {tally.open_now:,} open, {tally.whole:,} whole, {taken / 1e6:.1f} MB, faults {tally.faults}")


def test_a_thousand_streams_for_ten_minutes(tmp_path: Path) -> None:
    raise_open_files()
    nodes = -(-STREAMS // (SLOTS - 20))
    with roomy_network(tmp_path, nodes=nodes, decode_tps=DECODE_TPS) as network:
        target = Target(network, network.api_key.encode(), network.api_key.encode())
        asked = ask_often(target, WARM_UP, seconds_max=WARM_UP_S_MAX)
        say(f"{asked:,} short questions answered; the ring keeps {MATCHES_KEPT:,}")
        before = Left.of(network)
        tally = asyncio.run(stream_all(network, target))
        REPORT.write_text(report(tally, nodes=nodes, asked=asked, before=before, after=Left.of(network)))
        wait_until(lambda: Left.of(network) <= before, "the gateway has sockets or tasks left", ceiling_s=LEFT_S_MAX)
        REPORT.write_text(report(tally, nodes=nodes, asked=asked, before=before, after=Left.of(network)))
    assert asked >= WARM_UP, "what is kept was not full when memory was first looked at"
    assert tally.faults == {}
    assert tally.open_most == STREAMS
    assert tally.growth() < GROWTH_MAX


@dataclass(frozen=True, slots=True)
class Left:
    """What a gateway has open."""

    files: int
    tasks: int

    @classmethod
    def of(cls, network: Network) -> Left:
        return cls(open_files(network.pid), tasks(network))

    def __le__(self, other: Left) -> bool:
        return self.files <= other.files and self.tasks <= other.tasks


def report(tally: Tally, *, nodes: int, asked: int, before: Left, after: Left) -> str:
    memory = tally.memory() or [0]
    faults = ", ".join(f"{what}: {count}" for what, count in sorted(tally.faults.items())) or "none"
    return f"""# A thousand streams at once

Made by `make soak-streams` (tests/soak/test_thousand_streams.py) on {os.cpu_count()} cores,
Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end. Real processes: a gateway, {nodes} nodes
on the deterministic engine at {DECODE_TPS} tokens a second and stream, {STREAMS:,} clients that each read one stream
of {TOKENS} tokens after another. Every token carries the name of its stream and its number, and is compared. First
{asked:,} short questions fill what the gateway keeps of the past; when every client has read a stream to its end,
{SECONDS:.0f} s are measured.

| what | measured | wanted |
| --- | --- | --- |
| streams open at once, most | {tally.open_most:,} | {STREAMS:,} |
| streams that came whole | {tally.whole:,} | |
| tokens, each of the right stream and in its place | {tally.tokens:,} | |
| streams with a fault | {faults} | none |
| gateway's memory, least / most | {min(memory) / 1e6:.1f} / {max(memory) / 1e6:.1f} MB | |
| most of all the time over most of its first tenth | {tally.growth():.3f} | < {GROWTH_MAX} |
| gateway's open files before / after | {before.files} / {after.files} | not more |
| its event loop's tasks before / after | {before.tasks} / {after.tasks} | not more |
"""
