from __future__ import annotations

import pytest

from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.formula import reading
from sparewatt.inference.matcher.match_query import MatchQuery
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


def a_turn(
    *,
    prompt_s: float = 1.0,
    writing_s: float = 10.0,
    ago_s: float = 0.0,
    spoke_s: float | None = None,
    kv_bytes: float = 0.0,
) -> SlotUse:
    """A job that came `ago_s` before now and, if so, said its first token `spoke_s` before now."""
    first_s = None if spoke_s is None else NOW_S - spoke_s
    return SlotUse(prompt_s, writing_s, NOW_S - ago_s, first_s, kv_bytes)


def expected(*turns: SlotUse, slots: int = 4, foreign: int = 0, kv_bytes: int | None = None) -> float:
    return expected_ttft_s(1.0, a_turn(kv_bytes=10), turns, BackendCapacity(slots, foreign, kv_bytes))


def test_an_idle_node_reads_the_prompt_and_speaks() -> None:
    assert expected() == 1.0


def test_reading_takes_twice_as_long_beside_others() -> None:
    assert expected(a_turn(spoke_s=1)) == expected(foreign=1) == 2.0


def test_unread_prompts_come_first_less_what_was_read_of_them() -> None:
    assert expected(a_turn(prompt_s=3)) == 2 * (3 + 1)
    assert expected(a_turn(prompt_s=3, ago_s=2)) == 2 * (1 + 1)
    assert expected(a_turn(prompt_s=3, ago_s=50)) == 2.0


def test_beyond_the_slots_the_answer_that_ends_first_is_waited_for() -> None:
    running = [a_turn(spoke_s=2), a_turn(spoke_s=7)]
    assert expected(*running, slots=2) == (10 - 7) + 2


def test_an_answer_longer_than_usual_is_nearly_over() -> None:
    assert expected(a_turn(spoke_s=500), slots=1) == 10 / 8 + 2


def test_who_waits_already_goes_first() -> None:
    running, waiting = a_turn(spoke_s=7), a_turn(prompt_s=1, writing_s=10)
    assert expected(running, waiting, slots=1) == (3 + 1 + 10) + 2


def test_strangers_take_slots_too() -> None:
    assert expected(foreign=4) == 10 / 2 + 2
    assert expected(foreign=99, slots=4) == expected(foreign=4, slots=4)


def test_more_work_never_means_less_waiting() -> None:
    waits = [expected(*[a_turn(spoke_s=1)] * n, slots=3) for n in range(12)]
    assert waits == sorted(waits)


def test_a_context_that_does_not_fit_waits_until_enough_answers_have_ended() -> None:
    running = [a_turn(spoke_s=2, kv_bytes=20), a_turn(spoke_s=7, kv_bytes=5)]
    assert expected(*running, kv_bytes=35) == expected(*running) == 2.0
    assert expected(*running, kv_bytes=30) == (10 - 7) + 2
    assert expected(*running, kv_bytes=25) == (10 - 2) + 2


def test_alone_on_the_node_a_context_is_let_in_however_large() -> None:
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


def test_a_job_that_never_spoke_teaches_nothing_about_writing_and_reading_ends_with_it() -> None:
    outlook = TtftEstimator()
    outlook.begin("one", a_model(measured=SPEED), 100, now_s=0.0)
    assert outlook.prefill_share(100.0) == 1.0
    outlook.end("one", now_s=100.0)
    outlook.end("one", now_s=100.0)  # once is enough
    assert outlook.prefill_share(200.0) == 0.0
    outlook.begin("two", a_model(measured=SPEED), 100, now_s=200.0)
    assert outlook.slot_uses["two"].decode_s == 25.6


def test_a_prompt_that_waits_for_its_place_is_not_being_read() -> None:
    model = a_model(measured=SPEED)
    outlook = TtftEstimator(BackendCapacity(4, kv_bytes=500 * model.kv_bytes_per_token))
    outlook.begin("one", model, 100, now_s=0.0)
    outlook.note_first_token("one", now_s=0.0)
    outlook.begin("waits for memory", model, 100, now_s=0.0)
    assert outlook.prefill_share(100.0) == 0.0
    outlook.end("one", now_s=100.0)
    assert outlook.prefill_share(200.0) == 1.0


# the same figures at both ends


def test_node_and_gateway_expect_the_same_reading_time() -> None:
    entries = a_table(1, some_specs(a_model(measured=SPEED))).entries(MODEL)
    assert entries is not None
    fixed_s, token_s = entries.data[ColumnField.READ_FIXED_S, 0], entries.data[ColumnField.READ_TOKEN_S, 0]
    for tokens in (0, 10, 500):
        assert idle_ttft_s(SPEED, tokens) == pytest.approx(reading(MatchQuery(float(tokens), 1.0), fixed_s, token_s))
    assert idle_ttft_s(SPEED, 500) == pytest.approx(0.8 + 4.7)


# what was seen


def test_usual_answers_are_learned_from_what_answers_took() -> None:
    writing = DecodeTimes()
    assert writing.typical_s("m", SPEED) == 25.6
    writing.note("m", 5.0)
    assert writing.typical_s("m", SPEED) == 5.0
    writing.note("m", 10.0)
    assert writing.typical_s("m", SPEED) == 6.0
    assert writing.typical_s("other", SPEED) == 25.6


def test_the_share_of_reading_rises_while_reading_and_fades_after() -> None:
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


def test_what_the_server_holds_of_a_prompt_need_not_be_read() -> None:
    model = a_model(measured=SPEED, prefix_cache_tokens=10_000)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S) is not None
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is None
    busy = TtftEstimator(ROOMY)
    busy.begin("job", model, 4000, now_s=NOW_S, cached_tokens=3500)
    assert busy.slot_uses["job"].prefill_s == 5.0


def test_a_server_that_keeps_no_prompts_reads_all_whatever_the_gateway_believes() -> None:
    model = a_model(measured=SPEED)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is not None
