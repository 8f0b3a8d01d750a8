"""The computed floor of `make bench-servers`."""

from __future__ import annotations

import pytest
from bench.code_trace import CodeRequest
from bench.rollout import added_s, roll_out

from sparewatt.testing.engine.batching import BatchLimits, BatchScheduler, StepCurve


def engine(prefill_token_s: float) -> BatchScheduler:
    limits = BatchLimits(kind="batching", seqs_max=4, chunk_tokens=1000, context_length=4096, kv_tokens=8192)
    return BatchScheduler(limits, StepCurve(step_s=0.01, prefill_token_s=prefill_token_s))


def request(at_s: float, *, prompt: int = 1000, answer: int = 1) -> CodeRequest:
    return CodeRequest(at_s, prompt, answer, "")


def test_a_lone_request_goes_to_the_fastest_engine() -> None:
    found = roll_out([engine(0.001), engine(0.0001)], [request(0.0, answer=3)])

    assert found.jobs == [0, 1]
    assert found.ttft_s == [pytest.approx(0.1)]
    assert found.e2e_s == [pytest.approx(0.12)]


def test_a_slower_engine_is_taken_when_the_fast_one_is_busy_for_longer() -> None:
    found = roll_out([engine(0.0002), engine(0.0001)], [request(0.0) for _ in range(3)])

    assert found.jobs == [1, 2]


def test_the_harm_to_others_counts() -> None:
    """Reading beside three writers holds each of them up."""
    busy, idle = engine(0.0001), engine(0.00015)
    for _ in range(3):
        busy.submit(0.0, prompt_tokens=10, new_tokens=200)
    busy.advance(0.5)
    late = request(0.5)

    assert added_s(busy, late) > added_s(idle, late)


def test_the_engines_themselves_are_not_changed_by_trying() -> None:
    tried = engine(0.001)
    added_s(tried, request(0.0))

    assert tried.due_s is None
    assert tried.load().totals.requests == 0
