from __future__ import annotations

import pytest

from sparewatt.inference.prompt import MEDIA_TOKENS, PromptSize, size_of, size_of_texts


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
    assert size_of_texts(["x" * 400, "y" * 80], []) == PromptSize(tokens=120, tokens_floor=25)
    assert size_of_texts([], [7, 30]) == PromptSize(tokens=37, tokens_floor=30)
    assert size_of_texts([""], []) == PromptSize(tokens=1, tokens_floor=0)
