"""Pictures of every page: `make screenshots`. From networks of its own, used a little first; needs Chromium.

The map is taken from a crowd of simulated nodes (tests/soak/crowd.py), since a laptop has only a few real ones. A part
alone: `PYTHONPATH=. python docs/pictures/make_screenshots.py market`, or `map`, or `pages`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from sparewatt.machine.spawn import free_port
from tests.e2e.conftest import FLAGS, Window, find_chromium
from tests.e2e.people import ask, sign_up
from tests.e2e.test_lease_match import lease_create, newest_order, wait_for_quorum
from tests.e2e.test_owner import has_job, running_engine
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network, start_network
from tests.processes import commands_of, end_process, start_process, wait_until

HERE = Path(__file__).parent
CROWD = {"CROWD_NODES": "1500", "CROWD_CHANGES": "60"}
"""A calm one: some come and go while the picture is taken."""
QUESTIONS = ("Say hello", "Why is the sky blue?", "Tell me a story about a spare watt", "What is a quorum?")
PAGES = ("models", "nodes", "earnings", "keys", "usage", "join", "status", "matching")
SETTLE_MS = 2_500
SIZE: ViewportSize = {"width": 1280, "height": 800}
MATCH_HEIGHT = 1_340
"""All of a match with two attempts."""
ATTIC = "attic-7b"
JOBS = 5
CPU_PRICES = {"node-1": "0.31", "node-2": "0.24", "node-3": "0.28"}
"""Dollars for an hour of a processor."""
ORDERS = 3
LEASE_MATCH_HEIGHT = 1_400
"""Down to what each validator signed."""
PARTS = ("map", "pages", "market")


def shoot(page: Page, name: str, *, is_whole: bool = False) -> None:
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=HERE / f"{name}.png", full_page=is_whole)


@contextmanager
def crowd(folder: Path) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "tests.soak.crowd", str(port)]
    process = start_process(argv, output=folder / "crowd.txt", env={**os.environ, **CROWD})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def shoot_map(browser: Browser, folder: Path) -> None:
    with crowd(folder) as url:
        page = browser.new_page(viewport=SIZE, color_scheme="dark")
        for _ in range(100):
            try:
                page.goto(url)
                break
            except Exception:  # noqa: BLE001 (it is still starting)
                page.wait_for_timeout(200)
        page.get_by_role("img", name="World map").wait_for()
        shoot(page, "network")
        page.close()


def shoot_pages(browser: Browser, network: Network, folder: Path) -> None:
    context = browser.new_context(viewport=SIZE, color_scheme="dark")
    window = Window(context)
    page = sign_up(window, network)
    for question in QUESTIONS:
        ask(page, question)
    shoot(page, "playground")
    shoot_moved(page, network)
    with own_node(window, network, folder) as node_id:
        page.wait_for_timeout(12_000)  # until what happened is in the lines
        for name in PAGES:
            window.open(network, f"/{name}")
            page.get_by_role("heading", level=1).wait_for()
            shoot(page, name)
        window.open(network, f"/nodes/{node_id}")
        page.locator("[data-testid=reputation] [data-cause=link_lost]").wait_for()
        shoot(page, "node", is_whole=True)
    page.emulate_media(color_scheme="light")
    window.open(network, "/status")
    shoot(page, "status-light")
    context.close()


def shoot_moved(page: Page, network: Network) -> None:
    """A match whose node died in the middle of the answer."""
    page.get_by_label("longest answer").fill("3000")
    page.get_by_label("Question").fill("Tell me a long story about a spare watt")
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.get_by_test_id("answer").last
    page.locator("[data-testid=answer][data-state=writing]").wait_for()
    serving = answer.locator("xpath=..").locator("a[href^='/nodes/0x']").inner_text().split()[0]
    commands = commands_of(network.descendants()).items()
    os.kill(next(pid for pid, command in commands if f"--name={serving} " in command), signal.SIGKILL)
    page.locator("[data-testid=answer][data-state=done]").nth(len(QUESTIONS)).wait_for()
    page.get_by_test_id("why-link").last.click()
    page.get_by_test_id("timeline").wait_for()
    page.set_viewport_size({"width": SIZE["width"], "height": MATCH_HEIGHT})
    shoot(page, "match")
    page.set_viewport_size(SIZE)


@contextmanager
def own_node(window: Window, network: Network, folder: Path) -> Iterator[str]:
    """A node of who is logged in, that earned, was lost with a job once, and is back."""
    page = window.open(network, "/join")
    page.get_by_role("button", name="Make a join line").click()
    token = page.get_by_test_id("join-line").inner_text().rpartition("--token ")[2]
    body = {"model": ATTIC, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 200, "stream": True}
    with running_engine(folder, ATTIC) as backend:
        argv = [sys.executable, "-m", "sparewatt", "node", "join", network.root_url, f"--token={token}"]
        argv += [f"--backend={backend}", f"--data={folder / 'attic'}", "--name=attic", "--region=JP"]
        process = start_process(argv, output=folder / "attic.txt")
        card = page.get_by_test_id("joining").first
        card.get_by_text("tok/s").wait_for()
        node_id = str(card.get_attribute("data-node"))
        for _ in range(JOBS):
            ask_api(network, "POST", "/v1/chat/completions", body)
        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(ask_api, network, "POST", "/v1/chat/completions", body | {"max_tokens": 3_000})
            wait_until(lambda: has_job(network, node_id), "the job is not under way")
            process.kill()
            lost.result()
        process = start_process(argv, output=folder / "attic.txt")
        try:
            yield node_id
        finally:
            end_process(process, signal.SIGTERM, ceiling_s=20)


def shoot_market(browser: Browser, network: Network) -> None:
    """A market with leases, an order that nobody could serve, and one that was matched near a place."""
    wait_for_quorum(network)
    for name, price in CPU_PRICES.items():
        argv = [sys.executable, "-m", "sparewatt", "node", "leases", "offer", f"--cpu-price={price}"]
        argv += [f"--data={network.data / 'nodes' / name}"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own command)
    for number in range(ORDERS):
        lease_create(network, "--gpus=0", f"--cpus=0.{number + 1}", "--near=DE")
    lease_create(network, "--gpus=1", "--gpu=rtx-4090", "--max-hourly=0.8", "--anyway", "--no-wait")
    wait_until(lambda: newest_order(network, gpus=1) is not None, "the order is not on the chain", ceiling_s=60)
    context = browser.new_context(viewport=SIZE, color_scheme="dark")
    window = Window(context)
    page = sign_up(window, network)
    window.open(network, "/market")
    page.locator("#orders").get_by_text("0 bids because").wait_for()
    shoot(page, "market")
    window.open(network, "/validators")
    page.locator("#validators").wait_for()
    shoot(page, "validators")
    page.set_viewport_size({"width": SIZE["width"], "height": LEASE_MATCH_HEIGHT})
    window.open(network, f"/market/{newest_order(network, gpus=0)}")
    page.get_by_test_id("recomputed").wait_for()
    shoot(page, "lease-match")
    context.close()


def main(parts: Collection[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        if "map" in parts:
            shoot_map(browser, Path(folder))
        if "pages" in parts:
            with start_network(Path(folder) / "network", "--engine=deterministic") as network:
                shoot_pages(browser, network, Path(folder))
        if "market" in parts:
            with start_network(Path(folder) / "market", "--engine=deterministic", chain=True) as network:
                shoot_market(browser, network)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:] or PARTS)
