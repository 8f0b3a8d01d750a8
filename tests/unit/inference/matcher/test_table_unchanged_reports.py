"""A report that says what the one before said is written by a shorter way, and must leave the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad
from sparewatt.testing.matcher_timing import MODEL, make_table

LOADS = [
    NodeLoad(),
    NodeLoad(foreign=2, foreign_backlog_s=0.3, kv_capacity_bytes=10**9),
    NodeLoad(draining=True),
    NodeLoad(foreign=10_000),
]


def numbers(table: NodeTable) -> NDArray[np.float64]:
    entries = table.columns_of(MODEL)
    assert entries is not None
    return np.array(entries.by_field)


@pytest.mark.parametrize("load", LOADS)
def test_an_unchanged_report_leaves_what_a_full_one_would(load: NodeLoad) -> None:
    short, full = make_table(5), make_table(5)
    for table in (short, full):
        for row in table:
            table.set_load(row.id, load, now_s=2.0)
        numbers(table)
    for row in list(short):
        short.set_load(row.id, load, now_s=7.0)
    for row in list(full):
        full.set_load(row.id, NodeLoad(running=1, foreign=1), now_s=6.0)
        full.set_load(row.id, load, now_s=7.0)
    written, expected = numbers(short), numbers(full)
    for found in (written, expected):  # a queue that should be empty by now is empty, whenever that was
        queue_end = found[ColumnField.FOREIGN_READ_END_S]
        queue_end[:] = np.maximum(queue_end, 7.0)
    assert np.array_equal(written, expected)
    assert set(numbers(short)[ColumnField.LAST_HEARD_S]) == {7.0}


def test_a_node_that_takes_nothing_stays_closed() -> None:
    table = make_table(1)
    (row,) = table
    for now_s in (2.0, 3.0):
        table.set_load(row.id, NodeLoad(draining=True), now_s=now_s)
    assert numbers(table)[ColumnField.HEARD_IF_OPEN_S][0] == -np.inf
