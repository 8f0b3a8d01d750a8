"""What a report makes of the numbers that a scan reads, one thing at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.ids import ModelId
from sparewatt.inference.matcher.columns import LOAD, ColumnField
from sparewatt.inference.matcher.node_row import (
    DECODE_PACE,
    FASTER_MAX,
    HIDDEN_SHARE,
    HIDDEN_TOKENS,
    OVERDUE_SHARE,
    PREFILL_PACE,
    SHARE_AHEAD,
    STEP_PER_JOB_SHARE,
    UNKNOWN_LARGE,
    ModelFigures,
    NodeRow,
    load_values,
    record_values,
    specs_values,
)
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import GIB, MODEL, NOW_S, a_lesson, a_model, node_id, some_specs

STEP_S, PER_JOB_S = 0.02, 0.001
SPEED = Speed(
    prefill_tps=1000.0,
    decode_tps=1 / STEP_S,
    ttft_s=0.05,
    step_per_job_s=PER_JOB_S,
    prefill_square_s=1e-7,
    prefill_pace=0.8,
    decode_pace=0.2,
)
BANDWIDTH = 1e12


def row_with(**load: Any) -> NodeRow:
    table = NodeTable()
    specs = some_specs(a_model(measured=SPEED), bandwidth_bytes_s=BANDWIDTH)
    assert table.connect(node_id(1), specs, now_s=NOW_S)
    table.set_load(node_id(1), NodeLoad(**load), now_s=NOW_S)
    (row,) = table
    return row


def value(row: NodeRow, field: ColumnField) -> float:
    values = (*load_values(row, row.positions[MODEL]), *record_values(row, row.positions[MODEL]))
    return values[field - LOAD.start]


# reading


def test_a_prompt_is_read_more_slowly_beside_answers_as_measured() -> None:
    assert value(row_with(), ColumnField.READ_SLOWER) == 1.0
    assert value(row_with(foreign=1), ColumnField.READ_SLOWER) == 1.0 / 0.8
    own = row_with()
    own.own_jobs = 1
    assert value(own, ColumnField.READ_SLOWER) == 1.0 / 0.8


def test_prompts_sent_from_here_are_read_from_when_the_first_got_its_turn() -> None:
    row = row_with()
    row.own_jobs, row.own_unread_s, row.own_read_from_s = 2, 4.0, NOW_S - 1.0
    assert value(row, ColumnField.OWN_READ_END_S) == NOW_S - 1.0 + 4.0 / 0.8
    assert value(row, ColumnField.OWN_READ_MIN_S) == OVERDUE_SHARE * 4.0 / 0.8
    row.own_unread_s = 0.0
    assert value(row, ColumnField.OWN_READ_END_S) < NOW_S
    assert value(row, ColumnField.OWN_READ_MIN_S) == 0.0


def test_prompts_of_others_are_read_from_the_report_on() -> None:
    assert value(row_with(foreign=1, foreign_backlog_s=3.0), ColumnField.FOREIGN_READ_END_S) == NOW_S + 3.0 / 0.8
    assert value(row_with(), ColumnField.FOREIGN_READ_END_S) == NOW_S


def test_what_jobs_taught_about_reading_counts_for_every_part_of_the_curve() -> None:
    row = row_with()
    fields = (ColumnField.PREFILL_FIXED_S, ColumnField.PREFILL_TOKEN_S, ColumnField.PREFILL_SQUARE_S)
    before, step_s = [value(row, field) for field in fields], value(row, ColumnField.STEP_S)
    assert before == [0.05, 1 / 1000, 1e-7]
    row.positions[MODEL].reading = a_lesson(3.0)
    assert [value(row, field) for field in fields] == pytest.approx([3 * seconds for seconds in before])
    assert value(row, ColumnField.STEP_S) == step_s


# slots


@pytest.mark.parametrize(("jobs", "beyond"), [(0, 0), (3, 0), (4, 1), (7, 4)])
def test_jobs_beyond_the_slots_wait_for_answers_of_the_usual_length(jobs: int, beyond: int) -> None:
    row = row_with()
    row.own_jobs, row.positions[MODEL].output_tokens = jobs, 100.0
    expected_s = 100.0 * (STEP_S + jobs * PER_JOB_S) * beyond / row.specs.slots
    assert value(row, ColumnField.SLOT_WAIT_S) == pytest.approx(expected_s)


# writing


@pytest.mark.parametrize(
    ("load", "step_s"),
    [
        ({}, STEP_S),
        ({"foreign": 4}, STEP_S + 4 * PER_JOB_S),
        ({"foreign_kv_bytes": 8 * 10**9}, STEP_S + 0.008),
        ({"foreign_active_bytes": 8 * 10**9}, STEP_S + 0.008),
        ({"foreign_kv_bytes": 8 * 10**9, "kv_capacity_bytes": 10**9}, STEP_S + 0.001),
        ({"foreign_models": (MODEL,)}, STEP_S),
        ({"prefill_share": 1.0}, STEP_S / (1 - SHARE_AHEAD * 0.8)),
        ({"prefill_share": 0.5}, STEP_S / (1 - SHARE_AHEAD * 0.4)),
    ],
    ids=[
        "alone",
        "jobs",
        "their contexts",
        "other weights",
        "no more than fits",
        "its own weights",
        "always reading",
        "half of the time",
    ],
)
def test_a_step_is_the_measured_one_and_what_those_there_add_to_it(load: dict[str, Any], step_s: float) -> None:
    assert value(row_with(**load), ColumnField.STEP_S) == pytest.approx(step_s)


def added_s(**load: Any) -> float:
    return value(row_with(**load), ColumnField.STEP_ADDED_S)


def test_one_more_job_adds_a_little_to_every_step() -> None:
    assert added_s() == added_s(foreign=2, foreign_models=(MODEL,)) == PER_JOB_S
    row = row_with(foreign=2)
    row.own_jobs, row.own_active = 1, {MODEL: 1}
    assert value(row, ColumnField.STEP_ADDED_S) == PER_JOB_S


def test_the_first_job_of_a_model_makes_the_steps_of_others_read_its_weights() -> None:
    with_weights_s = pytest.approx(PER_JOB_S + 8 * GIB / BANDWIDTH)
    assert added_s(foreign=2, foreign_models=("another",)) == with_weights_s
    assert added_s(foreign=2, foreign_active_bytes=GIB) == with_weights_s
    row = row_with()
    row.own_jobs, row.own_active = 1, {ModelId("another"): 1}
    assert value(row, ColumnField.STEP_ADDED_S) == with_weights_s


def test_jobs_of_which_nobody_knows_the_model_are_taken_for_jobs_of_the_same() -> None:
    """The owner's own requests: a server tells how many there are, not for what."""
    assert added_s(foreign=2) == PER_JOB_S


