from __future__ import annotations

import math
import random

import pytest

from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.inference.matcher import table as table_module
from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.node_row import UNKNOWN_LARGE, NodeRow
from sparewatt.inference.matcher.table import (
    OUTPUT_TOKENS_DEFAULT,
    OUTPUT_TOKENS_LEARNED_MAX,
    SLOWNESS_MAX,
    SUSPECT_AFTER_FAILURE_S,
    NodeTable,
)
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import (
    GIB,
    MODEL,
    NOW_S,
    a_job,
    a_model,
    a_table,
    columns_of,
    node_id,
    situation,
    some_specs,
)

ONE = node_id(1)
BANDWIDTH = 8 * GIB * 50.0


def idle_step_s(jobs: int) -> float:
    """A step with so many jobs beside it, of which nothing is to be read."""
    return 1 / 50 * (1 + 0.5 * jobs)


def row_of(table: NodeTable) -> NodeRow:
    row = table.get(ONE)
    assert row is not None
    return row


def own(table: NodeTable) -> tuple[int, float, float]:
    """Jobs, seconds of prompts to read, tokens of context; the columns must say the same."""
    row, columns = row_of(table), columns_of(table)
    assert columns[ColumnField.QUEUE_S] == row.own_backlog_s * columns[ColumnField.SHARING]
    assert columns[ColumnField.STEP_S] == pytest.approx(idle_step_s(row.own_jobs) + row.own_kv_bytes / BANDWIDTH)
    assert columns[ColumnField.JOBS] == row.own_jobs
    return row.own_jobs, row.own_backlog_s, row.own_kv_bytes / 100_000


def test_a_reservation_counts_at_pick_time() -> None:
    table = a_table(1)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    assert own(table) == (2, 1.0, 1200)


def test_a_reservation_is_released_exactly_once() -> None:
    table = a_table(1)
    first = table.reserve(ONE, a_job(), now_s=NOW_S)
    second = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.release(first)
    table.release(first)
    assert own(table) == (1, 0.5, 600)
    table.release(second)
    assert own(table) == (0, 0, 0)


def test_a_prompt_that_was_read_holds_up_nobody_and_is_counted_off_once() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.note_prefill_done(held)
    table.note_prefill_done(held)
    assert own(table) == (1, 0, 600)
    table.release(held)
    table.note_prefill_done(held)
    assert own(table) == (0, 0, 0)


def test_a_leaked_reservation_expires_and_a_young_one_does_not() -> None:
    table = a_table(1)
    leaked = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.reserve(ONE, a_job(), now_s=NOW_S + 90)
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 60) == 0
    assert table.expire_reservations(older_than_s=60, now_s=NOW_S + 100) == 1
    table.release(leaked)
    assert own(table) == (1, 0.5, 600)


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


# reservations


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_order_of_releases_nothing_is_left_to_the_last_bit(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test)
    table = a_table(1)
    held = [table.reserve(ONE, a_job(prompt_tokens=n * 7 + 1, output_tokens=n * 3 + 1), now_s=NOW_S) for n in range(40)]
    chance.shuffle(held)
    for number, item in enumerate(held):
        if number % 3:
            table.note_prefill_done(item)
    chance.shuffle(held)
    for item in held:
        assert min(own(table)) >= 0
        table.release(item)
    row = row_of(table)
    assert (row.own_jobs, row.own_backlog_s, row.own_kv_bytes, row.own_active) == (0, 0.0, 0.0, {})
    assert table.strain_of(MODEL) == 0.0
    assert row.active_bytes == 0
    assert columns_of(table)[ColumnField.STEP_S] == idle_step_s(0)


def test_a_reservation_outlives_its_model() -> None:
    table = a_table(1)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    table.set_specs(ONE, some_specs(a_model(id="another")))
    assert columns_of(table, model="another")[ColumnField.JOBS] == 1
    table.release(held)
    assert columns_of(table, model="another")[ColumnField.JOBS] == 0


