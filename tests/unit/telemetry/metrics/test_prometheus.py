"""The page can be read by a strict reader, whatever names clients give to models."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.telemetry.job_counter import TIMES_S
from sparewatt.telemetry.metrics.prometheus import Family, Histogram, Metric, Sample, as_page, lines_of, number, one
from tests.unit.telemetry.metrics.scraped import read

JOBS = Metric("jobs_total", "counter", "Jobs, by model.")
TIMES = Metric("times_seconds", "histogram", "Times.")


def render(*families: Family) -> bytes:
    return as_page(line for family in families for line in lines_of(family))


def test_a_page_is_written_as_prometheus_wants_it() -> None:
    jobs = Family(JOBS, [Sample(3, (("model", "a"), ("outcome", "done")))])
    page = render(jobs, one(Metric("up", "gauge", "Up."), 1))
    assert page.decode() == (
        "# HELP jobs_total Jobs, by model.\n# TYPE jobs_total counter\n"
        'jobs_total{model="a",outcome="done"} 3\n# HELP up Up.\n# TYPE up gauge\nup 1\n'
    )


@given(st.text(max_size=40))
def test_any_name_survives_as_a_label(name: str) -> None:
    name = name.encode(errors="replace").decode()
    assert read(render(Family(JOBS, [Sample(1, (("model", name),))]))).value("jobs_total", model=name) == 1


def test_a_family_of_which_nothing_is_known_is_left_out() -> None:
    assert render(Family(JOBS, []), one(Metric("up", "gauge", "Up."), 0)).startswith(b"# HELP up")


@given(st.floats())
def test_a_number_reads_back_as_it_was(value: float) -> None:
    back = float(number(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize(("value", "text"), [(2.0, "2"), (True, "1"), (0.25, "0.25"), (1e18, "1e+18")])
def test_whole_numbers_have_no_fraction(value: float, text: str) -> None:
    assert number(value) == text


@given(st.lists(st.floats(0, 1000), max_size=50))
def test_a_histogram_counts_every_observation_once(values: list[float]) -> None:
    histogram = Histogram(TIMES_S)
    for value in values:
        histogram.observe(value)
    found = read(render(Family(TIMES, histogram.samples((("model", "m"),)))))
    assert found.value("times_seconds_count", model="m") == len(values)
    assert found.value("times_seconds_sum", model="m") == pytest.approx(sum(values))
    for bound in TIMES_S:
        below = sum(value <= bound for value in values)
        assert found.value("times_seconds_bucket", model="m", le=number(bound)) == below


def test_histograms_add_up() -> None:
    one_of_them, other = Histogram(TIMES_S), Histogram(TIMES_S)
    one_of_them.observe(0.1)
    other.observe(99.0)
    one_of_them.add(other)
    assert (sum(one_of_them.counts), one_of_them.total) == (2, 99.1)
