"""How often answers are checked."""

from __future__ import annotations

import pytest

from sparewatt.trust.checks.frequency import (
    FAST_SHARE,
    FIRST_PASSES,
    FIRST_SHARE,
    USUAL_SHARE,
    CheckHistory,
    check_share,
    speed_excess,
)


@pytest.mark.parametrize(
    ("history", "share"),
    [
        (CheckHistory(), FIRST_SHARE),
        (CheckHistory(passed=FIRST_PASSES - 1, speed_excess=9.0), FIRST_SHARE),
        (CheckHistory(passed=FIRST_PASSES), USUAL_SHARE),
        (CheckHistory(passed=FIRST_PASSES, speed_excess=1.29), USUAL_SHARE),
        (CheckHistory(passed=FIRST_PASSES, speed_excess=1.31), FAST_SHARE),
        (CheckHistory(passed=0, is_suspect=True), 1.0),
    ],
)
def test_newcomers_and_nodes_that_are_too_fast_are_checked_more_often(history: CheckHistory, share: float) -> None:
    assert check_share(history) == share


def test_a_node_is_too_fast_if_it_reads_its_weights_faster_than_the_cards_memory_can() -> None:
    assert speed_excess(decode_tps=100.0, weights_bytes=5e9, bandwidth_bytes_s=1e12) == pytest.approx(0.5)
    assert speed_excess(decode_tps=800.0, weights_bytes=5e9, bandwidth_bytes_s=1e12) == pytest.approx(4.0)
    assert speed_excess(decode_tps=800.0, weights_bytes=5e9, bandwidth_bytes_s=None) == 1.0
