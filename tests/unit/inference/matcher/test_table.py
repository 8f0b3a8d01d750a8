from __future__ import annotations

import math
import random

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.inference.matcher import table as table_module
from sparewatt.inference.matcher.circuit_breaker import OPEN_FIRST_S, OPEN_S_MAX
from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.node_row import (
    DECODE_PACE,
    PREFILL_PACE,
    SHARE_AHEAD,
    STEP_PER_JOB_SHARE,
    UNKNOWN_LARGE,
    NodeRow,
)
from sparewatt.inference.matcher.table import (
    OUTPUT_TOKENS_DEFAULT,
    OUTPUT_TOKENS_LEARNED_MAX,
    NodeTable,
)
from sparewatt.protocol.link.node_report import LOAD_LEFT_MIN, NodeLoad
from tests.unit.inference.nodes import (
    GIB,
    MODEL,
    NOW_S,
    a_job,
    a_model,
    a_table,
    columns_of,
    node_id,
    some_specs,
)

ONE = node_id(1)
BANDWIDTH = 8 * GIB * 50.0


def idle_step_s(jobs: int) -> float:
    """A step with so many jobs beside it, of which nothing is to be read."""
    return 1 / 50 * (1 + STEP_PER_JOB_SHARE * jobs)


def row_of(table: NodeTable) -> NodeRow:
    row = table.get(ONE)
    assert row is not None
    return row


def own(table: NodeTable) -> tuple[int, float, float]:
    """Jobs, seconds of prompts to read, tokens of context; the columns must say the same."""
    row, columns = row_of(table), columns_of(table)
    unread_s = row.own_unread_s * columns[ColumnField.READ_SLOWER]
    assert columns[ColumnField.OWN_READ_END_S] == row.own_read_from_s + unread_s
    assert columns[ColumnField.READ_SLOWER] == (1 / PREFILL_PACE if row.own_jobs else 1.0)
    assert columns[ColumnField.STEP_S] == pytest.approx(idle_step_s(row.own_jobs) + row.own_kv_bytes / BANDWIDTH)
    assert columns[ColumnField.JOBS] == row.own_jobs
    return row.own_jobs, row.own_unread_s, row.own_kv_bytes / 100_000


def test_a_reservation_counts_at_pick_time() -> None:
    table = a_table(1)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    assert own(table) == (2, 1.2, 1200)


def test_a_reservation_is_released_exactly_once() -> None:
    table = a_table(1)
    first = table.reserve(ONE, a_job(), now_s=NOW_S)
    second = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.release(first, now_s=NOW_S)
    table.release(first, now_s=NOW_S)
    assert own(table) == pytest.approx((1, 0.6, 600))
    table.release(second, now_s=NOW_S)
    assert own(table) == (0, 0, 0)


def test_a_prompt_that_was_read_holds_up_nobody_and_is_counted_off_once() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.note_first_token(held, now_s=NOW_S)
    table.note_first_token(held, now_s=NOW_S)
    assert own(table) == (1, 0, 600)
    table.release(held, now_s=NOW_S)
    table.note_first_token(held, now_s=NOW_S)
    assert own(table) == (0, 0, 0)


def test_a_leaked_reservation_expires_and_a_young_one_does_not() -> None:
    table = a_table(1)
    leaked = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S + 90)
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 60) == 0
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 100) == 1
    table.release(leaked, now_s=NOW_S)
    assert own(table) == pytest.approx((1, 0.6, 600))


def test_jobs_there_are_ours_and_those_of_others() -> None:
    table = a_table(1)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.set_load(ONE, NodeLoad(running=3, queued=9, foreign=2), now_s=NOW_S)
    assert row_of(table).jobs_now == 3


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
    table.note_failure(ONE, model=MODEL, now_s=NOW_S)
    assert row_of(table).suspect_until_s == NOW_S + OPEN_FIRST_S
    assert row_of(table).jobs_failed == 1
    table.note_success(ONE, model=MODEL, output_tokens=1)
    assert row_of(table).suspect_until_s == 0.0


