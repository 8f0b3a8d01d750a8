"""The trace of `make bench-servers`: repeatable, of the promised sizes, and in bursts."""

from __future__ import annotations

import pytest
from bench.code_trace import (
    ANSWER_MAX,
    ANSWER_MEAN,
    ANSWER_MIN,
    PROMPT_MAX,
    PROMPT_MEAN,
    PROMPT_MIN,
    burstiness,
    chat_tokens,
    code_sizes,
    code_trace,
    prompt_of,
)

from sparewatt.testing import expected_text, render_chat, tokenize


def test_a_seed_gives_the_same_trace_again_and_another_one_does_not() -> None:
    one, again, other = (code_trace(rate=5.0, duration_s=10.0, seed=seed) for seed in (3, 3, 4))

    assert one == again
    assert one != other


def test_the_rate_changes_the_moments_only() -> None:
    slow, fast = (code_trace(rate=rate, duration_s=60.0 / rate, seed=1) for rate in (2.0, 20.0))

    assert [(each.prompt, each.answer_tokens) for each in slow] == [(each.prompt, each.answer_tokens) for each in fast]
    assert [each.at_s for each in slow] == pytest.approx([10 * each.at_s for each in fast])


def test_as_many_requests_come_as_the_rate_says() -> None:
    trace = code_trace(rate=7.0, duration_s=30.0, seed=1)

    assert len(trace) == 210
    assert trace[-1].at_s == pytest.approx(30.0)
    assert [each.at_s for each in trace] == sorted(each.at_s for each in trace)


def test_sizes_are_within_their_bounds_and_near_their_means() -> None:
    sizes = code_sizes(4000, seed=1)
    prompts, answers = [size[0] for size in sizes], [size[1] for size in sizes]

    assert PROMPT_MIN <= min(prompts) < max(prompts) <= PROMPT_MAX
    assert ANSWER_MIN <= min(answers) < max(answers) <= ANSWER_MAX
    assert sum(prompts) / len(prompts) == pytest.approx(PROMPT_MEAN, rel=0.1)
    assert sum(answers) / len(answers) == pytest.approx(ANSWER_MEAN, rel=0.1)


def test_arrivals_come_in_bursts() -> None:
    assert burstiness(code_trace(rate=20.0, duration_s=60.0, seed=1)) > 1.5


@pytest.mark.parametrize(("prompt_tokens", "answer_tokens"), [(64, 2), (1500, 30), (7000, 400)])
def test_a_prompt_has_exactly_its_tokens_and_gets_exactly_its_answer(prompt_tokens: int, answer_tokens: int) -> None:
    prompt = prompt_of(12, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
    answer = expected_text(render_chat([{"role": "user", "content": prompt}]))

    assert chat_tokens(prompt) == prompt_tokens
    assert len(tokenize(answer)) == answer_tokens
