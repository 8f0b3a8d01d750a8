"""How big is a prompt? Guessed from its bytes: a tokenizer on the request path would cost more than the match."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

BYTES_PER_TOKEN = 4
"""English prose and code lie near 4; the guess only steers, the node counts."""

BYTES_PER_TOKEN_AT_MOST = 16
"""No tokenizer in use packs more than this into its average token, so bytes / 16 is a safe lower bound."""

MEDIA_TOKENS = 1_000
"""An image or sound stands for about this many, however long its data URI is."""

_MEDIA = (b'"image_url"', b'"input_audio"', b'"file"')


class PromptSize(msgspec.Struct, frozen=True):
    tokens: int
    tokens_floor: int


def size_of(messages: Iterable[bytes], *, is_text: bool = False) -> PromptSize:
    """Estimate and lower bound for messages given as raw JSON; `is_text` if none of them holds anything else."""
    tokens = floor = 0
    for message in messages:
        n_bytes = len(message)
        if not is_text and has_media(message):
            tokens += MEDIA_TOKENS
        else:
            tokens += n_bytes // BYTES_PER_TOKEN
            floor += n_bytes // BYTES_PER_TOKEN_AT_MOST
    return PromptSize(max(1, tokens), floor)


def size_of_texts(strings: Iterable[str], id_counts: Iterable[int]) -> PromptSize:
    """Of prompts without messages: texts are guessed, token ids are counted."""
    counted = list(id_counts)
    sizes = [len(text.encode()) for text in strings]
    tokens = sum(counted) + sum(size // BYTES_PER_TOKEN for size in sizes)
    # Each text has the context to itself: the longest must fit, not all together.
    floor = max([*counted, *(size // BYTES_PER_TOKEN_AT_MOST for size in sizes)], default=0)
    return PromptSize(max(1, tokens), floor)


def has_media(message: bytes) -> bool:
    """Whether a raw message holds an image, a sound or a file, whose bytes say nothing about its tokens."""
    image, sound, file = _MEDIA
    return image in message or sound in message or file in message
