"""Two answers, compared piece by piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.trust.checks.comparison import PIECES_MAX, Comparison, compare, digest_of, pieces_of


@given(st.text(max_size=200))
def test_the_pieces_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text


def test_a_long_answer_is_compared_up_to_a_bound() -> None:
    assert len(pieces_of("a " * (PIECES_MAX + 5))) == PIECES_MAX


def test_a_word_keeps_the_space_before_it_and_long_words_are_cut() -> None:
    assert pieces_of("To be, incomprehensibly") == ("To", " be", ",", " incompre", "hensibly")


def test_the_first_difference_counts_and_what_follows_does_not() -> None:
    assert compare(("a", "b", "c"), ("a", "x", "c")) == Comparison(1, differs=True)
    assert compare(("a", "b"), ("a", "b")) == Comparison(2, differs=False)
    assert compare((), ()).position is None


def test_an_answer_that_stops_early_differs_where_it_ends() -> None:
    assert compare(("a",), ("a", "b")).position == 1


@given(st.lists(st.text(max_size=3), max_size=8), st.lists(st.text(max_size=3), max_size=8))
def test_a_comparison_does_not_depend_on_the_order(one: list[str], other: list[str]) -> None:
    assert compare(one, other) == compare(other, one)
    assert (not compare(one, other).differs) == (one == other)


def test_digests_tell_answers_apart_that_are_cut_differently() -> None:
    assert digest_of(("ab", "c")) != digest_of(("a", "bc"))
