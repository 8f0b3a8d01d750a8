"""Bodies of very many small values are refused before they are decoded; characters within texts do not count."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import BodyTooLarge
from sparewatt.protocol.openai.chat import BODY_TOP_FIELDS_MAX, fields_of, parse_chat, parse_plain
from sparewatt.protocol.openai.json_complexity import (
    BODY_FIELDS_MAX,
    BODY_VALUES_MAX,
    JsonComplexityCheck,
    refuse_complex,
)


def fields(count: int) -> bytes:
    return b"{%b}" % b",".join(b'"k%d":1' % number for number in range(count))


def values(count: int) -> bytes:
    return b"[%b]" % b",".join([b"1"] * count)


@pytest.mark.parametrize(("make", "most"), [(fields, BODY_FIELDS_MAX), (values, BODY_VALUES_MAX)])
def test_the_limit_is_allowed_and_one_more_is_not(make: Callable[[int], bytes], most: int) -> None:
    refuse_complex(make(most))
    with pytest.raises(BodyTooLarge, match=f"more than {most:,}"):
        refuse_complex(make(most + 1))


@pytest.mark.parametrize(
    "text",
    [",:" * BODY_VALUES_MAX, '","a":' * BODY_VALUES_MAX, '\\",:' * BODY_VALUES_MAX, "\\" * BODY_VALUES_MAX + '",:'],
    ids=["marks", "quotes", "escapes", "backslashes"],
)
def test_marks_within_texts_do_not_count(text: str) -> None:
    refuse_complex(json.dumps({"content": text}).encode())


@pytest.mark.parametrize("text", ['"', '"\\', '"' * 100_000, '"' + ",:" * BODY_VALUES_MAX])
def test_an_unterminated_text_is_left_to_the_decoder(text: str) -> None:
    refuse_complex(b" " * BODY_FIELDS_MAX + text.encode())


def test_fields_are_counted_however_deep_and_however_spaced() -> None:
    deep = b"[%b]" % b" , ".join([b'{"a" : {"b"\n:\t1}}'] * (BODY_FIELDS_MAX // 2 + 1))
    with pytest.raises(BodyTooLarge):
        refuse_complex(deep)


def test_the_shortest_fields_are_counted_too() -> None:
    shortest = b"{%b}" % b",".join([b'"":0'] * (BODY_FIELDS_MAX + 1))
    with pytest.raises(BodyTooLarge):
        refuse_complex(shortest)
    with pytest.raises(BodyTooLarge):
        parse_plain(b'{"model": "m", "messages": [%b]}' % shortest)


def test_a_single_piece_over_the_limit_is_refused() -> None:
    body = fields(BODY_FIELDS_MAX + 1)
    with pytest.raises(BodyTooLarge):
        JsonComplexityCheck().feed(body)


def test_a_complex_chat_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        parse_chat(b'{"model": "m", "messages": [{}], "x": %b}' % fields(BODY_FIELDS_MAX))


def test_the_top_level_may_have_fewer_fields() -> None:
    assert len(fields_of(fields(BODY_TOP_FIELDS_MAX))) == BODY_TOP_FIELDS_MAX
    with pytest.raises(BodyTooLarge, match="at its top"):
        fields_of(fields(BODY_TOP_FIELDS_MAX + 1))


def test_a_body_in_pieces_is_refused_as_soon_as_there_is_too_much_of_it() -> None:
    check, seen, body = JsonComplexityCheck(), [], fields(4 * BODY_FIELDS_MAX)

    def receive() -> None:
        for at in range(0, len(body), 1000):
            seen.append(body[at : at + 1000])
            check.feed(seen[-1])

    with pytest.raises(BodyTooLarge):
        receive()
    assert b"".join(seen).count(b":") < BODY_FIELDS_MAX + 1000


@given(
    texts=st.lists(st.text(alphabet='",:\\n€', max_size=8), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_counts_do_not_depend_on_where_a_body_is_cut(texts: list[str], cuts: list[int]) -> None:
    body = json.dumps({text: [text, 1] for text in texts}, separators=(",", ":"), ensure_ascii=False).encode()
    fields_in = len(json.loads(body))
    check, outside = JsonComplexityCheck(), b""
    for cut in itertools.cycle(cuts):
        outside += check._outside_texts(body[:cut])
        body = body[cut:]
        if not body:
            break
    assert outside.count(b":") == fields_in
    assert outside.count(b",") == fields_in + max(fields_in - 1, 0)
