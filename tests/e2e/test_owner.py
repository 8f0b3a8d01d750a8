"""An owner's first minutes: copy the line, watch the node arrive and turn green, earn, die and turn red."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from sparewatt.supervisor.spawn import free_port
from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network
from tests.processes import end_process, start_process, wait_until

RED_WITHIN_S = 15.0


@contextmanager
def an_engine(folder: Path, model: str) -> Iterator[str]:
    """A model server beside the node."""
    port = free_port()
    argv = [sys.executable, "-m", "sparewatt.testing", f"--port={port}", f"--model={model}"]
    argv += ["--decode-tps=120", "--answer-tokens=3000"]
    process = start_process(argv, output=folder / "engine.txt", env=dict(os.environ))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=20)


def join_argv(line: str) -> tuple[list[str], dict[str, str]]:
    """What a shell would run: the copied line's own words, with the agent of this checkout."""
    words = shlex.split(line.rsplit("&&", maxsplit=1)[-1])
    env = dict(word.split("=", 1) for word in words if "=" in word.split("/")[0] and not word.startswith("-"))
    at = next(place for place, word in enumerate(words) if word.endswith("sparewatt"))
    return [sys.executable, "-m", "sparewatt", *words[at + 1 :]], env


@contextmanager
def joined(line: str, folder: Path, backend: str) -> Iterator[subprocess.Popen[bytes]]:
    argv, env = join_argv(line)
    argv += [
        f"--backend={backend}",
        f"--data={folder / 'node'}",
        "--name=upstairs",
        "--region=JP",
        "--hourly-usd=0.01",
    ]
    process = start_process(argv, output=folder / "node.txt", env={**os.environ, **env, "HOME": str(folder)})
    try:
        yield process
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def copied_line(page: Page) -> str:
    page.get_by_role("button", name="Make a line for this network").click()
    page.get_by_role("button", name="Copy: the join line").click()
    copied: str = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == page.get_by_test_id("join-line").inner_text()
    return copied


def has_job(network: Network, node_id: str) -> bool:
    return bool(ask_api(network, "GET", f"/v1/nodes/{node_id}").json()["in_flight"])


def test_join_by_the_copied_line_turn_green_earn_die_and_turn_red(
    network: Network, window: Window, tmp_path: Path
) -> None:
    sign_up(window, network)
    page = window.open(network, "/join")
    line = copied_line(page)
    model = "the-attic-s-own"
    with an_engine(tmp_path, model) as backend, joined(line, tmp_path, backend) as node:
        card = page.get_by_test_id("joining").first
        expect(card).to_contain_text("upstairs", timeout=20_000)
        expect(card.locator("[data-state=online]")).to_be_visible()
        expect(card).to_contain_text("tok/s", timeout=20_000)
        earnings = window.page.context.new_page()
        earnings.goto(f"{network.root_url}/earnings")
        today = earnings.get_by_test_id("earned-today")
        expect(today).to_have_attribute("data-value", "0")
        body = {"model": model, "messages": [{"role": "user", "content": "earn"}], "max_tokens": 200}
        assert ask_api(network, "POST", "/v1/chat/completions", body).status == 200
        expect(today).not_to_have_attribute("data-value", "0", timeout=20_000)
        expect(card).to_contain_text("so far")
        earnings.close()
        node_id = card.get_attribute("data-node")
        page.goto(f"{network.root_url}/nodes/{node_id}")
        expect(page.locator("header [data-state=online]")).to_be_visible()
        expect(page.get_by_test_id("why")).to_contain_text("The node got 1 job")
        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(ask_api, network, "POST", "/v1/chat/completions", body | {"max_tokens": 3_000})
            wait_until(lambda: has_job(network, str(node_id)), "the job is not under way")
            node.kill()
            expect(page.locator("header [data-state=offline]")).to_be_visible(timeout=RED_WITHIN_S * 1000)
            assert lost.result().status >= 500
        expect(page.locator("[data-testid=reputation] [data-cause=link_lost]")).to_be_visible(timeout=40_000)
        expect(page.get_by_test_id("reputation")).to_contain_text("The node went away while it had a job.")
    window.open(network, "/")
    expect(page.get_by_label("Nodes by state")).to_contain_text("1offline", use_inner_text=False)
