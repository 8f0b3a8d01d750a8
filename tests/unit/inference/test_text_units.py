"""What a reader can see is counted; what a node could hide in a text is not."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.text_units import (
    NOTHING,
    SAMPLED_CHARS_MIN,
    CompletionUnits,
    PromptUnits,
    TextUnits,
    units_of,
    units_of_json,
)

ENGLISH = "The cat and the dog went to the end of the garden, and it is said that they came back to the house."
GERMAN = "Heute gehen wir alle zusammen durch den alten Wald spazieren, weil das Wetter endlich wieder gut wird als je."


def total(units: TextUnits) -> int:
    return sum(msgspec.structs.astuple(units))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NOTHING),
        ("Yes.", TextUnits(english_words=1, english_letters=3, punctuation=1)),
        ("42", TextUnits(digits=2)),
        ("你好、世界", TextUnits(cjk=5)),
        ("ひらがな", TextUnits(cjk=4)),
        ("Привет", TextUnits(two_byte=6)),
        ("नमस्ते", TextUnits(three_byte=6)),
        ("서울", TextUnits(three_byte=2)),
        ("😀🚀", TextUnits(symbols=2)),
        ("❤\ufe0f", TextUnits(symbols=2)),
        ("👩\u200d💻", TextUnits(symbols=3)),
        ("né", TextUnits(english_words=1, english_letters=2, accents=1)),
        ("getName(x);", TextUnits(code_words=3, code_letters=8, punctuation=3)),
    ],
)
def test_each_script_has_its_count(text: str, expected: TextUnits) -> None:
    assert units_of(text) == expected


def test_languages_are_told_apart_once_there_are_enough_words() -> None:
    assert units_of(ENGLISH).english_words == 23
    assert units_of(GERMAN).english_words == 0
    assert units_of(GERMAN).words == 19
    assert units_of("Ja, gerne.").english_words == 2


@pytest.mark.parametrize(
    "hidden",
    ["\u200b", "\u200d", "\ufeff", "\u2060", "\u00ad", "\ufe0f", "\x00", "\x1b", "\u034f", "\U000e0041", "\u3164"],
)
def test_what_nobody_sees_counts_nothing(hidden: str) -> None:
    assert units_of("Yes" + hidden * 5_000) == units_of("Yes")
    assert units_of(hidden.join("Yes")) == units_of("Yes")
    assert units_of(hidden) == NOTHING


@pytest.mark.parametrize("pad", [" " * 5_000, "\n" * 5_000, "\n \t" * 2_000, "\u3000" * 99, "\u00a0" * 99])
def test_a_run_of_whitespace_counts_once(pad: str) -> None:
    assert total(units_of(f"a{pad}b")) <= total(units_of("a b")) + 1
    assert total(units_of(pad)) <= 1


def test_marks_stacked_on_a_letter_count_twice_at_most() -> None:
    flooded = "".join(letter + "\u0301\u0302\u0303\u0304\u0305" * 40 for letter in "Yes")
    assert units_of(flooded).accents == 6
    assert units_of("e\u0301").accents == 1


def test_joiners_count_where_emoji_need_them_and_once() -> None:
    assert units_of("👩" + "\u200d" * 500 + "💻").symbols == 3
    assert units_of("a\u200db").symbols == 0


def test_look_alike_letters_within_a_word_are_letters() -> None:
    assert units_of("H\u0435ll\u043e w\u043erld") == units_of("Hello world")


def test_a_long_run_of_punctuation_counts_a_quarter() -> None:
    assert units_of("=" * 800).punctuation == 200
    assert units_of("=====").punctuation == 5


@pytest.mark.parametrize("text", [ENGLISH, "你好世界。", "a = b[0]; "])
def test_a_very_long_text_is_sampled(text: str) -> None:
    times = SAMPLED_CHARS_MIN // len(text) * 4
    sampled, counted = total(units_of(text * times)), total(units_of(text * 400)) * times / 400
    assert sampled == pytest.approx(counted, rel=0.02)


def test_escapes_are_the_characters_that_they_stand_for() -> None:
    assert units_of_json(rb"\u0059\u0065\u0073\u002e") == units_of("Yes.")
    assert units_of_json(b'a\\n\\"b') == units_of('a\n"b')
    assert units_of_json(rb"\ud83d\ude00") == units_of("😀")


@pytest.mark.parametrize("broken", [rb"\ud800", rb"\u00", b"\xff", b'a"b'])
def test_a_text_that_nobody_can_decode_counts_nothing(broken: bytes) -> None:
    assert units_of_json(broken) == NOTHING


@given(st.text(max_size=60))
def test_no_text_has_more_units_than_twice_its_characters(text: str) -> None:
    """Each character is in a script, and may begin a word or a run."""
    assert 0 <= total(units_of(text)) <= 2 * len(text) + 1


@given(st.text(st.characters(categories=["Cf", "Cc"], exclude_characters="\t\n\r\x0b\x0c"), max_size=40))
def test_no_run_of_invisible_characters_has_units_whichever_they_are(text: str) -> None:
    shown = [char for char in text if unicodedata.category(char) == "Cf" and 0x600 <= ord(char) <= 0x110CD]
    assert total(units_of(text)) <= len(shown)  # signs of numbers in Arabic and the like are visible


def test_units_add_up_and_make_a_vector() -> None:
    both = units_of("Yes.") + units_of("你好")
    assert (both.english_words, both.cjk) == (1, 2)
    assert both.scaled(2.0).cjk == 4
    assert len(CompletionUnits(both).vector()) == len(PromptUnits(both).vector())
    assert CompletionUnits(both, choices=3).vector()[0] == 3
    assert CompletionUnits().is_empty
    assert not CompletionUnits(tool_calls=1).is_empty
