"""A renter's lease on its page, in a real container: ordered, followed to running, read, entered, paused, closed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.e2e.test_lease_match import deposit, wait_for_quorum
from tests.e2e.wizard import go_to
from tests.integration.networks import Network, start_network
from tests.integration.test_leased_container import MARKET_S, runs_containers
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
CHAIN_MS = 60_000


@pytest.fixture
def leasing(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network whose node runs containers."""
    assert browser.is_connected()
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            folder, env = tmp_path_factory.mktemp("leasing"), {"DOCKER_HOST": f"unix://{socket}"}
            with start_network(folder, "--engine=deterministic", "--nodes=1", chain=True, env=env) as network:
                wait_for_quorum(network)
                wait_until(lambda: runs_containers(network), "containers were not proven", ceiling_s=MARKET_S)
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def test_a_renter_follows_a_lease_to_running_reads_it_pauses_it_and_closes_it(leasing: Network, window: Window) -> None:
    page = sign_up(window, leasing)
    deposit(page, usd="5")
    window.open(leasing, "/leases/new")
    order(page)
    expect_step(page, "running")
    logs = page.get_by_test_id("logs")
    expect(logs).to_contain_text("hello from the lease")
    expect(page.get_by_test_id("money")).to_contain_text(
        re.compile(r"Costs now\$0\.\d+ /h.*until .*then its time is over")
    )
    expect(page.get_by_test_id("uptime")).to_have_text("100 %")
    expect_events(page, "ordered", "matched", "placed", "started")
    enter(page)
    act(page, "Top up", "Add to the deposit", says="It is taken from your credits now")
    act(page, "Extend", "Extend it", says="Its provider has to accept it.")
    expect_events(page, "updated")
    expect(page.get_by_test_id("runway")).to_have_text(re.compile("then its time is over"))
    act(page, "Pause", "Pause it", says="nothing while it is paused")
    expect_step(page, "paused")
    act(page, "Resume", "Resume it", says="an hour from the moment it runs")
    expect_step(page, "running")
    page.get_by_role("radio", name="Logs").click()
    expect(logs).to_contain_text("following")
    lease_url = page.url
    window.open(leasing, "/")
    expect(page.get_by_test_id("leased-nodes")).to_contain_text("1 with leases")
    page.goto(lease_url)
    act(page, "Close", "Close it", says="comes back to your credits")
    expect_step(page, "closed")
    expect(page.get_by_test_id("ending")).to_contain_text(
        re.compile(r"Ended by you.*paid, \$\d\.\d+ refunded\. RENTER")
    )
    expect_events(page, "paused", "resumed", "closed")
    expect(page.get_by_role("button", name="Close")).to_have_count(0)


def order(page: Page) -> None:
    page.get_by_label("Image").fill(probe_image.image_tag())
    page.get_by_label("Command").fill(f"{probe_image.PROGRAM} say 'hello from the lease' wait 100000000")
    go_to(page, "Machine")
    for label, value in (("GPUs", "0"), ("Processors", "0.1"), ("Memory", "0.1"), ("Disk", "0.1")):
        page.get_by_label(label).fill(value)
    go_to(page, "Inside")
    page.get_by_label("Ports").fill("8080")
    page.get_by_label("Environment").fill("MODE=full")
    go_to(page, "Price")
    expect(page.get_by_test_id("quote")).to_contain_text("1 of 1")
    page.get_by_role("button", name="Order it").click()
    page.wait_for_url(re.compile(r"/leases/[0-9a-f]{16}$"), timeout=CHAIN_MS)


def enter(page: Page) -> None:
    """A command beside the program, with a terminal: what is typed comes back."""
    page.get_by_role("radio", name="Terminal").click()
    page.get_by_label("Command").fill(f"{probe_image.PROGRAM} say inside echo")
    page.get_by_role("button", name="Open a terminal").click()
    terminal = page.get_by_test_id("terminal")
    expect(terminal).to_contain_text("connected")
    screen = terminal.locator(".xterm-rows")
    expect(screen).to_contain_text("inside")
    page.keyboard.type("typed here")
    expect(screen).to_contain_text("typed here")


def act(page: Page, button: str, yes: str, *, says: str) -> None:
    """Nothing is done before a yes to what it costs."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_test_id("consequence")).to_contain_text(says)
    dialog.get_by_role("button", name=yes).click()
    expect(dialog).to_have_count(0, timeout=CHAIN_MS)


def expect_step(page: Page, step: str) -> None:
    expect(page.get_by_test_id("lease-states")).to_have_attribute("data-step", step, timeout=CHAIN_MS)


def expect_events(page: Page, *kinds: str) -> None:
    for kind in kinds:
        expect(page.get_by_test_id("lease-events").locator(f"[data-kind={kind}]")).to_be_visible()
