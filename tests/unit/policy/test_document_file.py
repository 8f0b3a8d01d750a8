from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField
from sparewatt.policy.document_file import DocumentKind, error_line, load_document

KIND = DocumentKind(noun="order", chars_max=20_000, depth_max=6, nodes_max=500)
BOMB = "\n".join(
    [
        "a: &a [x, x, x, x, x, x, x, x, x]",
        *(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    ]
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("image: a:1\nports: [80]", {"image": "a:1", "ports": [80]}),
        ('{"image": "a"}', {"image": "a"}),
        ("{image: a}", {"image": "a"}),
        ("region: NO\ncount: '3'", {"region": "NO", "count": "3"}),
        ("", None),
        ("x: &x 1\ny: *x", {"x": 1, "y": 1}),
    ],
)
def test_yaml_and_json_are_read(text: str, value: Any) -> None:
    assert load_document(text, KIND) == value


@pytest.mark.parametrize(
    "text",
    [
        "x" * 20_001,
        BOMB,
        "x: &x [*x]",
        "[" * 5_000,
        "a: " * 3_000,
        "{" * 40 + "}" * 40,
        "image: a\nimage: b",
        '{"image": "a", "image": "b"}',
        "image: [",
        "? [a]\n: b",
        "!!python/object/apply:os.system ['true']: 1\n? {a: b}\n: c",
    ],
    ids=[
        "long",
        "aliases",
        "a loop",
        "brackets",
        "colons",
        "braces",
        "twice",
        "twice in JSON",
        "open",
        "key",
        "object",
    ],
)
def test_a_bomb_is_refused_soon(text: str) -> None:
    """Without bounds it would take minutes, or all memory."""
    with pytest.raises(BadRequest):
        load_document(text, KIND)


def test_a_tag_makes_no_object() -> None:
    assert load_document("a: !!python/object/apply:os.getcwd []", KIND) == {"a": []}


def test_errors_name_the_file_and_its_bounds() -> None:
    with pytest.raises(InvalidField, match="Order files have at most 20,000 characters"):
        load_document("x" * 20_001, KIND)
    with pytest.raises(BadRequest, match="The order is not valid YAML"):
        load_document("a: [", KIND)


@pytest.mark.parametrize(
    ("text", "param", "line"),
    [
        ("a: 1\ncount: 9", "count", 2),
        ("order:\n  count: 9", "order.count", 2),
        ("a: 1\nresources:\n  cpus: 9", "resources.cpus", 2),
        ("a: 1", "count", None),
        ("a: 1", None, None),
    ],
)
def test_an_error_has_its_line(text: str, param: str | None, line: int | None) -> None:
    assert error_line(text, BadRequest("x", param=param), root="order") == line


def test_a_syntax_error_has_its_line() -> None:
    with pytest.raises(BadRequest) as caught:
        load_document("a: 1\nb: [\n", KIND)
    assert error_line("a: 1\nb: [\n", caught.value, root="order") == 3
