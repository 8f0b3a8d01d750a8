"""The owner's node on its page: registered, bonded, unbonded and paused by clicks, on a real chain."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect

from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.e2e.test_owner import running_engine
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.processes import end_process, start_process, wait_until

CHAIN_S = 60_000
"""Milliseconds: a click waits for the chain, which is a second or two on an idle machine."""


@contextmanager
def running_node(network: Network, folder: Path, backend: str, token: str) -> Iterator[None]:
    argv = [sys.executable, "-m", "sparewatt", "node", "join", network.root_url, f"--backend={backend}"]
    argv += [f"--data={folder / 'node'}", "--name=upstairs", "--leases"]
    process = start_process(argv, output=folder / "node.txt", env={**os.environ, "SPAREWATT_NODE_TOKEN": token})
    try:
        yield
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=20)


def test_an_owner_registers_and_bonds_a_node_by_clicks(market: Network, window: Window, tmp_path: Path) -> None:
    page = sign_up(window, market)
    made = page.evaluate(
        """async () => {
            const me = await (await fetch("/v1/me")).json();
            const headers = {"content-type": "application/json", "x-sparewatt-csrf": me.csrf_token};
            const post = (path, body) => fetch(path, {method: "POST", headers, body: JSON.stringify(body)});
            await post("/v1/credits/deposit", {usd: "50"});
            return (await post("/v1/join-tokens", {})).json();
        }"""
    )
    with running_engine(tmp_path, market.model) as backend, running_node(market, tmp_path, backend, made["token"]):
        wait_until(lambda: node_id(market) is not None, "the node has not joined", ceiling_s=60)
        window.open(market, f"/nodes/{node_id(market)}")
        panel = page.get_by_test_id("leases")
        panel.get_by_role("button", name="Register for leases").click()
        expect(panel.get_by_text("active", exact=True)).to_be_visible(timeout=CHAIN_S)
        expect(panel.get_by_text(re.compile("^0x[0-9a-f]{40}$"))).to_be_visible()
        expect(panel.get_by_test_id("bookings")).to_contain_text("Nothing is booked")
        expect(panel.get_by_test_id("lease-calendar").get_by_role("img")).to_have_accessible_name(
            "Booked on 0 days from today on"
        )
        panel.get_by_label("Amount, in $").fill("7")
        panel.get_by_role("button", name="Add to the bond").click()
        expect(panel.get_by_text("$7.00").first).to_be_visible(timeout=CHAIN_S)
        panel.get_by_label("Amount, in $").fill("3")
        panel.get_by_role("button", name="Take out").click()
        expect(panel.get_by_text("$3.00")).to_be_visible(timeout=CHAIN_S)
        panel.get_by_role("button", name="Pause for maintenance").click()
        expect(panel.get_by_role("button", name="Take leases")).to_be_visible(timeout=CHAIN_S)


def node_id(network: Network) -> str | None:
    nodes = ask(network, "GET", "/v1/nodes").json()["data"]
    return next((node["id"] for node in nodes if node["name"] == "upstairs"), None)
