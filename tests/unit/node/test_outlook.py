from __future__ import annotations

import pytest

from sparewatt.inference.matcher.entries import Field
from sparewatt.inference.matcher.formula import reading
from sparewatt.inference.matcher.question import Question
from sparewatt.node.outlook import ReadingShare, Turn, Writing, first_token_s, reading_s
from sparewatt.protocol.node import Speed
from tests.unit.inference.nodes import MODEL, a_model, a_table, some_specs

NOW_S = 100.0
SPEED = Speed(prefill_tps=100.0, decode_tps=10.0, ttft_s=0.8)


def a_turn(*, prompt_s: float = 1.0, writing_s: float = 10.0, ago_s: float = 0.0, spoke_s: float | None = None) -> Turn:
    """A job that came `ago_s` before now and, if so, said its first token `spoke_s` before now."""
    first_s = None if spoke_s is None else NOW_S - spoke_s
    return Turn(prompt_s, writing_s, NOW_S - ago_s, first_s)


def expected(*turns: Turn, slots: int = 4, foreign: int = 0) -> float:
    return first_token_s(1.0, a_turn(), turns, slots=slots, foreign=foreign)


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


# the same figures at both ends


def test_node_and_gateway_expect_the_same_reading_time() -> None:
    entries = a_table(1, some_specs(a_model(measured=SPEED))).entries(MODEL)
    assert entries is not None
    fixed_s, token_s = entries.data[Field.READ_FIXED_S, 0], entries.data[Field.READ_TOKEN_S, 0]
    for tokens in (0, 10, 500):
        assert reading_s(SPEED, tokens) == pytest.approx(reading(Question(float(tokens), 1.0), fixed_s, token_s))
    assert reading_s(SPEED, 500) == pytest.approx(0.8 + 4.7)


# what was seen


def test_usual_answers_are_learned_from_what_answers_took() -> None:
    writing = Writing()
    assert writing.typical_s("m", SPEED) == 25.6
    writing.note("m", 5.0)
    assert writing.typical_s("m", SPEED) == 5.0
    writing.note("m", 10.0)
    assert writing.typical_s("m", SPEED) == 6.0
    assert writing.typical_s("other", SPEED) == 25.6


def test_the_share_of_reading_rises_while_reading_and_fades_after() -> None:
    share = ReadingShare()
    share.note(is_reading=True, now_s=0.0)
    assert share.value == 0.0
    share.note(is_reading=True, now_s=100.0)
    assert share.value == 1.0
    share.note(is_reading=False, now_s=100.0)
    share.note(is_reading=False, now_s=115.0)
    assert share.value == 0.37
    share.note(is_reading=False, now_s=90.0)  # a clock that stumbles changes nothing
    assert share.value == 0.37
