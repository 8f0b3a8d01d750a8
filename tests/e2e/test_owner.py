"""An owner's first minutes: run the lines of the page, watch the node arrive and turn green, earn, die and turn red."""

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

RED_WITHIN_S = 15.0
INSTALLED_WITHIN_S = 90.0
"""Some twenty seconds on two busy cores."""


@contextmanager
def an_engine(folder: Path, model: str) -> Iterator[str]:
    """A model server beside the node."""
    port = free_port()
    argv = [sys.executable, "-m", "sparewatt.testing", f"--port={port}", f"--model={model}"]
    argv += ["--decode-tps=120", "--prefill-tps=900", "--answer-tokens=3000"]
    process = start_process(argv, output=folder / "engine.txt", env=dict(os.environ))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=20)


@contextmanager
def typed(lines: Sequence[str], folder: Path, backend: str) -> Iterator[subprocess.Popen[bytes]]:
    """A terminal in which these lines were pasted, as they are. What they start dies with it.

    The index is a folder with what the agent needs, so that a test takes seconds and depends on nobody else's server.
    """
    script = folder / "typed.sh"
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
    process = start_process(["sh", "-e", str(script)], output=folder / "typed.txt", env=env)
    try:
        yield process
    except BaseException as error:
        error.add_note(f"The terminal shows:\n{tail(folder / 'typed.txt')}")
        raise
    finally:
        end_process(process, signal.SIGKILL, ceiling_s=20)


def copied(page: Page, label: str) -> str:
    page.get_by_role("button", name=f"Copy: {label}").click()
    text: str = page.evaluate("() => navigator.clipboard.readText()")
    assert text == page.get_by_role("region", name=label).inner_text()
    return text


def copied_lines(page: Page) -> tuple[str, str]:
    """Both lines of the page, in their order."""
    page.get_by_role("button", name="Make a join line").click()
    return copied(page, "make a Python environment"), copied(page, "the join line")


def has_job(network: Network, node_id: str) -> bool:
    return bool(ask_api(network, "GET", f"/v1/nodes/{node_id}").json()["in_flight"])


def test_join_by_the_copied_line_turn_green_earn_die_and_turn_red(
    network: Network, window: Window, tmp_path: Path
) -> None:
    sign_up(window, network)
    page = window.open(network, "/join")
    lines = copied_lines(page)
    assert lines[1].startswith("pip install ")
    model = "the-attic-s-own"
    with an_engine(tmp_path, model) as backend, typed(lines, tmp_path, backend) as terminal:
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
            wait_until(lambda: has_job(network, str(node_id)), "the job is not under way")
            terminal.kill()
            expect(page.locator("header [data-state=offline]")).to_be_visible(timeout=RED_WITHIN_S * 1000)
            assert lost.result().status >= 500
        expect(page.locator("[data-testid=reputation] [data-cause=link_lost]")).to_be_visible(timeout=40_000)
        expect(page.get_by_test_id("reputation")).to_contain_text("The node went away while it had a job.")
    window.open(network, "/")
    expect(page.get_by_label("Nodes by state")).to_contain_text("1offline", use_inner_text=False)