def test_each_further_failure_in_a_row_doubles_how_long_a_node_is_suspect() -> None:
    table, seen, now_s = a_table(1), [], NOW_S
    for _ in range(100):
        table.note_failure(ONE, model=MODEL, now_s=now_s)
        seen.append(row_of(table).suspect_until_s - now_s)
        now_s += seen[-1]
    assert seen[:3] == [OPEN_FIRST_S, 2 * OPEN_FIRST_S, 4 * OPEN_FIRST_S]
    assert seen[-1] == max(seen) == OPEN_S_MAX
    table.note_success(ONE, model=MODEL, output_tokens=1)
    table.note_failure(ONE, model=MODEL, now_s=now_s)
    assert row_of(table).suspect_until_s == now_s + OPEN_FIRST_S


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
    table.note_failure(ONE, model=MODEL, now_s=NOW_S)
    assert table.connect(ONE, some_specs(), now_s=NOW_S + 1)
    row = row_of(table)
    assert (row.connected, row.last_heard_s, row.suspect_until_s, row.load) == (True, NOW_S + 1, 0.0, NodeLoad())
    assert table.model_ids() == {MODEL}


def test_disconnecting_keeps_the_row_and_its_reservations() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.disconnect(ONE, unix_s=77.0)
    assert (row_of(table).connected, row_of(table).last_seen_unix_s) == (False, 77.0)
    table.release(held, now_s=NOW_S)
    assert own(table) == (0, 0, 0)


def test_a_full_table_takes_no_new_node_but_knows_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "NODES_MAX", 1)
    table = a_table(1)
    assert not table.connect(node_id(2), some_specs(), now_s=NOW_S)
    table.remember(node_id(3), some_specs(), last_seen_unix_s=None)
    assert len(table) == 1
    assert table.connect(ONE, some_specs(), now_s=NOW_S)


# reservations


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_order_of_releases_nothing_is_left_to_the_last_bit(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test)
    table = a_table(1)
    held = [table.reserve(ONE, a_job(prompt_tokens=n * 7 + 1, output_tokens=n * 3 + 1), now_s=NOW_S) for n in range(40)]
    chance.shuffle(held)
    for number, item in enumerate(held):
        if number % 3:
            table.note_first_token(item, now_s=NOW_S)
    chance.shuffle(held)
    for item in held:
        assert min(own(table)) >= 0
        table.release(item, now_s=NOW_S)
    row = row_of(table)
    assert (row.own_jobs, row.own_unread_s, row.own_kv_bytes, row.own_active) == (0, 0.0, 0.0, {})
    assert row.active_bytes == 0
    assert columns_of(table)[ColumnField.STEP_S] == idle_step_s(0)


def test_the_weights_of_a_model_that_is_being_loaded_are_not_read_yet() -> None:
    """Or a step would be expected to take longer than it does, and the node be taken for a faster one."""
    loading, loaded = (some_specs(a_model(), a_model(id="another", state=state)) for state in ("loading", "warm"))
    table = a_table(1, specs=loading)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    before_s = columns_of(table)[ColumnField.STEP_S]
    table.reserve(ONE, a_job(model=ModelId("another"), prompt_tokens=1, output_tokens=1), now_s=NOW_S)
    assert row_of(table).active_bytes == a_model().weights_bytes
    assert columns_of(table)[ColumnField.STEP_S] < 1.2 * before_s
    assert columns_of(table, model="another")[ColumnField.STEP_S] > 1.5 * before_s, "the loaded one is read beside it"
    table.set_specs(ONE, loaded)
    assert row_of(table).active_bytes == 2 * a_model().weights_bytes
    assert columns_of(table)[ColumnField.STEP_S] > 1.5 * before_s


def test_a_reservation_outlives_its_model() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.set_specs(ONE, some_specs(a_model(id="another")))
    assert columns_of(table, model="another")[ColumnField.JOBS] == 1
    table.release(held, now_s=NOW_S)
    assert columns_of(table, model="another")[ColumnField.JOBS] == 0


def test_an_idle_nodes_reading_begins_when_the_prompt_arrives_there() -> None:
    table = a_table(1)
    table.set_rtt(ONE, 0.2, now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    assert row_of(table).own_read_from_s == NOW_S + 0.2
    table.reserve(ONE, a_job(), now_s=NOW_S + 0.1)
    assert row_of(table).own_read_from_s == NOW_S + 0.2


def test_the_next_prompt_gets_its_turn_when_a_first_token_comes() -> None:
    table = a_table(1)
    first, _ = (table.reserve(ONE, a_job(), now_s=NOW_S) for _ in range(2))
    table.note_first_token(first, now_s=NOW_S + 0.9)
    assert row_of(table).own_read_from_s == NOW_S + 0.9
    assert row_of(table).own_unread_s == pytest.approx(0.6)


def test_a_prompt_whose_first_token_is_not_seen_is_read_in_time_or_when_the_answer_is_there() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S, is_streamed=False)
    assert row_of(table).own_unread_s == 0.0
    assert columns_of(table)[ColumnField.OWN_READ_END_S] == NOW_S + 0.6
    assert columns_of(table)[ColumnField.OWN_READ_MIN_S] == 0.0
    table.reserve(ONE, a_job(), now_s=NOW_S + 0.2)
    assert columns_of(table)[ColumnField.OWN_READ_END_S] == pytest.approx(NOW_S + 0.6 + 0.6 / PREFILL_PACE)
    alone = a_table(1)
    held = alone.reserve(ONE, a_job(), now_s=NOW_S, is_streamed=False)
    alone.release(held, now_s=NOW_S + 0.1)
    assert columns_of(alone)[ColumnField.OWN_READ_END_S] == NOW_S + 0.1


