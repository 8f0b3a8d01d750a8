"""A screen that fits every terminal, whatever names it shows."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.cli.top.screen import as_text, render
from sparewatt.cli.top.view import public_view
from sparewatt.protocol.api.network import NetworkOverview
from tests.unit.cli.canned import NETWORK_OVERVIEW, a_pulse
from tests.unit.cli.top.conftest import view_after


def test_the_screen_shows_rates_models_and_nodes() -> None:
    text = as_text(render(view_after(a_pulse(100.0), a_pulse(102.0)), width=160, height=None))
    assert "requests 10.0/s   tokens 550/s   running 4   waiting 1" in text
    assert "p50 300 ms   p95 480 ms" in text
    assert "2 online  1 offline" in text
    assert "no_capacity 4" in text
    assert "org/small-model" in text
    assert "71 °C" in text
    assert text.index("oslo") < text.index("berlin")  # nodes in trouble come first


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [5, 10, 24])
def test_the_screen_fits_any_terminal(width: int, height: int) -> None:
    view = view_after(a_pulse(100.0), a_pulse(102.0))
    view.models *= 50
    view.busiest *= 50
    lines = render(view, width=width, height=height, note="reconnecting for 3 s: nothing answers")
    assert len(lines) <= height
    assert all(sum(len(cell.text) for cell in line) <= width for line in lines)


def test_names_cannot_control_the_terminal() -> None:
    view = view_after(a_pulse(100.0))
    view.models[0].id = "\x1b[2J" + "m" * 400
    view.busiest[0].name = "a\nb\x07"
    text = as_text(render(view, width=100, height=None, note="\x1b]0;x"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "mm…" in text


def test_a_public_view_is_marked_as_such() -> None:
    text = as_text(
        render(public_view(msgspec.convert(NETWORK_OVERVIEW, NetworkOverview), "https://g"), width=120, height=None)
    )
    assert "an operator's key shows more" in text
    assert "tokens 90.0/s   running 4" in text
    assert "requests" not in text
