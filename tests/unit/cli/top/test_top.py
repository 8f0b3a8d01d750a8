"""`sparewatt top`: rates out of counts, a picture that fits, and what it does when it may see less or nothing."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sparewatt.cli.errors import CliError
from sparewatt.cli.top.screen import as_text, render
from sparewatt.cli.top.top import TopViewSource, _views
from sparewatt.cli.top.view import ERROR_WINDOW_S, RATE_WINDOW_S, PulseWindow, TopView, public_view
from sparewatt.protocol.api.network import NetworkOverview
from sparewatt.protocol.api.operations import Pulse
from tests.processes import wait_until
from tests.unit.cli.canned import BERLIN, OSLO, node, node_list
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import KEY, FakeNetwork

BOUNDS = [0.1, 0.5, 1.0]
TOTALS = {"nodes": {"online": 2, "offline": 1}, "gpus": 3, "vram_gb": 72, "jobs": 4, "tokens_per_s": 90}
RANGE = {"low": "0.1", "median": "0.2", "high": "0.3"}
PUBLIC = {
    "object": "network",
    "at": 100.0,
    "signup": "open",
    "billing": True,
    "development": False,
    "totals": {**TOTALS, "first_token_ms": 210},
    "regions": [],
    "classes": [],
    "models": [
        {
            "id": "m",
            "nodes": 2,
            "warm": 1,
            "measured": 1,
            "quantizations": [],
            "context_length": None,
            "prompt_usd_per_mtok": RANGE,
            "completion_usd_per_mtok": RANGE,
        }
    ],
}


def pulse_node(node_id: str, name: str, **changes: object) -> dict[str, Any]:
    counts = dict.fromkeys(("running", "queued", "tokens", "jobs_done", "jobs_failed"), 0)
    sensors = dict.fromkeys(("paused", "power_watts", "temperature_c", "utilisation"))
    return {"id": node_id, "name": name, "region": "eu", "slots": 4, "rtt_ms": 1.0, **counts, **sensors, **changes}


def a_pulse(at: float = 100.0, **changes: Any) -> dict[str, Any]:
    done = int(10 * (at - 100))
    model = {
        "id": "org/small-model",
        "nodes": 2,
        "warm": 2,
        "running": 4,
        "waiting": 1,
        "requests": {"done": done, "failed": 0},
        "prompt_tokens": 0,
        "completion_tokens": 50 * done,
        "first_token_counts": [0, done, 0, 0],
    }
    sensors = {"temperature_c": 71.0, "power_watts": 312.0, "utilisation": 0.97}
    berlin = pulse_node(BERLIN, "berlin", gpu="RTX 4090", state="busy", running=4, tokens=50 * done, **sensors)
    oslo = pulse_node(OSLO, "oslo", gpu="L40S", state="suspect", jobs_failed=3, slots=8)
    return {
        "object": "pulse",
        "at": at,
        "started_at": 1.0,
        "instance": "feed_a",
        "totals": TOTALS,
        "running": 4,
        "waiting": 1,
        "tokens_written": 55 * done,
        "errors": {"no_capacity": 2 * int(at - 100), "old": 7},
        "first_token_bounds_s": BOUNDS,
        "models": [model],
        "busiest": [berlin],
        "troubled": [oslo],
        **changes,
    }


def view_after(*pulses: dict[str, Any]) -> TopView:
    window = PulseWindow("https://gateway.example")
    for pulse in pulses:
        view = window.update(msgspec.convert(pulse, Pulse))
    return view


# rates


def test_two_pulses_make_rates() -> None:
    view = view_after(a_pulse(100.0), a_pulse(102.0))
    assert (view.requests_per_s, view.tokens_per_s, view.running, view.waiting) == (10.0, 550.0, 4, 1)
    assert (view.models[0].requests_per_s, view.models[0].tokens_per_s) == (10.0, 500.0)
    assert view.busiest[0].tokens_per_s == 500.0
    assert [(error.code, error.count) for error in view.errors] == [("no_capacity", 4)]


def test_the_first_pulse_has_no_rates() -> None:
    view = view_after(a_pulse(105.0))
    assert (view.requests_per_s, view.tokens_per_s, view.errors) == (None, None, [])
    assert view.first_token_ms.p50 is None


def test_percentiles_are_of_what_came_lately() -> None:
    slow = a_pulse(104.0)
    slow["models"][0]["first_token_counts"] = [0, 20, 20, 0]
    view = view_after(a_pulse(102.0), slow)
    assert view.first_token_ms.p50 == pytest.approx(750)
    assert view.first_token_ms.p95 == pytest.approx(975)


def test_beyond_the_last_bound_nothing_better_is_known() -> None:
    slow = a_pulse(101.0)
    slow["models"][0]["first_token_counts"] = [0, 0, 0, 9]
    assert view_after(a_pulse(100.0), slow).first_token_ms.p95 == 1000


@pytest.mark.parametrize("changes", [{"instance": "feed_b"}, {"at": 90.0}])
def test_another_process_begins_anew(changes: dict[str, Any]) -> None:
    view = view_after(a_pulse(100.0), a_pulse(102.0), a_pulse(103.0) | changes)
    assert view.requests_per_s is None


def test_a_count_that_was_corrected_is_no_negative_rate() -> None:
    assert view_after(a_pulse(101.0), a_pulse(102.0, tokens_written=0)).tokens_per_s == 0.0


def test_only_the_last_minute_is_remembered() -> None:
    window = PulseWindow("x")
    for at in range(200):
        view = window.update(msgspec.convert(a_pulse(100.0 + at), Pulse))
    assert len(window._pulses) == ERROR_WINDOW_S + 1
    assert view.errors[0].count == 2 * ERROR_WINDOW_S
    assert view.requests_per_s == pytest.approx(10.0)
    assert window._since(RATE_WINDOW_S).at == 299 - RATE_WINDOW_S


# the picture


def test_the_picture_shows_rates_models_and_nodes() -> None:
    text = as_text(render(view_after(a_pulse(100.0), a_pulse(102.0)), width=160, height=None))
    assert "requests 10.0/s   tokens 550/s   running 4   waiting 1" in text
    assert "p50 300 ms   p95 480 ms" in text
    assert "2 online  1 offline" in text
    assert "no_capacity 4" in text
    assert "org/small-model" in text
    assert "71 °C" in text
    assert text.index("oslo") < text.index("berlin")  # who is in trouble comes first


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [5, 10, 24])
def test_the_picture_fits_any_terminal(width: int, height: int) -> None:
    view = view_after(a_pulse(100.0), a_pulse(102.0))
    view.models *= 50
    view.busiest *= 50
    lines = render(view, width=width, height=height, note="reconnecting for 3 s: nothing answers")
    assert len(lines) <= height
    assert all(sum(len(cell.text) for cell in line) <= width for line in lines)


def test_names_cannot_steer_the_terminal() -> None:
    view = view_after(a_pulse(100.0))
    view.models[0].id = "\x1b[2J" + "m" * 400
    view.busiest[0].name = "a\nb\x07"
    text = as_text(render(view, width=100, height=None, note="\x1b]0;x"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "mm…" in text


def test_what_everybody_sees_says_so() -> None:
    text = as_text(render(public_view(msgspec.convert(PUBLIC, NetworkOverview), "https://g"), width=120, height=None))
    assert "an operator's key shows more" in text
    assert "tokens 90.0/s   running 4" in text
    assert "requests" not in text


# the command


def test_once_as_json_is_one_object(run: Run, network: FakeNetwork) -> None:
    network.on("GET /v1/pulse", a_pulse(103.0))
    found = json.loads(run("top", "--once", "--json", "--interval", "0.5").stdout)
    assert (found["is_operator"], found["running"], found["nodes"]) == (True, 4, {"online": 2, "offline": 1})
    assert [each["name"] for each in found["troubled"]] == ["oslo"]


def test_without_an_operators_key_there_are_aggregates_and_nodes(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 403, "operators_only")
    network.on("GET /v1/network", PUBLIC)
    network.on("GET /v1/nodes", node_list(node(BERLIN, "berlin"), node(OSLO, "oslo", state="offline")))
    result = run("top", "--once")
    assert result.exit_code == 0
    assert "berlin" in result.stdout
    assert "an operator's key shows more" in result.stdout


def test_a_key_that_may_not_see_nodes_sees_the_rest(run: Run, network: FakeNetwork) -> None:
    network.fail("GET /v1/pulse", 403, "permission_denied")
    network.on("GET /v1/network", PUBLIC)
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


def test_a_lost_gateway_is_waited_for_with_the_last_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    view, later = view_after(a_pulse(100.0)), view_after(a_pulse(109.0))
    shown = _views(Flaky(CliError("Nothing answers."), later), view, interval=1.0)
    assert next(shown) == (view, "")
    assert next(shown) == (view, "reconnecting for 0 s: Nothing answers.")
    assert next(shown) == (later, "")


# on a terminal


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
    wait_until(lambda: b"berlin" in written, "no picture")
    assert b"\x1b[?1049h" in written
    process.send_signal(sent)
    assert process.wait(20) == status
    wait_until(lambda: b"\x1b[?1049l" in written, "the other screen stays")
    assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")
    assert b"Traceback" not in written
