from __future__ import annotations

import sys

import pytest

from sparewatt.core.errors import BadRequest, InvalidField, StartupError, UnknownField
from sparewatt.policy.model import Policy, Range
from sparewatt.policy.policy_file import POLICY_DOCUMENT, error_line, read_policy_file

NORWAY = Policy(region=frozenset({"NO"}))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("region: [NO]", NORWAY),
        ("policy:\n  region:\n    - NO\n", NORWAY),
        ('{"region": ["NO"]}', NORWAY),
        ("{region: [NO]}", NORWAY),
        ("allow_resume: true\nuptime: 0.9", Policy(allow_resume=True, uptime=Range(low=0.9))),
        ("gpu_count: 2", Policy(gpu_count=Range(low=2.0, high=2.0))),
        ('only: ["007"]', Policy(only=frozenset({"007"}))),
        ("", Policy()),
        ("region: ~", Policy()),
    ],
)
def test_a_policy_file_is_read(text: str, policy: Policy) -> None:
    assert read_policy_file(text).policy == policy


@pytest.mark.parametrize(
    "text",
    [
        "region: [EU",
        "region: [EU]\nregion: [US]",
        '{"region": ["EU"], "region": ["US"]}',
        "? [a, b]\n: 1",
        "- region",
        "[" * 5000,
        "a: &a [x]\nb: &b [" + "*a," * 99 + "*a]\nc: [" + "*b," * 99 + "*b]",
        "allow_resume: yes please",
        "region: !!python/object:os.system [EU]\nx: 1",
        "x" * (POLICY_DOCUMENT.chars_max + 1),
    ],
)
def test_a_bad_policy_file_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        read_policy_file(text)


def test_a_typo_in_a_file_is_named() -> None:
    with pytest.raises(UnknownField, match="'region'") as caught:
        read_policy_file("policy: {regoin: [EU]}")
    assert caught.value.param == "policy.regoin"


def test_json_needs_nothing_installed_and_yaml_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read_policy_file('{"region": ["NO"]}').policy == NORWAY
    with pytest.raises(StartupError, match=r"sparewatt\[yaml\]"):
        read_policy_file("region: [NO]")


def test_a_value_of_the_wrong_type_in_a_file_is_named() -> None:
    with pytest.raises(InvalidField) as caught:
        read_policy_file("uptime: [0.9]")
    assert caught.value.param == "policy.uptime"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("region: [EU]\nregoin: EU\n", 2),
        ("policy:\n  region: EU\n  uptime: [0.9]\n", 3),
        ("region: [EU\nuptime: 1\n", 2),
        ('{"region": "EU",\n "regoin": "EU"}', 2),
        ("[1, 2]", None),
    ],
)
def test_an_error_in_a_file_has_its_line(text: str, line: int | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read_policy_file(text)
    assert error_line(text, caught.value) == line