def test_other_gateways_are_assumed_to_send_as_we_do_until_the_node_reports() -> None:
    table = NodeTable(gateways=9)
    table.connect(ONE, some_specs(), now_s=NOW_S)
    held = table.reserve(ONE, a_job(), now_s=NOW_S)
    assert columns_of(table)[ColumnField.JOBS] == 3
    table.set_load(ONE, NodeLoad(foreign=1), now_s=NOW_S)
    assert columns_of(table)[ColumnField.JOBS] == 2
    table.release(held)
    assert columns_of(table)[ColumnField.JOBS] == 1


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
    table.release(held)
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
    seen = columns_of(table)
    assert {field: seen[field] for field in list(ColumnField)[: ColumnField.DRAINING + 1]} == {
        ColumnField.HEARD_IF_OPEN_S: -math.inf,
        ColumnField.QUEUE_S: 1.5 * 2,
        ColumnField.SHARING: 2,
        ColumnField.STEP_S: pytest.approx((idle_step_s(2) + 15 / BANDWIDTH) / 0.75),
        ColumnField.STEP_TOKEN_S: pytest.approx(100_000 / BANDWIDTH / 0.75),
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
        ("loading", 100 * GIB, 10.0),
        ("on_disk", 0, 10.0),
        ("on_disk", 6_000_000_000, 12.0),
        ("on_disk", 100 * GIB, 30.0),
    ],
)
def test_a_cold_start_takes_10_to_30_seconds_and_a_warm_one_none(
    state: str, weights_bytes: int, seconds: float
) -> None:
    assert a_model(state=state, weights_bytes=weights_bytes).load_s == seconds


# what observation teaches


def speed_of(table: NodeTable) -> float:
    return 1.0 / row_of(table).pace


def test_being_seen_slower_lowers_a_nodes_speed_towards_the_truth() -> None:
    table = a_table(1)
    before = speed_of(table)
    for _ in range(100):
        table.note_speed(ONE, predicted_s=1.0, observed_s=5.0)
        assert speed_of(table) < before or before == pytest.approx(0.2)
        before = speed_of(table)
    assert before == pytest.approx(0.2, rel=1e-3)


def test_being_seen_faster_never_raises_a_node_above_its_measured_speed() -> None:
    table = a_table(1)
    for _ in range(100):
        table.note_speed(ONE, predicted_s=100.0, observed_s=1e-9)
        assert speed_of(table) == 1.0
    table.note_speed(ONE, predicted_s=1.0, observed_s=1.0)
    assert speed_of(table) == 1.0


def test_a_slow_spell_is_forgotten_but_no_further_than_what_was_measured() -> None:
    table = a_table(1)
    for _ in range(50):
        table.note_speed(ONE, predicted_s=1.0, observed_s=4.0)
    for _ in range(200):
        table.note_speed(ONE, predicted_s=1.0, observed_s=1.0)
    assert speed_of(table) == pytest.approx(1.0, rel=1e-3)
    assert speed_of(table) <= 1.0


def test_the_first_lesson_counts_half_and_later_ones_less() -> None:
    table = a_table(1)
    table.note_speed(ONE, predicted_s=1.0, observed_s=math.e)
    assert speed_of(table) == pytest.approx(math.exp(-0.5))
    for _ in range(100):
        table.note_success(ONE, model=MODEL, output_tokens=1)
    table.note_speed(ONE, predicted_s=1.0, observed_s=math.e)
    assert speed_of(table) == pytest.approx(math.exp(-0.5 - 0.08 * 0.5))


def test_one_absurd_observation_does_not_bury_a_node() -> None:
    table = a_table(1)
    for _ in range(30):
        table.note_success(ONE, model=MODEL, output_tokens=1)
    table.note_speed(ONE, predicted_s=1e-9, observed_s=1e9)
    assert speed_of(table) > 0.75


