from __future__ import annotations

from sparewatt.node.backends.prometheus_page import PrometheusPage
from sparewatt.sim.servers.prometheus_text import MetricsText


def test_a_page_is_read_back_as_it_was_written() -> None:
    text = MetricsText(prefix="x", labels={"model": 'a\\b"c'})
    text.gauge("running", "Running.", 3)
    text.counter("tokens_total", "Tokens.", 12_345_678)
    text.histogram("wait_seconds", "Wait.", total=2.5, count=4)
    page = PrometheusPage(text.encode())

    assert page.count("x:running") == 3
    assert page.total("x:tokens_total") == 12_345_678
    assert (page.total("x:wait_seconds_sum"), page.total("x:wait_seconds_count")) == (2.5, 4)


def test_every_family_has_help_and_type() -> None:
    text = MetricsText(prefix="x")
    text.counter("tokens_total", "Tokens.", 1)

    assert text.encode() == b"# HELP x:tokens_total Tokens.\n# TYPE x:tokens_total counter\nx:tokens_total 1.0\n"


def test_the_order_is_that_of_adding() -> None:
    text = MetricsText(prefix="x")
    for name in ("b", "a"):
        text.gauge(name, "A letter.", 0)

    assert text.encode().index(b"x:b") < text.encode().index(b"x:a")
