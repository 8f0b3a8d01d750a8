"""Prompts of the network's own making."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.trust.checks.probe_prompts import OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_MIN, SEED_BYTES, draw_probe

seeds = st.binary(min_size=SEED_BYTES, max_size=SEED_BYTES)


@given(seeds, st.lists(st.integers(1, 10_000), max_size=5))
def test_a_seed_gives_the_same_prompt_again_within_the_bounds(seed: bytes, limits: list[int]) -> None:
    prompt = draw_probe(seed, limits=limits)
    assert prompt == draw_probe(seed, limits=limits)
    assert OUTPUT_TOKENS_MIN <= prompt.max_tokens <= OUTPUT_TOKENS_MAX
    body = prompt.request("m")
    assert body["temperature"] == 0
    assert body["messages"][-1]["role"] == "user"
    assert "{" not in body["messages"][-1]["content"], "every blank is filled in"


def test_hardly_any_two_prompts_are_the_same_and_they_vary_in_form() -> None:
    prompts = [draw_probe(bytes([*number.to_bytes(2, "big"), *bytes(14)])) for number in range(2_000)]
    assert len({prompt.messages for prompt in map(_hashable, prompts)}) > 1_950
    assert {prompt.stream for prompt in prompts} == {True, False}
    assert {len(prompt.messages) for prompt in prompts} == {1, 2, 3, 4}
    names = {name for prompt in prompts for name, _ in prompt.options}
    assert {"max_tokens", "max_completion_tokens", "top_p", "user"} <= names


def test_the_limit_follows_what_clients_ask_for() -> None:
    assert {draw_probe(bytes([number, *bytes(15)]), limits=[50]).max_tokens for number in range(20)} == {50}


class _Hashable:
    def __init__(self, messages: tuple[str, ...]) -> None:
        self.messages = messages


def _hashable(prompt: object) -> _Hashable:
    return _Hashable(tuple(str(message) for message in prompt.messages))  # type: ignore[attr-defined]
