"""How many tokens of a prompt the built-in server reads at once: a short time's worth, whatever the weights."""

from __future__ import annotations

import pytest

from sparewatt.node.backends.llama_server import (
    BATCH_S,
    BATCH_TOKENS_MAX,
    BATCH_TOKENS_MIN,
    CPU_BYTES_S,
    batch_tokens,
)

MB = 10**6


@pytest.mark.parametrize(
    ("weights_bytes", "tokens"), [(98 * MB, 32), (400 * MB, 8), (5000 * MB, BATCH_TOKENS_MIN), (0, BATCH_TOKENS_MAX)]
)
def test_larger_weights_are_read_in_shorter_batches(weights_bytes: int, tokens: int) -> None:
    assert batch_tokens(weights_bytes, slots=4, has_gpu=False) == tokens


@pytest.mark.parametrize("weights_bytes", [10 * MB, 98 * MB, 135 * MB, 400 * MB])
def test_a_batch_of_a_slow_core_takes_no_longer_than_it_may(weights_bytes: int) -> None:
    tokens = batch_tokens(weights_bytes, slots=1, has_gpu=False)
    assert tokens * weights_bytes / CPU_BYTES_S <= BATCH_S


def test_a_batch_has_room_for_a_token_of_every_slot() -> None:
    assert batch_tokens(5000 * MB, slots=24, has_gpu=False) == 24


def test_a_gpu_gets_the_usual_batch() -> None:
    assert batch_tokens(5000 * MB, slots=4, has_gpu=True) == BATCH_TOKENS_MAX