def test_weights_of_another_model_at_work_are_read_in_every_step() -> None:
    table = NodeTable()
    table.connect(ONE, some_specs(a_model(), a_model(id="another", weights_bytes=3 * GIB)), now_s=NOW_S)
    table.reserve(ONE, a_job(model=ModelId("another")), now_s=NOW_S)
    table.set_load(ONE, NodeLoad(foreign_active_bytes=5), now_s=NOW_S)
    context_bytes = 600 * 100_000
    read_bytes = context_bytes + 3 * GIB + 5
    assert columns_of(table)[ColumnField.STEP_S] == pytest.approx(idle_step_s(1) + read_bytes / BANDWIDTH)
    own_step_s = columns_of(table, model="another")[ColumnField.STEP_S]
    assert own_step_s == pytest.approx(idle_step_s(1) + (context_bytes + 5) / (3 * GIB * 50.0))


def test_a_model_that_strangers_use_reads_no_weights_of_its_own() -> None:
    table = NodeTable()
    table.connect(ONE, some_specs(a_model(), a_model(id="another", weights_bytes=3 * GIB)), now_s=NOW_S)
    table.set_load(ONE, NodeLoad(foreign=1, foreign_models=("another", "unheard-of")), now_s=NOW_S)

    def step_s(model: str = MODEL) -> float:
        return float(columns_of(table, model=model)[ColumnField.STEP_S])

    assert step_s() == pytest.approx(idle_step_s(1) + 3 * GIB / BANDWIDTH)
    assert step_s("another") == pytest.approx(idle_step_s(1))
    held = table.reserve(ONE, a_job(model=ModelId("another")), now_s=NOW_S)
    both = idle_step_s(2) + (3 * GIB + 600 * 100_000) / BANDWIDTH  # its weights once, whoever uses it
    assert step_s() == pytest.approx(both)
    table.release(held, now_s=NOW_S)
    assert step_s() == pytest.approx(idle_step_s(1) + 3 * GIB / BANDWIDTH)
    table.set_load(ONE, NodeLoad(), now_s=NOW_S)
    assert step_s() == idle_step_s(0)


def test_no_more_context_is_read_in_a_step_than_fits_into_memory() -> None:
    table = a_table(1)
    table.set_load(ONE, NodeLoad(foreign_kv_bytes=7 * GIB, kv_capacity_bytes=5 * GIB), now_s=NOW_S)
    assert columns_of(table)[ColumnField.KV_FREE_BYTES] == -2 * GIB
    assert columns_of(table)[ColumnField.STEP_S] == pytest.approx(idle_step_s(0) + 5 * GIB / BANDWIDTH)


# reports


