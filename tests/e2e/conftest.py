"""Fixtures of the end-to-end tests: a real network and a real Chromium.

They need a test process of their own, because Playwright keeps an event loop running in it. Without a Chromium the
tests are skipped with a message; CI installs one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from sparewatt.api.dashboard.pages import DIST
from tests.integration.networks import Network, start_network, wait_until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # tests run as root in containers, and open our own pages only
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
PAGE_S = 20.0
expect.set_options(timeout=PAGE_S * 1000)


def find_chromium() -> str | None:
    from_environment = os.environ.get("CHROMIUM")
    return from_environment or next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("NO CHROMIUM: the dashboard is not tested. On Debian: apt-get install chromium; or set CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def network(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network for all tests. It depends on `browser`, so that it is not started where the tests are skipped."""
    assert (DIST / "index.html").exists(), "the dashboard is not built: make web"
    env = {"SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": "10000", "SPAREWATT_GATEWAY_GRANTS_PER_ADDRESS_DAY": "1000"}
    with start_network(tmp_path_factory.mktemp("e2e"), "--engine=deterministic", env=env) as network:
        yield network


@pytest.fixture(scope="session")
def market(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network with a chain, on which its node is a provider of leases. For all tests that need one."""
    assert browser.is_connected()
    with start_network(tmp_path_factory.mktemp("market"), "--engine=deterministic", "--nodes=1", chain=True) as network:
        wait_until(lambda: "providers of leases" in network.output.read_text(), "no chain", ceiling_s=60)
        yield network


class Window:
    """A page in a fresh browser profile. `faults` collects its script errors and its requests to other origins."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PAGE_S * 1000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._check_message)
        self.page.on("request", self._check_origin)
        self._root = ""

    def _check_message(self, message: ConsoleMessage) -> None:
        # Bridges of containers come and go on this machine; a browser breaks off its requests then, and asks again.
        if message.type == "error" and "ERR_NETWORK_CHANGED" not in message.text:
            self.faults.append(message.text)

    def _check_origin(self, request: Request) -> None:
        if self._root and not request.url.startswith((self._root, "data:", "blob:")):
            self.faults.append(f"request to another origin: {request.url}")

    def open(self, network: Network, path: str) -> Page:
        self._root = network.root_url
        self.page.goto(f"{network.root_url}{path}")
        return self.page


@pytest.fixture
def window(browser: Browser) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    window = Window(context)
    yield window
    context.close()
    assert window.faults == []
