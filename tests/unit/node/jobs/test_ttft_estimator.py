from __future__ import annotations

import msgspec
import pytest

from sparewatt.node.jobs.ttft_estimator import (
    DECODE_PACE_DEFAULT,
    FASTER_MAX,
    PREFILL_PACE_DEFAULT,
    PREFILL_SHARE_DECAY_S,
    BackendCapacity,
    DecodeTimes,
    Paces,
    PrefillShare,
    SlotUse,
    TtftEstimator,
    expected_ttft_s,
)
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import a_model

NOW_S = 100.0
ROOMY = BackendCapacity(4)
PACES = Paces(prefill=0.5, decode=0.1)
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


def expected(
    *uses: SlotUse, slots: int = 4, foreign: int = 0, kv_bytes: int | None = None, paces: Paces = PACES
) -> float:
    return expected_ttft_s(slot_use(kv_bytes=10), uses, BackendCapacity(slots, foreign, kv_bytes), paces)


def test_an_idle_node_adds_no_wait_to_the_ttft() -> None:
    assert expected() == 1.0


def test_a_prompt_is_read_at_its_pace_beside_answers() -> None:
    assert expected(slot_use(first_token_ago_s=1)) == expected(foreign=1) == 1 / 0.5
    assert expected(slot_use(first_token_ago_s=1), paces=Paces(1.0, 0.1)) == 1.0


def test_prompts_are_read_one_after_the_other_and_then_written_beside_the_next() -> None:
    assert expected(slot_use(prompt_s=3)) == 3 + 1 / 0.5
    assert expected(slot_use(prompt_s=3), slot_use(prompt_s=2)) == 3 + (2 + 1) / 0.5


def test_what_was_read_of_the_first_prompt_is_not_read_again() -> None:
    assert expected(slot_use(prompt_s=3, ago_s=2)) == 1 + 2
    assert expected(slot_use(prompt_s=3, ago_s=50)) == 2.0
    assert expected(slot_use(prompt_s=3, ago_s=50), slot_use(prompt_s=3, ago_s=50)) == 3 / 0.5 + 2


def test_a_prompt_is_read_from_when_the_one_before_it_had_its_first_token() -> None:
    before = slot_use(prompt_s=9, ago_s=10, first_token_ago_s=1)
    assert expected(before, slot_use(prompt_s=3, ago_s=9)) == (2 + 1) / 0.5


def test_beyond_the_slots_the_answer_that_ends_first_is_waited_for() -> None:
    running = [slot_use(first_token_ago_s=2), slot_use(first_token_ago_s=7)]
    assert expected(*running, slots=2) == (10 - 7) + 2


def test_answers_stall_while_prompts_are_read() -> None:
    """3 s are left to write; for 4 s of reading they go on at a tenth."""
    running, reading = slot_use(first_token_ago_s=7), slot_use(prompt_s=2)
    assert expected(running, reading, slots=2) == pytest.approx((3 + 4 * 0.9) + 2)
    assert expected(running, slot_use(prompt_s=20), slots=2) == pytest.approx(3 / 0.1 + 20 / 0.5 - 30 + 2)


def test_a_prompt_without_a_slot_stalls_nobody() -> None:
    running, waiting = slot_use(first_token_ago_s=7), slot_use(prompt_s=5)
    assert expected(running, waiting, slots=1) == (3 + 5 + 10) + 1


def test_an_overdue_answer_is_expected_to_end_soon() -> None:
    assert expected(slot_use(first_token_ago_s=500), slots=1) == 10 / 8 + 1


def test_foreign_requests_take_slots_too() -> None:
    assert expected(foreign=4) == 10 / 2 + 2
    assert expected(foreign=99, slots=4) == expected(foreign=4, slots=4)


def test_more_work_never_means_less_waiting() -> None:
    waits = [expected(*[slot_use(first_token_ago_s=1)] * n, slots=3) for n in range(12)]
    assert waits == sorted(waits)
    waits = [expected(*[slot_use()] * n, slots=3) for n in range(12)]
    assert waits == sorted(waits)


def test_a_context_that_does_not_fit_waits_until_enough_answers_have_ended() -> None:
    running = [slot_use(first_token_ago_s=2, kv_bytes=20), slot_use(first_token_ago_s=7, kv_bytes=5)]
    assert expected(*running, kv_bytes=35) == expected(*running) == 2.0
    assert expected(*running, kv_bytes=30) == (10 - 7) + 2
    assert expected(*running, kv_bytes=25) == (10 - 2) + 1


