"""A lease is ordered on a real chain with real validators; the pages show its bid, its votes and its certificate."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.e2e.wizard import go_to
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.processes import wait_until

MARKET_S = 60.0
"""Until validators have joined, their stake weighs and the first snapshot is posted: 15 s on an idle machine."""
MATCH_S = 120.0
CHAIN_MS = 60_000
VALIDATORS = 4


@pytest.fixture
def quorum(market: Network) -> Network:
    wait_for_quorum(market)
    return market


def wait_for_quorum(network: Network) -> None:
    """Until all validators vote and their table has providers."""

    def is_ready() -> bool:
        reply = ask(network, "GET", "/v1/market/validators")
        if reply.status != 200:
            return False
        listed: dict[str, Any] = reply.json()
        snapshot = listed["snapshot"]
        voting = [each for each in listed["data"] if float(each["weight_usd"]) > 0]
        return len(voting) == VALIDATORS and snapshot is not None and snapshot["count"] > 0

    wait_until(is_ready, "the validators do not vote", ceiling_s=MARKET_S)


def lease_create(network: Network, *flags: str) -> subprocess.CompletedProcess[str]:
    """As a user types it. The network's own key has credits."""
    env = {**os.environ, "SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", "lease", "create", "--image=ubuntu:24.04", "--yes", *flags]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=MATCH_S, check=False)


def newest_order(network: Network, *, gpus: int) -> str | None:
    orders = ask(network, "GET", "/v1/market/orders?which=all").json()["data"]
    return next((order["id"] for order in orders if order["gpu_units"] == gpus), None)


def test_an_ordered_lease_shows_its_bid_its_votes_and_its_certificate(quorum: Network, window: Window) -> None:
    page = sign_up(window, quorum)
    window.open(quorum, "/matching")
    ordered = lease_create(quorum, "--gpus=0")
    assert ordered.returncode == 0, ordered.stdout + ordered.stderr
    order_id = newest_order(quorum, gpus=0)
    assert order_id is not None
    auction = page.locator("#auctions tbody tr", has_text=order_id[:12])
    expect(auction).to_contain_text(re.compile(r"matched.*1.*[34] of 4"))  # the live feed had it, without a reload
    check_order(window.open(quorum, f"/market/{order_id}"), quorum, order_id)
    check_market(window.open(quorum, "/market"), order_id)
    check_validators(window.open(quorum, "/validators"))


def check_order(page: Page, network: Network, order_id: str) -> None:
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_test_id("phases")).to_have_attribute("data-phase", "matched")
    bids = drawer.get_by_test_id("bids").locator("li")
    expect(bids).to_have_count(1)
    expect(bids).to_contain_text("node-1 won")  # by the name of its node, not by an address
    expect(drawer.get_by_test_id("standing")).to_contain_text("node-1 has it, at $")
    expect(bids).to_contain_text("is paid $")
    replay = drawer.get_by_test_id("side-by-side")
    expect(replay.locator("tbody tr")).to_have_count(VALIDATORS)
    expect(replay).to_contain_text("Every vote of this round that is known has the digest of the certificate.")
    expect(replay.get_by_test_id("recomputed")).to_contain_text("1 score")
    accepted = ask(network, "GET", f"/v1/market/orders/{order_id}").json()["certificate"]
    expect(drawer.get_by_test_id("digest")).to_have_text(accepted["task_digest"])
    expect(drawer.get_by_test_id("certificate")).to_contain_text(f"{len(accepted['signers'])} of 4 validators signed")


def check_market(page: Page, order_id: str) -> None:
    expect(page.locator("#orders tbody tr", has_text=order_id[:12])).to_contain_text("matched")
    expect(page.locator("#leases tbody tr", has_text=order_id[:12])).to_contain_text(re.compile(r"\$[\d.]+/h"))
    expect(page.locator("#providers")).to_contain_text("active")


def check_validators(page: Page) -> None:
    rows = page.locator("#validators tbody tr")
    expect(rows).to_have_count(VALIDATORS)
    expect(rows.filter(has_text="100 %").filter(has_text="25.0 %")).to_have_count(VALIDATORS)


def test_an_order_that_nobody_may_serve_says_why(quorum: Network, window: Window) -> None:
    flags = ("--gpus=1", "--policy=vram_gb>=900", "--max-hourly=1", "--anyway", "--no-wait")
    ordered = lease_create(quorum, *flags)
    assert ordered.returncode == 0, ordered.stdout + ordered.stderr
    wait_until(lambda: newest_order(quorum, gpus=1) is not None, "the order is not on the chain", ceiling_s=MATCH_S)
    sign_up(window, quorum)
    page = window.open(quorum, f"/market/{newest_order(quorum, gpus=1)}")
    expect(page.get_by_test_id("no-winner")).to_contain_text(re.compile("^0 bids because"))
    expect(page.get_by_test_id("certificate")).to_contain_text(re.compile("[34] of 4 validators signed"))


def test_a_renter_orders_by_the_form_and_closes_the_lease(quorum: Network, window: Window) -> None:
    page = sign_up(window, quorum)
    deposit(page, usd="5")
    window.open(quorum, "/leases")
    page.get_by_role("button", name="Order a lease").first.click()
    page.wait_for_url("**/leases/new")
    go_to(page, "Price")
    order = page.get_by_role("button", name="Order it")
    expect(order).to_be_disabled()
    go_to(page, "What")
    page.get_by_label("Image").fill("ubuntu:24.04")
    go_to(page, "Machine")
    page.get_by_label("GPUs").fill("8")
    go_to(page, "Price")
    expect(page.get_by_test_id("nobody")).to_be_visible()
    expect(order).to_be_disabled()
    go_to(page, "Machine")
    page.get_by_label("GPUs").fill("0")
    go_to(page, "Price")
    expect(page.get_by_test_id("quote")).to_contain_text(re.compile(r"\$[\d.]+ to \$[\d.]+/h"))
    order.click()
    expect(page.get_by_test_id("lease-states")).to_have_attribute("data-step", "starting", timeout=CHAIN_MS)
    page.get_by_role("link", name="See its auction").click()
    page.wait_for_url("**/market/0x*")
    expect(page.get_by_test_id("phases")).to_have_attribute("data-phase", "matched")
    expect(page.get_by_test_id("standing")).to_contain_text("Your lease ubuntu of ubuntu:24.04")
    expect(page.get_by_role("button", name="Close ubuntu")).to_be_visible()
    window.open(quorum, "/leases")
    row = page.locator("#own-leases tbody tr").first
    expect(row).to_contain_text("pending")
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name=re.compile("^Close")).click()
    expect(row).to_contain_text("closed", timeout=CHAIN_MS)


def deposit(page: Page, *, usd: str) -> None:
    """Test money on the network's own chain."""
    done = page.evaluate(
        """async (usd) => {
            const me = await (await fetch("/v1/me")).json();
            const headers = {"content-type": "application/json", "x-sparewatt-csrf": me.csrf_token};
            const sent = await fetch("/v1/credits/deposit", {method: "POST", headers, body: JSON.stringify({usd})});
            return sent.status;
        }""",
        usd,
    )
    assert done < 300
