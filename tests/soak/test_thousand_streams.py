"""A thousand streams at once for ten minutes: each token says whose it is, memory stands still, nothing stays open.

Run by `make soak`; writes docs/measurements/streams-1000.md. STREAMS_N and STREAMS_S change how many and how long.
"""

from __future__ import annotations

import asyncio
import json
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
from tests.soak.hostile import SLOTS, ask_often, open_files, raise_open_files, roomy_network, rss_bytes

STREAMS = int(os.environ.get("STREAMS_N", "1000"))
SECONDS = float(os.environ.get("STREAMS_S", "600"))
TOKENS = 60
DECODE_TPS = 1.5
WARM_UP_SHARE = 0.25
GROWTH_MAX = 1.05
SAMPLE_S = 2.0
STREAM_S_MAX = 240.0
"""After this long a stream counts as stuck."""

REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "streams-1000.md"


@dataclass(slots=True)
class Tally:
    whole: int = 0
    tokens: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    open_now: int = 0
    open_most: int = 0
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the start, and the gateway's memory."""

    def growth(self) -> float:
        """The most that the last quarter took over the most that the first quarter after the warm-up did."""
        settled = [n_bytes for at_s, n_bytes in self.samples if at_s > SECONDS * WARM_UP_SHARE]
        quarter = max(1, len(settled) // 4)
        return max(settled[-quarter:]) / max(settled[:quarter])


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
    tally, began_s = Tally(), time.monotonic()

    async def one_after_another(place: int) -> None:
        """Clients come one by one, all within the time that one stream takes, and stay apart."""
        await asyncio.sleep(TOKENS / DECODE_TPS * place / STREAMS)
        turn = 0
        while time.monotonic() - began_s < SECONDS:
            turn += 1
            try:
                async with asyncio.timeout(STREAM_S_MAX):
                    await read_stream(target, f"s{place}x{turn}", tally)
            except (TimeoutError, OSError) as error:
                tally.faults[type(error).__name__] += 1

    async def sample() -> None:
        while True:
            tally.samples.append((time.monotonic() - began_s, rss_bytes(network.pid)))
            await asyncio.sleep(SAMPLE_S)

    sampling = asyncio.create_task(sample())
    await asyncio.gather(*(one_after_another(place) for place in range(STREAMS)))
    sampling.cancel()
    return tally


def test_a_thousand_streams_for_ten_minutes(tmp_path: Path) -> None:
    raise_open_files()
    nodes = -(-STREAMS // (SLOTS - 20))
    with roomy_network(tmp_path, nodes=nodes, decode_tps=DECODE_TPS) as network:
        target = Target(network, network.api_key.encode(), network.api_key.encode())
        ask_often(target, MATCHES_KEPT)
        before = open_files(network.pid)
        tally = asyncio.run(stream_all(network, target))
        REPORT.write_text(report(tally, nodes=nodes, before=before, after=open_files(network.pid)))
        wait_until(lambda: open_files(network.pid) <= before, "the gateway has sockets left", ceiling_s=90)
        REPORT.write_text(report(tally, nodes=nodes, before=before, after=open_files(network.pid)))
    assert tally.faults == {}
    assert tally.open_most == STREAMS
    assert tally.growth() < GROWTH_MAX


def report(tally: Tally, *, nodes: int, before: int, after: int) -> str:
    settled = [n_bytes for at_s, n_bytes in tally.samples if at_s > SECONDS * WARM_UP_SHARE]
    faults = ", ".join(f"{what}: {count}" for what, count in sorted(tally.faults.items())) or "none"
    return f"""# A thousand streams at once

Made by `make soak` (tests/soak/test_thousand_streams.py) on {os.cpu_count()} cores, Python {platform.python_version()},
load {os.getloadavg()[0]:.1f} at the end. Real processes: a gateway, {nodes} nodes on the deterministic engine at
{DECODE_TPS} tokens a second and stream, {STREAMS:,} clients that each read one stream of {TOKENS} tokens after another
for {SECONDS:.0f} s. Every token carries the name of its stream and its number, and is compared.

| what | measured | wanted |
| --- | --- | --- |
| streams open at once, most | {tally.open_most:,} | {STREAMS:,} |
| streams that came whole | {tally.whole:,} | |
| tokens, each of the right stream and in its place | {tally.tokens:,} | |
| streams with a fault | {faults} | none |
| gateway's memory after the warm-up, least / most | {min(settled) / 1e6:.1f} / {max(settled) / 1e6:.1f} MB | |
| most of the last quarter over most of the first | {tally.growth():.3f} | < {GROWTH_MAX} |
| gateway's open files before / after | {before} / {after} | not more |
"""