def test_what_jobs_taught_about_writing_counts_for_steps_and_for_each_token_of_context() -> None:
    row = row_with()
    before, read_s = value(row, ColumnField.STEP_TOKEN_S), value(row, ColumnField.PREFILL_TOKEN_S)
    row.positions[MODEL].writing = a_lesson(4.0)
    assert value(row, ColumnField.STEP_S) == STEP_S * 4
    assert value(row, ColumnField.STEP_TOKEN_S) == before * 4 == pytest.approx(4 * 100_000 / BANDWIDTH)
    assert value(row, ColumnField.PREFILL_TOKEN_S) == read_s


def test_memory_that_is_left_is_what_contexts_do_not_fill() -> None:
    row = row_with(foreign_kv_bytes=GIB, kv_capacity_bytes=4 * GIB)
    row.own_kv_bytes = GIB / 2
    assert value(row, ColumnField.KV_FREE_BYTES) == 2.5 * GIB


# what follows from specs


def figures(speed: Speed = SPEED, model: dict[str, Any] | None = None, **specs: Any) -> ModelFigures:
    report = a_model(measured=speed, **(model or {}))
    return specs_values(some_specs(report, **specs), report)[0]


def test_a_server_that_was_not_measured_in_company_is_taken_to_read_first() -> None:
    plain = figures(Speed(prefill_tps=1000.0, decode_tps=50.0))
    assert plain.read_slower == 1 / PREFILL_PACE
    assert plain.stall_share == 1 - DECODE_PACE
    assert plain.per_job_s == pytest.approx(STEP_PER_JOB_SHARE * 0.02)
    assert figures().stall_share == pytest.approx(0.8)


