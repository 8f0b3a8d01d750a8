"""Rates and percentiles from the counts of two pulses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.cli.top.view import ERROR_WINDOW_S, RATE_WINDOW_S, PulseWindow
from sparewatt.protocol.api.operations import Pulse
from tests.unit.cli.canned import a_pulse
from tests.unit.cli.top.conftest import view_after


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
def test_another_process_starts_a_new_window(changes: dict[str, Any]) -> None:
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
