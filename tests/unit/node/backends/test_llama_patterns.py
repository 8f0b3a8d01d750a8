"""Patterns as llama.cpp's grammars have them, and those that they cannot hold."""

from __future__ import annotations

import re

import pytest

from sparewatt.node.backends.llama_patterns import PatternNotHeld, held_pattern, with_held_patterns


@pytest.mark.parametrize(
    ("pattern", "held"),
    [
        (r"^a{2,3}$", r"^a{2,3}$"),
        (r"^\d{3}$", r"^[0-9]{3}$"),
        (r"^[\w.]+$", r"^[A-Za-z0-9_.]+$"),
        (r"^[^\d]+$", r"^[^\"\\0-9]+$"),
        (r"^\S$", r"^[^\"\\ \t\r\n]$"),
        (r"^.$", r"^[^\"\\\r\n]$"),
        (r"^a\.b$", r"^a\.b$"),
        (r"^[.]$", r"^[.]$"),
        (r"^a+?b??$", r"^a+b?$"),
        (r"^(?P<year>\d)(?<day>\d)(?:x)$", r"^([0-9])([0-9])(?:x)$"),
        (r"a|b", r"^[^\"\\\r\n]*(a|b)[^\"\\\r\n]*$"),
        (r"^a", r"^(a)[^\"\\\r\n]*$"),
        (r"a$", r"^[^\"\\\r\n]*(a)$"),
        (r"^a\$", r"^(a\$)[^\"\\\r\n]*$"),
    ],
)
def test_a_pattern_is_written_in_words_that_it_has(pattern: str, held: str) -> None:
    assert held_pattern(pattern) == held


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [(r"^\d{3}$", ["123"]), (r"b+", ["abc", "b"]), (r"^\w+@\w+$", ["a@b"]), (r"^[^a]$", ["x"]), (r"x$", ["yx"])],
)
def test_what_it_lets_through_matches_the_pattern(pattern: str, texts: list[str]) -> None:
    for text in texts:
        assert re.fullmatch(held_pattern(pattern)[1:-1], text)
        assert re.search(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [r"^(?=a)b$", r"^(?!a)b$", r"^(?<=a)b$", r"^(?i)a$", r"^(a)\1$", r"^a\b$", r"^\p{L}$", r"^a^b$", "^[\\D]$", "a\\"],
)
def test_one_that_it_cannot_hold_is_refused(pattern: str) -> None:
    with pytest.raises(PatternNotHeld):
        held_pattern(pattern)


def test_patterns_are_found_in_schemas_alone() -> None:
    schema = {
        "properties": {"pattern": {"type": "string", "pattern": r"^\d$"}, "b": {"anyOf": [{"pattern": r"^\s$"}]}},
        "enum": [{"pattern": r"\d"}],
    }
    body = {"messages": [{"pattern": r"\d"}], "response_format": {"json_schema": {"schema": schema}}, "tools": []}
    held = with_held_patterns(body)
    assert held["messages"] == body["messages"]
    found = held["response_format"]["json_schema"]["schema"]
    assert found["properties"]["pattern"]["pattern"] == "^[0-9]$"
    assert found["properties"]["b"]["anyOf"][0]["pattern"] == r"^[ \t\r\n]$"
    assert found["enum"] == schema["enum"]
