"""The comparison of processor times: read from the processes themselves, and put into a table."""

from __future__ import annotations

import os
import time

from bench.idle_market import Pair, Spent, processor_s, report


def test_processor_time_of_a_process_is_read() -> None:
    before = processor_s([os.getpid()])
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert 0.03 <= processor_s([os.getpid()]) - before < 5


def test_the_table_has_every_pair_and_the_median() -> None:
    pairs = [Pair(Spent(100, 3200, 0.1 * factor), Spent(100, 3200, 0.1)) for factor in (1.0, 1.5, 1.01)]
    text = report(pairs)
    assert "| 2 | 1.50 | 1.00 | 1.500 |" in text
    assert "Median ratio 1.010 (least 1.000, largest 1.500)" in text
    assert "request has 32 tokens" in text