def test_on_an_idle_node_a_context_of_any_size_starts_at_once() -> None:
    assert expected(kv_bytes=1) == 1.0


def test_a_server_that_was_not_measured_with_both_is_taken_for_one_that_chunks_prefill() -> None:
    assert Paces.of(SPEED) == Paces(PREFILL_PACE_DEFAULT, DECODE_PACE_DEFAULT)
    assert Paces.of(msgspec.structs.replace(SPEED, prefill_pace=0.5, decode_pace=0.4)) == Paces(0.5, 0.4)


# the decision


def decided(
    outlook: TtftEstimator, *, promised_s: float = 2.0, house: BackendCapacity = ROOMY, now_s: float = NOW_S
) -> float | None:
    outlook.capacity = house
    return outlook.late_ttft_s(a_model(measured=SPEED), 130, promised_s=promised_s, now_s=now_s)


def test_a_job_that_would_come_much_later_than_promised_is_refused() -> None:
    outlook = TtftEstimator()
    assert decided(outlook) is None
    outlook.begin("one", a_model(measured=SPEED), 300, now_s=NOW_S)
    assert decided(outlook) == pytest.approx(3.8 + 2.1 / PREFILL_PACE_DEFAULT)
    assert decided(outlook, promised_s=0.0) is None
    assert decided(outlook, promised_s=6.0) is None
    outlook.end("one", now_s=NOW_S)
    assert decided(outlook) is None


def test_a_job_is_refused_where_its_context_would_wait_for_memory() -> None:
    outlook = TtftEstimator()
    model = a_model(measured=SPEED)
    outlook.begin("one", model, 100, now_s=NOW_S - SPEED.prefill_s(100))
    outlook.note_first_token("one", now_s=NOW_S)
    tight = BackendCapacity(4, kv_bytes=600 * model.kv_bytes_per_token)
    assert decided(outlook, promised_s=4.0) is None
    assert decided(outlook, promised_s=4.0, house=tight) == pytest.approx(25.6 + 2.1)


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


def test_before_the_model_is_measured_nothing_is_expected() -> None:
    assert TtftEstimator().ttft_s(a_model(measured=None), 100, now_s=NOW_S) is None


def test_a_prompt_takes_what_the_curve_says() -> None:
    curve = msgspec.structs.replace(SPEED, prefill_square_s=1e-4)
    assert TtftEstimator().ttft_s(a_model(measured=curve), 200, now_s=NOW_S) == pytest.approx(0.8 + 2.0 + 4.0)


def test_a_job_is_alone_until_another_begins_and_not_again_after_it_ends() -> None:
    outlook, model = TtftEstimator(), a_model(measured=SPEED)
    assert not outlook.is_alone("one")
    outlook.begin("one", model, 100, now_s=0.0)
    assert outlook.is_alone("one")
    outlook.begin("two", model, 100, now_s=1.0)
    outlook.end("two", now_s=2.0)
    assert not outlook.is_alone("one")
    outlook.begin("three", model, 100, now_s=3.0)
    outlook.end("one", now_s=4.0)
    assert not outlook.is_alone("three"), "it began beside another"


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
    share.note(is_prefilling=False, now_s=100.0 + PREFILL_SHARE_DECAY_S)
    assert share.value == 0.37
    share.note(is_prefilling=False, now_s=90.0)  # a clock that stumbles changes nothing
    assert share.value == 0.37


def test_cached_tokens_need_no_prefill() -> None:
    model = a_model(measured=SPEED, prefix_cache_tokens=10_000)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S) is not None
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is None
    busy = TtftEstimator(ROOMY)
    busy.begin("job", model, 4000, now_s=NOW_S, cached_tokens=3500)
    assert busy.slot_uses["job"].prefill_s == 5.8


def test_a_server_without_a_prefix_cache_prefills_all_tokens() -> None:
    model = a_model(measured=SPEED)
    assert TtftEstimator(ROOMY).late_ttft_s(model, 4000, promised_s=10.0, now_s=NOW_S, cached_tokens=3500) is not None


# what its own prompts teach


