"""The map with ten thousand nodes for minutes, and what viewers cost. Writes docs/measurements/dashboard.md.

Needs a quiet machine: frames are drawn by the same cores that everything else runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from playwright.sync_api import CDPSession, Page, sync_playwright

from sparewatt.api.dashboard.pages import DIST
from sparewatt.machine.spawn import free_port
from tests.e2e.conftest import FLAGS, find_chromium
from tests.processes import end_process, start_process, wait_until
from tests.soak.crowd import CHANGES_PER_S, MATCHES_PER_S, NODES

REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "dashboard.md"
WATCH_S = float(os.environ.get("DASHBOARD_SOAK_S", "300"))
VIEWERS = 20
COST_S = 30.0
SETTLE_S = 20.0
FPS_MIN = 45.0
CPU_SHARE_MAX = 0.10
HEAP_GROWTH_MAX = 1.15


@contextmanager
def a_crowd(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    process = start_process(
        [sys.executable, "-m", "tests.soak.crowd", str(port)], output=folder / "crowd.txt", env=dict(os.environ)
    )
    try:
        wait_until(lambda: _answers(port), "the crowd does not answer", ceiling_s=60)
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def _answers(port: int) -> bool:
    return any(
        connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
        for connection in psutil.net_connections("tcp")
    )


def cpu_share(process: psutil.Process, seconds: float) -> float:
    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before, began_s = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began_s)


async def view(url: str, until_s: float) -> int:
    """One viewer that reads everything; tells how many bytes that was."""
    count = 0
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/feed") as reply:
        while time.monotonic() < until_s:
            count += len(await reply.content.readany())
    return count


@dataclass(frozen=True)
class Cost:
    alone: float
    watched: float
    bytes_per_s: float


def cost_of_viewers(url: str, gateway: psutil.Process) -> Cost:
    alone = cpu_share(gateway, COST_S)

    async def watched() -> tuple[float, int]:
        until_s = time.monotonic() + COST_S + 5
        viewers = [asyncio.create_task(view(url, until_s)) for _ in range(VIEWERS)]
        await asyncio.sleep(3)  # snapshots are sent
        share = await asyncio.to_thread(cpu_share, gateway, COST_S)
        return share, sum(await asyncio.gather(*viewers))

    share, count = asyncio.run(watched())
    return Cost(alone, share, count / VIEWERS / (COST_S + 5))


@dataclass(frozen=True)
class Watched:
    fps: list[float]
    cpu_ms_per_frame: float
    """Of all the browser's processes: what a machine needs for a frame, however busy it is otherwise."""
    heap_mb: list[float]
    paint_ms: float


def heap_mb(page: Page, devtools: CDPSession) -> float:
    devtools.send("HeapProfiler.collectGarbage")
    return float(page.evaluate("() => performance.memory.usedJSHeapSize")) / 1e6


def browser_cpu_s() -> float:
    """Of every process of the browser so far."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                times = process.cpu_times()
                used += times.user + times.system
    return used


def watch_map(url: str) -> Watched:
    with sync_playwright() as playwright:
        flags = [*FLAGS, "--enable-precise-memory-info"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        devtools = page.context.new_cdp_session(page)
        page.goto(url)
        page.wait_for_function(f"() => document.body.innerText.includes('{NODES}') || window.sparewattScene")
        time.sleep(SETTLE_S)
        fps, heaps, until_s = [], [heap_mb(page, devtools)], time.monotonic() + WATCH_S
        cpu_s, frames = browser_cpu_s(), page.evaluate("() => sparewattScene.frames")
        while time.monotonic() < until_s:
            before, began_s = page.evaluate("() => sparewattScene.frames"), time.monotonic()
            time.sleep(10)
            fps.append((page.evaluate("() => sparewattScene.frames") - before) / (time.monotonic() - began_s))
            heaps.append(heap_mb(page, devtools))
        per_frame_ms = (browser_cpu_s() - cpu_s) / (page.evaluate("() => sparewattScene.frames") - frames) * 1000
        paint = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return Watched(fps, per_frame_ms, heaps, float(paint))


def test_ten_thousand_nodes_stay_smooth_and_viewers_cost_little(tmp_path: Path) -> None:
    if find_chromium() is None:
        pytest.skip("NO CHROMIUM: the map is not measured.")
    assert (DIST / "index.html").exists(), "the dashboard is not built: make web"
    with a_crowd(tmp_path) as (url, gateway):
        cost = cost_of_viewers(url, gateway)
        watched = watch_map(url)
    half = len(watched.heap_mb) // 2
    growth = min(watched.heap_mb[half:]) / max(watched.heap_mb[:half])
    REPORT.write_text(report(cost, watched, growth))
    assert cost.watched - cost.alone < CPU_SHARE_MAX
    assert min(watched.fps) >= FPS_MIN
    assert growth <= HEAP_GROWTH_MAX


def report(cost: Cost, watched: Watched, growth: float) -> str:
    least, middle = min(watched.fps), sorted(watched.fps)[len(watched.fps) // 2]
    return f"""# The dashboard's map and feed

Made by `make soak` (tests/soak/test_dashboard.py): {NODES:,} simulated nodes, {CHANGES_PER_S} changes and
{MATCHES_PER_S} matches per second, a headless Chromium without a GPU at 1440 by 900, {os.cpu_count()} cores,
load {os.getloadavg()[0]:.1f} at the end, Python {platform.python_version()}.

| what | measured | wanted |
| --- | --- | --- |
| frames per second over {WATCH_S:.0f} s, least / median of 10 s | {least:.0f} / {middle:.0f} | ≥ {FPS_MIN:.0f} |
| processor time of the browser per frame | {watched.cpu_ms_per_frame:.1f} ms | |
| browser's heap, begin / end, after collecting | {watched.heap_mb[0]:.1f} / {watched.heap_mb[-1]:.1f} MB | flat |
| least of the second half over most of the first | {growth:.2f} | ≤ {HEAP_GROWTH_MAX} |
| first paint | {watched.paint_ms:.0f} ms | < 2,000 |
| gateway, nobody watches | {cost.alone:.1%} of a core | |
| gateway, {VIEWERS} viewers | {cost.watched:.1%} of a core | |
| what the {VIEWERS} cost | {cost.watched - cost.alone:.1%} of a core | < {CPU_SHARE_MAX:.0%} |
| feed, per viewer | {cost.bytes_per_s / 1000:.1f} kB/s | |
"""
