"""The owner's path: run the copied join line, see the node online, see it earn, kill it, see it offline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from sparewatt.machine.lifeline import PARENT_PID_ENV
from sparewatt.machine.spawn import free_port
from tests.clients.wheels import node_wheels
from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network
from tests.processes import end_process, start_process, tail, wait_until

OFFLINE_WITHIN_S = 15.0
INSTALLED_WITHIN_S = 90.0
"""It takes about 20 s on two busy cores."""


@contextmanager
def running_engine(folder: Path, model: str) -> Iterator[str]:
    """A model server (the deterministic engine) for the node to use as its backend. Yields its URL."""
    port = free_port()
    argv = [sys.executable, "-m", "sparewatt.testing", f"--port={port}", f"--model={model}"]
    argv += ["--decode-tps=120", "--prefill-tps=900", "--answer-tokens=3000"]
    process = start_process(argv, output=folder / "engine.txt", env=dict(os.environ))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=20)


@contextmanager
def running_terminal(lines: Sequence[str], folder: Path, backend: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that runs these lines unchanged. Processes that they start end with it.

    pip takes its packages from a folder instead of an index, so that the test is quick and needs no other server.
    """
    script = folder / "terminal.sh"
    script.write_text("\n".join([f"export {PARENT_PID_ENV}=$$", *lines, ""]))
    answers = {"NAME": "upstairs", "REGION": "JP", "HOURLY_USD": "0.01", "BACKEND_URL": backend}
    env = {
        **os.environ,
        **{f"SPAREWATT_NODE_{name}": value for name, value in answers.items()},
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(node_wheels()),
        "PIP_NO_COMPILE": "1",
    }
    process = start_process(["sh", "-e", str(script)], output=folder / "terminal.txt", env=env)
    try:
        yield process
    except BaseException as error:
        error.add_note(f"The terminal shows:\n{tail(folder / 'terminal.txt')}")
        raise
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def copy_text(page: Page, label: str) -> str:
    page.get_by_role("button", name=f"Copy: {label}").click()
    text: str = page.evaluate("() => navigator.clipboard.readText()")
    assert text == page.get_by_role("region", name=label).inner_text()
    return text


def copy_lines(page: Page) -> tuple[str, str]:
    """The two commands of the page, in their order."""
    page.get_by_role("button", name="Make a join line").click()
    return copy_text(page, "make a Python environment"), copy_text(page, "the join line")


def has_job(network: Network, node_id: str) -> bool:
    return bool(ask_api(network, "GET", f"/v1/nodes/{node_id}").json()["in_flight"])


def test_a_node_joins_by_the_copied_line_earns_and_is_shown_offline_when_it_dies(
    network: Network, window: Window, tmp_path: Path
) -> None:
    sign_up(window, network)
    page = window.open(network, "/join")
    lines = copy_lines(page)
    assert lines[1].startswith("pip install ")
    model = "model-of-this-node"
    with running_engine(tmp_path, model) as backend, running_terminal(lines, tmp_path, backend) as terminal:
        card = page.get_by_test_id("joining").first
        expect(card).to_contain_text("upstairs", timeout=INSTALLED_WITHIN_S * 1000)
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
            wait_until(lambda: has_job(network, str(node_id)), "the job is not running")
            terminal.kill()
            expect(page.locator("header [data-state=offline]")).to_be_visible(timeout=OFFLINE_WITHIN_S * 1000)
            assert lost.result().status >= 500
        expect(page.locator("[data-testid=reputation] [data-cause=link_lost]")).to_be_visible(timeout=40_000)
        expect(page.get_by_test_id("reputation")).to_contain_text("The node went away while it had a job.")
    window.open(network, "/")
    expect(page.get_by_label("Nodes by state")).to_contain_text("1offline", use_inner_text=False)