def read_prompts(outlook: TtftEstimator, *, took_s: float, n: int = 40, **model: object) -> float:
    """Prompts of 100 tokens one by one; returns what the next is expected to take."""
    report = a_model(measured=SPEED, **model)
    for number in range(n):
        began_s = 1000.0 * (number + 1)
        outlook.begin(number, report, 100, now_s=began_s)
        outlook.note_first_token(number, now_s=began_s + took_s)
        outlook.end(number, now_s=began_s + took_s)
    outlook.begin("next", report, 100, now_s=1e6)
    return outlook.slot_uses["next"].prefill_s


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_a_node_learns_how_long_its_prompts_really_take(factor: float) -> None:
    took_s = factor * SPEED.prefill_s(100)
    assert read_prompts(TtftEstimator(), took_s=took_s) == pytest.approx(took_s, rel=0.1)


def test_how_much_faster_a_server_may_be_is_bounded() -> None:
    assert read_prompts(TtftEstimator(), took_s=0.0, n=200) == pytest.approx(SPEED.prefill_s(100) / FASTER_MAX)


@pytest.mark.parametrize("state", ["on_disk", "loading"])
def test_loading_a_model_teaches_nothing(state: str) -> None:
    assert read_prompts(TtftEstimator(), took_s=60.0, state=state) == SPEED.prefill_s(100)


def test_a_load_that_a_job_has_begun_goes_on_meanwhile() -> None:
    estimator, model = TtftEstimator(), a_model(measured=SPEED, state="on_disk", weights_bytes=33_000_000_000)
    estimator.capacity = ROOMY
    idle_s = estimator.ttft_s(model, 100, now_s=0.0)
    assert idle_s is not None
    assert idle_s == pytest.approx(30.0 + SPEED.prefill_s(100))
    estimator.begin("one", model, 100, now_s=0.0)
    later_s = estimator.ttft_s(model, 100, now_s=20.0)
    assert later_s is not None
    assert later_s < idle_s - 18.0
    estimator.begin("two", msgspec.structs.replace(model, state="warm"), 100, now_s=31.0)
    for job in ("one", "two"):
        estimator.end(job, now_s=40.0)
    assert estimator.ttft_s(model, 100, now_s=50.0) == pytest.approx(idle_s), "dropped meanwhile: it begins again"


def test_requests_of_others_and_waiting_for_a_slot_teach_nothing() -> None:
    shared = TtftEstimator()
    shared.capacity = BackendCapacity(4, foreign=1)
    assert read_prompts(shared, took_s=60.0) == SPEED.prefill_s(100)
    single, model = TtftEstimator(), a_model(measured=SPEED)
    single.capacity = BackendCapacity(1)
    for job in ("one", "two"):
        single.begin(job, model, 100, now_s=0.0)
    for job, first_s in (("one", 1.8), ("two", 60.0)):
        single.note_first_token(job, now_s=first_s)
    single.begin("three", model, 100, now_s=61.0)
    assert single.slot_uses["three"].prefill_s == SPEED.prefill_s(100)


def test_a_prompt_is_timed_from_when_the_one_before_it_was_read() -> None:
    outlook, model = TtftEstimator(), a_model(measured=msgspec.structs.replace(SPEED, prefill_pace=1.0))
    outlook.capacity = BackendCapacity(64)
    for number in range(8):
        outlook.begin(number, model, 100, now_s=0.0)
    for number in range(8):
        outlook.note_first_token(number, now_s=(number + 1) * SPEED.prefill_s(100))
    outlook.begin("next", model, 100, now_s=100.0)
    assert outlook.slot_uses["next"].prefill_s == pytest.approx(SPEED.prefill_s(100))


# requests that were abandoned


def test_an_abandoned_prompt_weighs_what_is_left_of_it() -> None:
    estimator = TtftEstimator()
    model = a_model(measured=Speed(prefill_tps=100.0, decode_tps=10.0), kv_bytes_per_token=1)
    estimator.begin("left", model, 1000, now_s=0.0)
    assert estimator.left_to_read_s("left", now_s=4.0) == pytest.approx(6.0)
    load = estimator.load_of([], abandoned=["left"], now_s=4.0)
    assert (load.jobs, load.models) == (1, (model.id,))
    assert load.backlog_s == pytest.approx(6.0)
    assert load.kv_bytes > 0
    assert estimator.left_to_read_s("left", now_s=40.0) == 0.0


def test_an_answer_that_is_written_has_nothing_left_to_read() -> None:
    estimator = TtftEstimator()
    estimator.begin("job", a_model(measured=Speed(prefill_tps=100.0, decode_tps=10.0)), 1000, now_s=0.0)
    estimator.note_first_token("job", now_s=1.0)
    assert estimator.left_to_read_s("job", now_s=1.0) == estimator.left_to_read_s("unknown", now_s=1.0) == 0.0
