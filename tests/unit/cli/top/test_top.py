"""The command `top`: which view it fetches, and what it does to the terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sparewatt.cli.errors import CliError
from sparewatt.cli.top.top import TopViewSource, _views
from sparewatt.cli.top.view import TopView
from tests.processes import wait_until
from tests.unit.cli.canned import BERLIN, NETWORK_OVERVIEW, OSLO, a_pulse, node, node_list
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import KEY, FakeNetwork
from tests.unit.cli.top.conftest import view_after


def test_once_as_json_is_one_object(run: Run, network: FakeNetwork) -> None:
    network.on("GET /v1/pulse", a_pulse(103.0))
    found = json.loads(run("top", "--once", "--json", "--interval", "0.5").stdout)
    assert (found["is_operator"], found["running"], found["nodes"]) == (True, 4, {"online": 2, "offline": 1})
    assert [each["name"] for each in found["troubled"]] == ["oslo"]


def test_without_an_operators_key_there_are_aggregates_and_nodes(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 403, "operators_only")
    network.on("GET /v1/network", NETWORK_OVERVIEW)
    network.on("GET /v1/nodes", node_list(node(BERLIN, "berlin"), node(OSLO, "oslo", state="offline")))
    result = run("top", "--once")
    assert result.exit_code == 0
    assert "berlin" in result.stdout
    assert "an operator's key shows more" in result.stdout


def test_rates_as_json_are_floats_without_an_operators_key_too(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 403, "operators_only")
    network.on("GET /v1/network", NETWORK_OVERVIEW)
    network.on("GET /v1/nodes", node_list())
    shown = run("top", "--once", "--json").stdout
    assert '"tokens_per_s": 90.0' in shown
    assert '"p50": 210.0' in shown


def test_a_key_that_may_not_see_nodes_sees_the_rest(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 403, "permission_denied")
    network.on("GET /v1/network", NETWORK_OVERVIEW)
    network.fail("GET /v1/nodes", 403, "permission_denied")
    assert json.loads(run("top", "--once", "--json").stdout)["busiest"] == []


def test_a_wrong_key_is_an_error(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 401, "invalid_api_key")
    assert run("top", "--once").exit_code == 3
    assert run("top").exit_code == 3


class Flaky(TopViewSource):
    """Answers, fails, answers."""

    def __init__(self, *views: TopView | CliError) -> None:
        self._left = list(views)

    def fetch(self) -> TopView:
        found = self._left.pop(0)
        if isinstance(found, CliError):
            raise found
        return found


def test_a_lost_gateway_is_waited_for_with_the_last_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    view, later = view_after(a_pulse(100.0)), view_after(a_pulse(109.0))
    shown = _views(Flaky(CliError("Nothing answers."), later), view, interval=1.0)
    assert next(shown) == (view, "")
    assert next(shown) == (view, "reconnecting for 0 s: Nothing answers.")
    assert next(shown) == (later, "")


def _hear_interrupts() -> None:
    """As at a terminal: tests that a shell runs in the background inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def terminal(network: FakeNetwork) -> Iterator[tuple[subprocess.Popen[bytes], bytearray]]:
    """The command on a terminal of its own, and what it has written there so far."""
    network.on("GET /v1/pulse", a_pulse(103.0))
    ours, its = pty.openpty()
    env = {**os.environ, "SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": KEY, "TERM": "xterm"}
    argv = [sys.executable, "-m", "sparewatt", "top", "--interval", "0.5"]
    process = subprocess.Popen(
        argv,
        stdin=its,
        stdout=its,
        stderr=its,
        env=env,
        start_new_session=True,
        preexec_fn=_hear_interrupts,  # noqa: PLW1509 (one system call)
    )
    os.close(its)
    written = bytearray()

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                written.extend(piece)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, written
    finally:
        process.kill()
        process.wait(10)
        reader.join(10)
        os.close(ours)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_the_terminal_is_given_back_as_it_was(
    terminal: tuple[subprocess.Popen[bytes], bytearray], sent: signal.Signals, status: int
) -> None:
    process, written = terminal
    wait_until(lambda: b"berlin" in written, "no screen")
    assert b"\x1b[?1049h" in written
    process.send_signal(sent)
    assert process.wait(20) == status
    wait_until(lambda: b"\x1b[?1049l" in written, "the other screen stays")
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")
    assert b"Traceback" not in written
