from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from sparewatt.core.errors import BadRequest, InvalidField
from sparewatt.leasing.orders.order_fields import read_order
from sparewatt.leasing.orders.order_file import ORDER_DOCUMENT, error_line, read_order_file
from sparewatt.leasing.orders.terms import LOCAL_TIMES, terms_of
from tests.unit.leasing.orders.samples import ICL, SDL

OURS = "image: a:1\nresources:\n  gpus: 0\npolicy:\n  region: [NO]\n"


@pytest.mark.parametrize(
    "text",
    [
        OURS,
        f"order:\n  {OURS.replace(chr(10), chr(10) + '  ')}",
        "{image: a:1, resources: {gpus: 0}, policy: {region: [NO]}}",
    ],
)
def test_our_own_format_is_read(text: str) -> None:
    file = read_order_file(text)
    assert (file.fields, file.notes, file.format) == (
        {"image": "a:1", "resources": {"gpus": 0}, "policy": {"region": ["NO"]}},
        (),
        "order",
    )
    assert read_order(file.fields).gpus == 0


def test_json_is_read_as_well() -> None:
    fields = {"image": "a", "env": {"A": "x"}, "policy": "region=EU"}
    assert read_order_file(json.dumps(fields)).fields == fields


@pytest.mark.parametrize(("text", "name"), [(SDL, "Akash SDL"), (ICL, "Spheron ICL")])
def test_other_formats_are_told_by_their_version(text: str, name: str) -> None:
    assert read_order_file(text).format == name


@pytest.mark.parametrize(
    "text", ["", "- a", "nginx", "order: 3", "order:", SDL.replace('"2.0"', '"3.0"'), "services: {}"]
)
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        read_order_file(text)


def test_the_examples_of_the_documentation_are_orders() -> None:
    """Those that are whole: the ICL's shows only what differs from an SDL."""
    root = Path(__file__).parents[4] / "docs"
    pages = [root / "reference" / "leases.md", root / "how-to" / "rent-a-gpu.md"]
    texts = [dedent(text) for page in pages for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
    whole = [text for text in texts if "image:" in text]
    assert len(whole) == 3
    for text in whole:
        order = read_order(read_order_file(text).fields)
        terms_of(order, max_price_uusd=10**6, times=LOCAL_TIMES)


def test_the_newer_format_of_spheron_is_told_from_an_sdl() -> None:
    text = 'version: "2.0"\nservices:\n  web: {image: nginx, replica: 1, resources: {cpu: {units: 1}}}\n'
    with pytest.raises(InvalidField, match="Spheron ICL of version"):
        read_order_file(text)


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(InvalidField, match="98,304 characters"):
        read_order_file("image: " + "a" * ORDER_DOCUMENT.chars_max)


def test_an_alias_bomb_is_refused() -> None:
    lines = ["image: a", "a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]
    with pytest.raises(BadRequest, match="too large"):
        read_order_file("\n".join(lines))


def test_an_error_of_a_field_has_its_line() -> None:
    with pytest.raises(InvalidField) as caught:
        read_order(read_order_file("image: a\ncount: -3\n").fields)
    assert error_line("image: a\ncount: -3\n", caught.value) == 2
