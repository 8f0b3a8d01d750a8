from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.protocol.canonical_json import DEPTH_MAX, EXACT_INTEGER_MAX, canonical_json


def test_names_are_sorted_by_utf_16_as_the_rfc_shows() -> None:
    """The example of RFC 8785, section 3.2.3."""
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    ordered = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]
    assert list(json.loads(canonical_json(value)).values()) == ordered


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ({"b": [1, -2, True, None], "a": {"y": "", "x": 0}}, '{"a":{"x":0,"y":""},"b":[1,-2,true,null]}'),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ("\u007f\u2028", '"\u007f\u2028"'),
        (EXACT_INTEGER_MAX, "9007199254740991"),
    ],
)
def test_a_value_has_one_text(value: Any, text: str) -> None:
    assert canonical_json(value) == text
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "value",
    [1.5, EXACT_INTEGER_MAX + 1, -EXACT_INTEGER_MAX - 1, b"x", {1: "x"}, {"a": {2, 3}}, "\ud800", {"\udfff": 1}],
)
def test_what_has_no_exact_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each has another text)
        canonical_json(value)


def test_a_deep_value_is_refused_before_it_overflows() -> None:
    deep: Any = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        canonical_json(deep)
