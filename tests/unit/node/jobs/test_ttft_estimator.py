from __future__ import annotations

import pytest

from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.formula import prefill_time
from sparewatt.inference.matcher.scan import MatchQuery
from sparewatt.node.jobs.ttft_estimator import (
    BackendCapacity,
    DecodeTimes,
    PrefillShare,
    SlotUse,
    TtftEstimator,
    expected_ttft_s,
    idle_ttft_s,
)
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import MODEL, a_model, a_table, some_specs

NOW_S = 100.0
ROOMY = BackendCapacity(4)
SPEED = Speed(prefill_tps=100.0, decode_tps=10.0, ttft_s=0.8)


def slot_use(
    *,
    prompt_s: float = 1.0,
    writing_s: float = 10.0,
    ago_s: float = 0.0,
    first_token_ago_s: float | None = None,
    kv_bytes: float = 0.0,
) -> SlotUse:
    """A job that arrived `ago_s` before now and, if given, had its first token `first_token_ago_s` before now."""
    first_s = None if first_token_ago_s is None else NOW_S - first_token_ago_s
    return SlotUse(prompt_s, writing_s, NOW_S - ago_s, first_s, kv_bytes)


def expected(*uses: SlotUse, slots: int = 4, foreign: int = 0, kv_bytes: int | None = None) -> float:
    return expected_ttft_s(1.0, slot_use(kv_bytes=10), uses, BackendCapacity(slots, foreign, kv_bytes))


def test_an_idle_node_adds_no_wait_to_the_ttft() -> None:
    assert expected() == 1.0


def test_prefill_takes_twice_as_long_while_other_jobs_run() -> None:
    assert expected(slot_use(first_token_ago_s=1)) == expected(foreign=1) == 2.0


def test_the_prefill_backlog_comes_first_less_the_time_already_spent_on_it() -> None:
    assert expected(slot_use(prompt_s=3)) == 2 * (3 + 1)
    assert expected(slot_use(prompt_s=3, ago_s=2)) == 2 * (1 + 1)
    assert expected(slot_use(prompt_s=3, ago_s=50)) == 2.0


def test_beyond_the_slots_the_answer_that_ends_first_is_waited_for() -> None:
    running = [slot_use(first_token_ago_s=2), slot_use(first_token_ago_s=7)]
    assert expected(*running, slots=2) == (10 - 7) + 2


def test_an_overdue_answer_is_expected_to_end_soon() -> None:
    assert expected(slot_use(first_token_ago_s=500), slots=1) == 10 / 8 + 2


def test_jobs_that_wait_already_get_slots_first() -> None:
    running, waiting = slot_use(first_token_ago_s=7), slot_use(prompt_s=1, writing_s=10)
    assert expected(running, waiting, slots=1) == (3 + 1 + 10) + 2


def test_foreign_requests_take_slots_too() -> None:
    assert expected(foreign=4) == 10 / 2 + 2
    assert expected(foreign=99, slots=4) == expected(foreign=4, slots=4)


def test_more_work_never_means_less_waiting() -> None:
    waits = [expected(*[slot_use(first_token_ago_s=1)] * n, slots=3) for n in range(12)]
    assert waits == sorted(waits)


def test_a_context_that_does_not_fit_waits_until_enough_answers_have_ended() -> None:
    running = [slot_use(first_token_ago_s=2, kv_bytes=20), slot_use(first_token_ago_s=7, kv_bytes=5)]
    assert expected(*running, kv_bytes=35) == expected(*running) == 2.0
    assert expected(*running, kv_bytes=30) == (10 - 7) + 2
    assert expected(*running, kv_bytes=25) == (10 - 2) + 2


def test_on_an_idle_node_a_context_of_any_size_starts_at_once() -> None:
    assert expected(kv_bytes=1) == 1.0


# the decision


def decided(
    outlook: TtftEstimator, *, promised_s: float = 1.0, house: BackendCapacity = ROOMY, now_s: float = NOW_S
) -> float | None:
    outlook.capacity = house
    return outlook.late_ttft_s(a_model(measured=SPEED), 130, promised_s=promised_s, now_s=now_s)


