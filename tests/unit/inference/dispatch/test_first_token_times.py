"""The slowest of a hundred first tokens of a model, for prompts of like length."""

from __future__ import annotations

from sparewatt.inference.dispatch.first_token_times import (
    MODELS_MAX,
    TIMES_KEPT,
    TIMES_MIN,
    FirstTokenTimes,
    length_class,
)


def test_few_times_say_nothing() -> None:
    times = FirstTokenTimes()
    for _ in range(TIMES_MIN - 1):
        times.add("a", 500, 0.5)
    assert times.p99_s("a", 500) is None
    times.add("a", 500, 0.5)
    assert times.p99_s("a", 500) == 0.5


def test_it_is_the_slowest_but_one_of_a_hundred() -> None:
    times = FirstTokenTimes()
    for number in range(TIMES_KEPT):
        times.add("a", 500, float(number))
    assert times.p99_s("a", 500) == TIMES_KEPT * 99 // 100


def test_prompts_of_another_length_and_other_models_do_not_count() -> None:
    times = FirstTokenTimes()
    for _ in range(TIMES_MIN):
        times.add("a", 500, 0.5)
    assert times.p99_s("a", 600) is None or length_class(600) == length_class(500)
    assert times.p99_s("a", 50_000) is None
    assert times.p99_s("b", 500) is None


def test_old_times_fade() -> None:
    times = FirstTokenTimes()
    for took_s in [9.0] * TIMES_KEPT + [1.0] * TIMES_KEPT:
        times.add("a", 500, took_s)
    assert times.p99_s("a", 500) == 1.0


def test_models_are_bounded_and_those_in_use_stay() -> None:
    times = FirstTokenTimes()
    for number in range(MODELS_MAX + 50):
        for _ in range(TIMES_MIN):
            times.add("in use", 500, 0.5)
        times.add(f"other-{number}", 500, 0.5)
    assert len(times._times_s) == MODELS_MAX
    assert times.p99_s("in use", 500) == 0.5


def test_a_class_spans_a_factor_of_four() -> None:
    assert length_class(-1) == length_class(0) == 0
    assert length_class(4096) - length_class(1024) == 1
