from __future__ import annotations

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.inference.matcher import table as table_module
from sparewatt.inference.matcher.model import NodeRow
from sparewatt.inference.matcher.table import (
    OUTPUT_TOKENS_DEFAULT,
    OUTPUT_TOKENS_LEARNED_MAX,
    SUSPECT_AFTER_FAILURE_S,
    NodeTable,
)
from sparewatt.protocol.node import NodeLoad
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, a_table, node_id, some_specs

ONE = node_id(1)


def row_of(table: NodeTable) -> NodeRow:
    row = table.get(ONE)
    assert row is not None
    return row


def own(table: NodeTable) -> tuple[int, int, int]:
    row = row_of(table)
    return row.own_jobs, row.own_prompt_tokens, row.own_output_tokens


def test_a_reservation_counts_at_pick_time() -> None:
    table = a_table(1)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    assert own(table) == (2, 1000, 400)


def test_a_reservation_is_released_exactly_once() -> None:
    table = a_table(1)
    first = table.reserve(ONE, a_job(), now_s=NOW_S)
    second = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.release(first)
    table.release(first)
    assert own(table) == (1, 500, 200)
    table.release(second)
    assert own(table) == (0, 0, 0)


def test_a_prompt_that_was_read_holds_up_nobody_and_is_counted_off_once() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.prompt_read(held)
    table.prompt_read(held)
    assert own(table) == (1, 0, 200)
    table.release(held)
    table.prompt_read(held)
    assert own(table) == (0, 0, 0)


def test_a_leaked_reservation_expires_and_a_young_one_does_not() -> None:
    table = a_table(1)
    leaked = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S + 90)
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 60) == 0
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 100) == 1
    table.release(leaked)
    assert own(table) == (1, 500, 200)


def test_jobs_there_are_ours_and_those_of_others() -> None:
    table = a_table(1)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.set_load(ONE, NodeLoad(running=3, queued=9, foreign=2), now_s=NOW_S)
    assert row_of(table).jobs_there == 3


def test_a_report_is_a_sign_of_life() -> None:
    table = a_table(1)
    table.set_load(ONE, NodeLoad(), now_s=NOW_S + 5)
    assert row_of(table).last_heard_s == NOW_S + 5
    table.set_rtt(ONE, 0.1, now_s=NOW_S + 6)
    assert row_of(table).last_heard_s == NOW_S + 6


def test_round_trips_are_smoothed_after_the_first() -> None:
    table = a_table(1)
    table.set_rtt(ONE, 0.1, now_s=NOW_S)
    assert row_of(table).rtt_s == 0.1
    table.set_rtt(ONE, 0.2, now_s=NOW_S)
    assert row_of(table).rtt_s == pytest.approx(0.13)


def test_typical_output_is_learned_slowly_and_per_model() -> None:
    table = a_table(1)
    assert table.typical_output_tokens(MODEL) == OUTPUT_TOKENS_DEFAULT
    table.note_success(ONE, model=MODEL, output_tokens=1256)
    assert table.typical_output_tokens(MODEL) == 356
    assert table.typical_output_tokens(ModelId("another")) == OUTPUT_TOKENS_DEFAULT


def test_a_job_without_a_count_teaches_nothing() -> None:
    table = a_table(1)
    table.note_success(ONE, model=MODEL, output_tokens=None)
    assert table.typical_output_tokens(MODEL) == OUTPUT_TOKENS_DEFAULT
    assert row_of(table).jobs_done == 1


@pytest.mark.parametrize(("said", "at_most"), [(10**18, OUTPUT_TOKENS_LEARNED_MAX), (-(10**18), OUTPUT_TOKENS_DEFAULT)])
def test_an_absurd_count_does_not_spoil_what_is_typical(said: int, at_most: int) -> None:
    table = a_table(1)
    for _ in range(1000):
        table.note_success(ONE, model=MODEL, output_tokens=said)
    assert 1 <= table.typical_output_tokens(MODEL) <= at_most


def test_a_failure_makes_suspect_and_a_success_clears_it() -> None:
    table = a_table(1)
    table.note_failure(ONE, now_s=NOW_S)
    assert row_of(table).suspect_until_s == NOW_S + SUSPECT_AFTER_FAILURE_S
    assert row_of(table).jobs_failed == 1
    table.note_success(ONE, model=MODEL, output_tokens=1)
    assert row_of(table).suspect_until_s == 0.0


def test_a_remembered_node_is_known_but_not_connected() -> None:
    table = NodeTable()
    table.remember(ONE, some_specs(), last_seen_unix_s=12.0)
    row = row_of(table)
    assert not row.connected
    assert row.last_seen_unix_s == 12.0
    assert table.model_ids() == {MODEL}
    assert len(table) == 1


def test_remembering_changes_nothing_about_a_node_that_is_here() -> None:
    table = a_table(1)
    table.remember(ONE, some_specs(name="old name"), last_seen_unix_s=12.0)
    assert row_of(table).specs.name == "attic"
    assert row_of(table).connected


def test_connecting_starts_afresh_and_brings_its_own_specs() -> None:
    table = NodeTable()
    table.remember(ONE, some_specs(a_model(id="old")), last_seen_unix_s=12.0)
    table.set_load(ONE, NodeLoad(foreign=9), now_s=0.0)
    table.note_failure(ONE, now_s=NOW_S)
    assert table.connect(ONE, some_specs(), now_s=NOW_S + 1)
    row = row_of(table)
    assert (row.connected, row.last_heard_s, row.suspect_until_s, row.load) == (True, NOW_S + 1, 0.0, NodeLoad())
    assert table.model_ids() == {MODEL}


def test_disconnecting_keeps_the_row_and_its_reservations() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.disconnect(ONE, unix_s=77.0)
    assert (row_of(table).connected, row_of(table).last_seen_unix_s) == (False, 77.0)
    table.release(held)
    assert own(table) == (0, 0, 0)


def test_a_full_table_takes_no_new_node_but_knows_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "NODES_MAX", 1)
    table = a_table(1)
    assert not table.connect(node_id(2), some_specs(), now_s=NOW_S)
    table.remember(node_id(3), some_specs(), last_seen_unix_s=None)
    assert len(table) == 1
    assert table.connect(ONE, some_specs(), now_s=NOW_S)
