"""How many reports a node may send on one link."""

from __future__ import annotations

from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S
from sparewatt.link.report_meter import REPORTS_BURST, REPORTS_PER_S, SPECS_WEIGHT, ReportMeter


def test_an_honest_node_that_reports_as_often_as_an_agent_may_is_never_too_much() -> None:
    meter, now_s = ReportMeter(now_s=0.0), 0.0
    for _ in range(20_000):
        now_s += LOAD_REPORT_INTERVAL_S
        assert meter.allows(1, now_s=now_s)


def test_what_piled_up_behind_a_stuck_network_may_come_at_once() -> None:
    meter = ReportMeter(now_s=0.0)
    assert all(meter.allows(1, now_s=0.0) for _ in range(int(REPORTS_BURST)))
    assert not meter.allows(1, now_s=0.0)


def test_specs_weigh_more() -> None:
    meter = ReportMeter(now_s=0.0)
    count = 0
    while meter.allows(SPECS_WEIGHT, now_s=0.0):
        count += 1
    assert count == REPORTS_BURST / SPECS_WEIGHT


def test_a_burst_is_paid_back_over_time_and_not_beyond() -> None:
    meter = ReportMeter(now_s=0.0)
    meter.allows(int(REPORTS_BURST), now_s=0.0)
    assert meter.allows(int(REPORTS_PER_S), now_s=1.0)
    assert not meter.allows(1, now_s=1.0)
    assert not meter.allows(int(REPORTS_BURST) + 1, now_s=1e6)