def test_a_report_of_load_reaches_every_column_that_comes_from_it() -> None:
    table = a_table(1)
    assert columns_of(table)[ColumnField.KV_FREE_BYTES] == UNKNOWN_LARGE
    load = NodeLoad(
        foreign=2,
        draining=True,
        foreign_backlog_s=1.5,
        foreign_kv_bytes=7,
        foreign_active_bytes=8,
        kv_capacity_bytes=9,
        prefill_share=0.5,
    )
    table.set_load(ONE, load, now_s=NOW_S + 1)
    seen, stalled = columns_of(table), 1 - SHARE_AHEAD * 0.5 * (1 - DECODE_PACE)
    assert {field: seen[field] for field in list(ColumnField)[: ColumnField.DRAINING + 1]} == {
        ColumnField.HEARD_IF_OPEN_S: -math.inf,
        ColumnField.OWN_READ_END_S: 0.0,
        ColumnField.OWN_READ_MIN_S: 0.0,
        ColumnField.FOREIGN_READ_END_S: pytest.approx(NOW_S + 1 + 1.5 / PREFILL_PACE),
        ColumnField.SLOT_WAIT_S: 0.0,
        ColumnField.READ_SLOWER: 1 / PREFILL_PACE,
        ColumnField.STEP_S: pytest.approx((idle_step_s(2) + 15 / BANDWIDTH) / stalled),
        ColumnField.STEP_TOKEN_S: pytest.approx(100_000 / BANDWIDTH / stalled),
        ColumnField.STEP_ADDED_S: pytest.approx(STEP_PER_JOB_SHARE * idle_step_s(0) + 8 * GIB / BANDWIDTH),
        ColumnField.JOBS: 2,
        ColumnField.KV_FREE_BYTES: 9 - 7,
        ColumnField.JOBS_MAX: 36,
        ColumnField.LAST_HEARD_S: NOW_S + 1,
        ColumnField.DRAINING: 1,
    }
    table.set_load(ONE, NodeLoad(), now_s=NOW_S + 2)
    assert columns_of(table)[ColumnField.KV_FREE_BYTES] == UNKNOWN_LARGE


def test_a_link_has_room_for_our_jobs_beside_those_of_others() -> None:
    table = a_table(1, some_specs(slots=512))
    assert columns_of(table)[ColumnField.JOBS_MAX] == LINK_JOBS_MAX
    table.set_load(ONE, NodeLoad(foreign=100), now_s=NOW_S)
    assert columns_of(table)[ColumnField.JOBS_MAX] == LINK_JOBS_MAX + 100


def test_a_model_that_nobody_has_any_more_is_forgotten() -> None:
    table = a_table(2)
    table.set_specs(ONE, some_specs(a_model(id="another")))
    assert table.model_ids() == {MODEL, "another"}
    table.set_specs(node_id(2), some_specs(a_model(id="another")))
    assert table.model_ids() == {"another"}
    assert table.columns_of(MODEL) is None


@pytest.mark.parametrize(
    ("state", "weights_bytes", "seconds"),
    [
        ("warm", 100 * GIB, 0.0),
        ("loading", 100 * GIB, 30.0),
        ("on_disk", 0, 10.0),
        ("on_disk", 6_000_000_000, 12.0),
        ("on_disk", 100 * GIB, 30.0),
    ],
)
def test_a_cold_start_takes_10_to_30_seconds_and_a_warm_one_none(
    state: str, weights_bytes: int, seconds: float
) -> None:
    assert a_model(state=state, weights_bytes=weights_bytes).load_s == seconds


def test_a_load_that_has_begun_is_over_sooner_than_one_that_has_not() -> None:
    """Or all gateways would take a model that is just being loaded for nearly there."""
    large = 33_000_000_000
    on_disk, loading, warm = (
        some_specs(a_model(state=state, weights_bytes=large)) for state in ("on_disk", "loading", "warm")
    )
    table = a_table(1, specs=on_disk)

    def cold_s(after_s: float) -> float:
        table.set_load(ONE, NodeLoad(), now_s=NOW_S + after_s)
        return columns_of(table)[ColumnField.COLD_S]

    assert cold_s(0.0) == 30.0
    table.set_specs(ONE, loading, now_s=NOW_S)
    assert [cold_s(after_s) for after_s in (0.0, 10.0, 20.0)] == [30.0, 20.0, 10.0]
    table.set_specs(ONE, loading, now_s=NOW_S + 21.0)
    assert cold_s(22.0) == 8.0, "a further report of the same load begins nothing"
    assert cold_s(100.0) == 30.0 * LOAD_LEFT_MIN
    table.set_specs(ONE, warm, now_s=NOW_S + 101.0)
    assert cold_s(102.0) == 0.0
    table.set_specs(ONE, loading, now_s=NOW_S + 200.0)
    assert cold_s(205.0) == 25.0


def test_failures_cost_by_the_nodes_record() -> None:
    table = a_table(1)
    odds = [columns_of(table)[ColumnField.FAILURE_ODDS]]
    for _ in range(5):
        table.note_failure(ONE, model=MODEL, now_s=NOW_S)
        odds.append(columns_of(table)[ColumnField.FAILURE_ODDS])
    assert odds[0] == pytest.approx(0.4 / 19.6)
    assert odds == sorted(odds)
    table.note_success(ONE, model=MODEL, output_tokens=1)
    assert columns_of(table)[ColumnField.FAILURE_ODDS] < odds[-1]