@pytest.mark.parametrize(
    ("predicted_s", "observed_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.nan)]
)
def test_an_observation_that_cannot_be_teaches_nothing(predicted_s: float, observed_s: float) -> None:
    table = a_table(1)
    table.note_speed(ONE, predicted_s=1.0, observed_s=2.0)
    before = speed_of(table)
    table.note_speed(ONE, predicted_s=predicted_s, observed_s=observed_s)
    assert speed_of(table) == before


def test_a_node_that_claims_the_highest_speed_there_is_does_not_go_on_winning() -> None:
    """However absurd a figure passes the report's bounds, a few jobs teach what it is worth."""
    table = a_table(1, some_specs(a_model(measured=Speed(prefill_tps=20.0, decode_tps=1.0))))
    liar = node_id(2)
    table.connect(liar, some_specs(a_model(measured=Speed(prefill_tps=1e7, decode_tps=1e7))), now_s=NOW_S)
    wins = 0
    for number in range(200):
        best = match(a_job(id=MatchId(f"m{number}")), table, situation(), ranking=BALANCED, seed=1).best
        assert best is not None
        if best.node_id == liar:
            wins += 1
            table.note_success(liar, model=MODEL, output_tokens=200)
            table.note_speed(liar, predicted_s=200 / 1e7, observed_s=2000.0)
    assert wins < 100
    assert row_of(table).slowness == 0.0
    taught = table.get(liar)
    assert taught is not None
    assert taught.pace <= math.exp(SLOWNESS_MAX)


def test_failures_cost_by_the_nodes_record() -> None:
    table = a_table(1)
    odds = [columns_of(table)[ColumnField.FAILURE_ODDS]]
    for _ in range(5):
        table.note_failure(ONE, now_s=NOW_S)
        odds.append(columns_of(table)[ColumnField.FAILURE_ODDS])
    assert odds[0] == pytest.approx(0.4 / 19.6)
    assert odds == sorted(odds)
    table.note_success(ONE, model=MODEL, output_tokens=1)
    assert columns_of(table)[ColumnField.FAILURE_ODDS] < odds[-1]


# strain


def test_strain_is_demand_by_weight_over_the_bandwidth_that_holds_the_model() -> None:
    table = a_table(4, some_specs(a_model(weights_bytes=32_000_000_000), bandwidth_bytes_s=1e12))
    assert table.strain_of(MODEL) == 0.0
    for _ in range(6):
        table.reserve(ONE, a_job(), now_s=NOW_S)
    table.refresh_strain()
    assert table.strain_of(MODEL) == pytest.approx(6 * 2 / 4)
    assert table.strain_of("nowhere") == 0.0


def test_only_connected_nodes_with_the_model_loaded_are_supply() -> None:
    table = a_table(4, some_specs(a_model(weights_bytes=16_000_000_000), bandwidth_bytes_s=1e12))
    table.set_specs(node_id(3), some_specs(a_model(state="on_disk"), bandwidth_bytes_s=1e12))
    table.disconnect(node_id(4), unix_s=0.0)
    table.reserve(ONE, a_job(), now_s=NOW_S)
    table.refresh_strain()
    assert table.strain_of(MODEL) == pytest.approx(1 / 2)


def test_a_node_is_wanted_for_the_most_wanted_model_that_it_holds() -> None:
    both, other = some_specs(a_model(), a_model(id="another")), ModelId("another")
    table = a_table(1, both)
    table.connect(node_id(2), some_specs(a_model(), a_model(id="another", state="on_disk")), now_s=NOW_S)
    table.reserve(ONE, a_job(model=other), now_s=NOW_S)
    table.refresh_strain()
    assert columns_of(table)[ColumnField.STRAIN_MAX] == table.strain_of(other) > 0
    assert columns_of(table, model="another")[ColumnField.STRAIN_MAX] == table.strain_of(other)
    assert columns_of(table, 2)[ColumnField.STRAIN_MAX] == table.strain_of(MODEL) == 0.0
    table.set_load(ONE, NodeLoad(), now_s=NOW_S)
    assert columns_of(table)[ColumnField.STRAIN_MAX] > 0


def test_strain_does_not_depend_on_the_order_of_the_nodes_nor_on_one_odd_report() -> None:
    weights = [8 * GIB] * 6 + [1 << 50]
    rates = [1e11 / 3, 1e12 / 7, 9e11, 1.1e12, 1e9 / 3, 5e10, 1e15]

    def strain(order: list[int]) -> float:
        table = NodeTable()
        for n in order:
            specs = some_specs(a_model(weights_bytes=weights[n]), bandwidth_bytes_s=rates[n])
            table.connect(node_id(n), specs, now_s=NOW_S)
        table.reserve(node_id(0), a_job(), now_s=NOW_S)
        table.refresh_strain()
        return table.strain_of(MODEL)

    chance = random.Random(1)  # noqa: S311 (a test)
    orders = [chance.sample(range(7), 7) for _ in range(20)]
    (only,) = {strain(order) for order in orders}
    assert 0.0 < only < 1.0
