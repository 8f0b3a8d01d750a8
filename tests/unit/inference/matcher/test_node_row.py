"""What a report makes of the numbers that a scan reads, one thing at a time."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.inference.matcher.columns import LOAD, ColumnField
from sparewatt.inference.matcher.node_row import NodeRow, load_values
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import GIB, MODEL, NOW_S, a_model, node_id, some_specs

STEP_S, PER_JOB_S = 0.02, 0.001
SPEED = Speed(prefill_tps=1000.0, decode_tps=1 / STEP_S, step_per_job_s=PER_JOB_S)
BANDWIDTH = 1e12


def row_with(**load: Any) -> NodeRow:
    table = NodeTable()
    specs = some_specs(a_model(measured=SPEED), bandwidth_bytes_s=BANDWIDTH)
    assert table.connect(node_id(1), specs, now_s=NOW_S)
    table.set_load(node_id(1), NodeLoad(**load), now_s=NOW_S)
    (row,) = table
    return row


def value(row: NodeRow, field: ColumnField, *, unseen: float = 0.0) -> float:
    return load_values(row, row.positions[MODEL], unseen)[field - LOAD.start]


@pytest.mark.parametrize(("unseen", "factor"), [(0.0, 1.0), (0.5, 1.0), (0.6, 2.0), (1.0, 2.0), (50.0, 2.0)])
def test_reading_and_writing_halve_each_other(unseen: float, factor: float) -> None:
    assert value(row_with(), ColumnField.SHARING, unseen=unseen) == factor


def test_a_queue_takes_twice_as_long_in_company_and_longer_on_a_slow_node() -> None:
    row = row_with(foreign_backlog_s=3.0)
    assert value(row, ColumnField.QUEUE_S) == 3.0
    row.own_backlog_s, row.own_jobs, row.pace = 1.0, 1, 1.5
    assert value(row, ColumnField.QUEUE_S) == 12.0


@pytest.mark.parametrize(
    ("load", "step_s"),
    [
        ({}, STEP_S),
        ({"foreign": 4}, STEP_S + 4 * PER_JOB_S),
        ({"foreign_kv_bytes": 8 * 10**9}, STEP_S + 0.008),
        ({"foreign_active_bytes": 8 * 10**9}, STEP_S + 0.008),
        ({"foreign_kv_bytes": 8 * 10**9, "kv_capacity_bytes": 10**9}, STEP_S + 0.001),
        ({"foreign_models": (MODEL,)}, STEP_S),
        ({"prefill_share": 1.0}, STEP_S * 2),
        ({"prefill_share": 0.5}, STEP_S / 0.75),
    ],
    ids=[
        "alone",
        "jobs",
        "their contexts",
        "other weights",
        "no more than fits",
        "its own weights",
        "half",
        "a quarter",
    ],
)
def test_a_step_is_the_measured_one_and_what_those_there_add_to_it(load: dict[str, Any], step_s: float) -> None:
    assert value(row_with(**load), ColumnField.STEP_S) == pytest.approx(step_s)


def test_a_slow_node_takes_longer_for_a_step_and_for_each_token_of_context() -> None:
    row = row_with()
    before = value(row, ColumnField.STEP_TOKEN_S)
    row.pace = 4.0
    assert value(row, ColumnField.STEP_S) == STEP_S * 4
    assert value(row, ColumnField.STEP_TOKEN_S) == before * 4 == pytest.approx(4 * 100_000 / BANDWIDTH)


def test_memory_that_is_left_is_what_contexts_do_not_fill() -> None:
    row = row_with(foreign_kv_bytes=GIB, kv_capacity_bytes=4 * GIB)
    row.own_kv_bytes = GIB / 2
    assert value(row, ColumnField.KV_FREE_BYTES) == 2.5 * GIB