def test_a_job_that_would_come_much_later_than_promised_is_refused() -> None:
    outlook = TtftEstimator()
    assert decided(outlook) is None
    outlook.begin("one", a_model(measured=SPEED), 300, now_s=NOW_S)
    assert decided(outlook) == pytest.approx(2 * (3.0 + 1.8))
    assert decided(outlook, promised_s=0.0) is None
    assert decided(outlook, promised_s=9.0) is None
    outlook.end("one", now_s=NOW_S)
    assert decided(outlook) is None


def test_a_job_is_refused_where_its_context_would_wait_for_memory() -> None:
    outlook = TtftEstimator()
    model = a_model(measured=SPEED)
    outlook.begin("one", model, 100, now_s=NOW_S)
    outlook.note_first_token("one", now_s=NOW_S)
    tight = BackendCapacity(4, kv_bytes=600 * model.kv_bytes_per_token)
    assert decided(outlook, promised_s=4.0) is None
    assert decided(outlook, promised_s=4.0, house=tight) == pytest.approx(25.6 + 2 * 1.8)


def test_a_job_without_a_first_token_changes_no_decode_time_and_ends_its_prefill() -> None:
    outlook = TtftEstimator()
    outlook.begin("one", a_model(measured=SPEED), 100, now_s=0.0)
    assert outlook.prefill_share(100.0) == 1.0
    outlook.end("one", now_s=100.0)
    outlook.end("one", now_s=100.0)  # once is enough
    assert outlook.prefill_share(200.0) == 0.0
    outlook.begin("two", a_model(measured=SPEED), 100, now_s=200.0)
    assert outlook.slot_uses["two"].decode_s == 25.6


def test_a_prompt_that_waits_for_a_slot_is_not_in_prefill() -> None:
    model = a_model(measured=SPEED)
    outlook = TtftEstimator(BackendCapacity(4, kv_bytes=500 * model.kv_bytes_per_token))
    outlook.begin("one", model, 100, now_s=0.0)
    outlook.note_first_token("one", now_s=0.0)
    outlook.begin("waits for memory", model, 100, now_s=0.0)
    assert outlook.prefill_share(100.0) == 0.0
    outlook.end("one", now_s=100.0)
    assert outlook.prefill_share(200.0) == 1.0


# the same figures at both ends


def test_node_and_gateway_expect_the_same_ttft() -> None:
    entries = a_table(1, some_specs(a_model(measured=SPEED))).columns_of(MODEL)
    assert entries is not None
    fixed_s = entries.by_field[ColumnField.PREFILL_FIXED_S, 0]
    token_s = entries.by_field[ColumnField.PREFILL_TOKEN_S, 0]
    for tokens in (0, 10, 500):
        assert idle_ttft_s(SPEED, tokens) == pytest.approx(
            prefill_time(MatchQuery(float(tokens), 1.0), fixed_s, token_s)
        )
    assert idle_ttft_s(SPEED, 500) == pytest.approx(0.8 + 4.7)


# what was seen


def test_decode_times_are_a_moving_average_of_past_answers() -> None:
    writing = DecodeTimes()
    assert writing.typical_s("m", SPEED) == 25.6
    writing.note("m", 5.0)
    assert writing.typical_s("m", SPEED) == 5.0
    writing.note("m", 10.0)
    assert writing.typical_s("m", SPEED) == 6.0
    assert writing.typical_s("other", SPEED) == 25.6


def test_the_prefill_share_rises_during_prefill_and_decays_after() -> None:
    share = PrefillShare()
    share.note(is_prefilling=True, now_s=0.0)
    assert share.value == 0.0
    share.note(is_prefilling=True, now_s=100.0)
    assert share.value == 1.0
    share.note(is_prefilling=False, now_s=100.0)
    share.note(is_prefilling=False, now_s=115.0)
    assert share.value == 0.37
    share.note(is_prefilling=False, now_s=90.0)  # a clock that stumbles changes nothing
    assert share.value == 0.37


def test_cached_tokens_need_no_prefill() -> None:
    model = a_model(measured=SPEED, prefix_cache_tokens=10_000)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S) is not None
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is None
    busy = TtftEstimator(ROOMY)
    busy.begin("job", model, 4000, now_s=NOW_S, cached_tokens=3500)
    assert busy.slot_uses["job"].prefill_s == 5.0


def test_a_server_without_a_prefix_cache_prefills_all_tokens() -> None:
    model = a_model(measured=SPEED)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is not None
