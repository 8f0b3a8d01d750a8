"""Pictures of every page: `make screenshots`. From a network of its own, used a little first; needs Chromium.

The map is taken from a crowd of simulated nodes (tests/soak/crowd.py), since a laptop has only a few real ones.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from sparewatt.supervisor.spawn import free_port
from tests.e2e.conftest import FLAGS, Window, find_chromium
from tests.e2e.people import ask, sign_up
from tests.integration.networks import Network, start_network
from tests.processes import end_process, start_process

HERE = Path(__file__).parent
CROWD = "1500"
QUESTIONS = ("Say hello", "Why is the sky blue?", "Tell me a story about a spare watt", "What is a quorum?")
PAGES = ("models", "nodes", "earnings", "keys", "usage", "join", "status", "matching")
SETTLE_MS = 2_500


def shoot(page: Page, name: str) -> None:
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=HERE / f"{name}.png")


@contextmanager
def crowd(folder: Path) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "tests.soak.crowd", str(port)]
    process = start_process(argv, output=folder / "crowd.txt", env={**os.environ, "CROWD_NODES": CROWD})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def shoot_map(browser: Browser, folder: Path) -> None:
    with crowd(folder) as url:
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark")
        for _ in range(100):
            try:
                page.goto(url)
                break
            except Exception:  # noqa: BLE001 (it is still starting)
                page.wait_for_timeout(200)
        page.get_by_role("img", name="World map").wait_for()
        shoot(page, "network")
        page.close()


def shoot_pages(browser: Browser, network: Network) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="dark")
    window = Window(context)
    page = sign_up(window, network)
    for question in QUESTIONS:
        ask(page, question)
    shoot(page, "playground")
    page.get_by_test_id("why-link").last.click()
    page.get_by_test_id("timeline").wait_for()
    shoot(page, "match")
    page.wait_for_timeout(12_000)  # until what happened is in the lines
    for name in PAGES:
        window.open(network, f"/{name}")
        page.get_by_role("heading", level=1).wait_for()
        shoot(page, name)
    window.open(network, "/nodes")
    page.locator("#nodes tbody tr").first.click()
    page.wait_for_url("**/nodes/0x*")
    shoot(page, "node")
    page.emulate_media(color_scheme="light")
    window.open(network, "/status")
    shoot(page, "status-light")
    context.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        shoot_map(browser, Path(folder))
        with start_network(Path(folder) / "network", "--engine=deterministic") as network:
            shoot_pages(browser, network)
        browser.close()


if __name__ == "__main__":
    main()
