from __future__ import annotations

import json

import pytest

from sparewatt.inference.prompt import MEDIA_TOKENS, PromptSize, chat_units, size_of, size_of_texts
from sparewatt.inference.text_units import PromptUnits, TextUnits


def test_a_prompt_is_sized_by_its_bytes() -> None:
    assert size_of([b"x" * 400, b"y" * 80]) == PromptSize(tokens=120, tokens_floor=30)


def test_the_lower_bound_is_never_above_the_estimate() -> None:
    for size in (0, 1, 3, 15, 16, 17, 1000):
        found = size_of([b"x" * size])
        assert 0 <= found.tokens_floor <= found.tokens


def test_the_smallest_prompt_has_one_token() -> None:
    assert size_of([]) == PromptSize(tokens=1, tokens_floor=0)


@pytest.mark.parametrize("kind", [b"image_url", b"input_audio", b"file"])
def test_media_count_by_the_piece_and_not_by_their_bytes(kind: bytes) -> None:
    message = b'{"role":"user","content":[{"type":"' + kind + b'","data":"' + b"x" * 100_000 + b'"}]}'
    assert size_of([message]) == PromptSize(tokens=MEDIA_TOKENS, tokens_floor=0)


def test_text_that_only_speaks_of_media_is_text() -> None:
    message = b'{"role":"user","content":"what is an \\"image_url\\" for?"}'
    assert size_of([message]).tokens == len(message) // 4


def test_texts_are_guessed_and_token_ids_counted() -> None:
    found = size_of_texts(["x" * 400, "y" * 80], [])
    assert (found.tokens, found.tokens_floor) == (120, 25)
    ids, nothing = size_of_texts([], [7, 30]), size_of_texts([""], [])
    assert (ids.tokens, ids.tokens_floor, ids.units) == (37, 30, PromptUnits(messages=2, is_chat=False, ids=37))
    assert (nothing.tokens, nothing.tokens_floor) == (1, 0)


def chat(*contents: object) -> list[bytes]:
    return [json.dumps({"role": "user", "content": content}).encode() for content in contents]


def test_what_a_chat_reads_is_the_text_of_its_messages_not_their_json() -> None:
    escaped, plain = chat("\u4f60\u597d"), ['{"role":"user","content":"\u4f60\u597d"}'.encode()]
    assert chat_units(escaped) == chat_units(plain) == PromptUnits(TextUnits(cjk=2), messages=1)


def test_parts_of_a_message_are_read_and_media_are_counted() -> None:
    parts = [{"type": "text", "text": "Hi 7"}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 999}}]
    found = chat_units(chat(parts, "yes"))
    assert (found.messages, found.media, found.text.english_words, found.text.digits) == (2, 1, 2, 1)


def test_tools_and_calls_of_tools_are_read_as_the_json_that_they_are() -> None:
    tools = b'[{"type":"function"}]'
    call = b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'
    assert chat_units(chat("a"), tools=tools).has_tools
    assert chat_units(chat("a"), tools=tools).text.punctuation > chat_units(chat("a")).text.punctuation
    assert chat_units([call]).text.code_words == 2


def test_a_message_of_another_shape_is_read_as_it_stands() -> None:
    assert chat_units([b'{"content":5,"words":"a b"}']).text.code_words == 4