def test_prefill_is_the_published_curve() -> None:
    for tokens in (1, 500, 8000):
        assert figures().prefill_s(tokens) == pytest.approx(SPEED.prefill_s(tokens))
    assert figures().prefill_s(1000, 1000) == pytest.approx(SPEED.ttft_s)
    assert figures().prefill_s(1000, 400) == pytest.approx(0.05 + 0.6 + 1e-7 * (1000**2 - 400**2))


def test_bandwidth_is_what_context_was_measured_to_cost_else_the_cards_else_by_a_step() -> None:
    measured = msgspec.structs.replace(SPEED, step_per_token_s=2e-7)
    assert figures(measured, bandwidth_bytes_s=BANDWIDTH).bandwidth == pytest.approx(100_000 / 2e-7)
    assert figures(measured, bandwidth_bytes_s=BANDWIDTH).token_s == pytest.approx(2e-7)
    assert figures(bandwidth_bytes_s=BANDWIDTH).bandwidth == BANDWIDTH
    assert figures(bandwidth_bytes_s=None).bandwidth == pytest.approx(8 * GIB / STEP_S)
    assert figures(model={"weights_bytes": 0}, bandwidth_bytes_s=None).bandwidth == UNKNOWN_LARGE


def test_a_server_that_tells_its_weights_looks_no_slower_for_it() -> None:
    """Contexts were measured to cost nothing that shows: then a slow step says nothing about memory."""
    measured = msgspec.structs.replace(SPEED, step_per_token_s=0.0)
    told = [
        figures(measured, model={"weights_bytes": weights, "kv_bytes_per_token": kv}, bandwidth_bytes_s=None)
        for weights, kv in ((0, 131_072), (500_000_000, 131_072), (500_000_000, 20_000))
    ]
    assert [each.token_s for each in told] == pytest.approx([HIDDEN_SHARE * STEP_S / HIDDEN_TOKENS] * 3)
    assert figures(measured, bandwidth_bytes_s=BANDWIDTH).bandwidth == BANDWIDTH, "a card that is known says more"


@pytest.mark.parametrize(
    ("gpu", "count", "weights_bytes", "faster_max"),
    [
        ("NVIDIA GeForce RTX 4090", 1, 10_080_000_000, 2.0),
        ("NVIDIA GeForce RTX 4090", 2, 15_120_000_000, 2.0 * 4 / 3),
        ("NVIDIA GeForce RTX 4090", 1, 30_000_000_000, 1.0),
        ("NVIDIA GeForce RTX 4090", 1, 1_000_000, FASTER_MAX),
        ("NVIDIA GeForce RTX 4090", 1, 0, FASTER_MAX),
        ("a card that nobody knows", 1, 10**10, FASTER_MAX),
    ],
    ids=["half of the card", "two cards", "slower than the report", "tiny model", "unknown weights", "unknown card"],
)
def test_a_step_cannot_be_faster_than_the_card_reads_the_weights(
    gpu: str, count: int, weights_bytes: int, faster_max: float
) -> None:
    found = figures(model={"weights_bytes": weights_bytes}, gpu=gpu, gpu_count=count)
    assert found.faster_max == pytest.approx(faster_max)


def test_a_boast_about_bandwidth_does_not_lift_the_ceiling() -> None:
    """The card's figure is from this project's own table; a node's word about it is not asked."""
    assert figures(bandwidth_bytes_s=1e15).faster_max == figures(bandwidth_bytes_s=1e11).faster_max
