"""What the engines allow at best, computed: each request goes where it lengthens the completion of all the least.

Before each decision every engine is copied and run to its end, once with the request and once without. All lengths are
known and nothing takes time but the engines, so no real router can be expected to reach it. It is greedy: later
arrivals are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from bench.code_trace import CodeRequest

from sparewatt.testing.engine.batching import BatchedSequence, BatchScheduler

NEVER_S = float("inf")


@dataclass(frozen=True, slots=True)
class RollOut:
    ttft_s: list[float]
    e2e_s: list[float]
    jobs: list[int]
    """By engine."""


def roll_out(engines: Sequence[BatchScheduler], trace: Sequence[CodeRequest]) -> RollOut:
    ended_s: dict[BatchedSequence, float] = {}
    placed: list[BatchedSequence] = []
    jobs = [0] * len(engines)
    for request in trace:
        for engine in engines:
            _advance(engine, request.at_s, ended_s)
        costs = [added_s(engine, request) for engine in engines]
        best = costs.index(min(costs))
        jobs[best] += 1
        placed.append(_submit(engines[best], request))
    for engine in engines:
        _advance(engine, NEVER_S, ended_s)
    return RollOut(
        ttft_s=[(each.first_token_s or NEVER_S) - each.arrived_s for each in placed],
        e2e_s=[ended_s[each] - each.arrived_s for each in placed],
        jobs=jobs,
    )


def added_s(engine: BatchScheduler, request: CodeRequest) -> float:
    """By how much the request lengthens the sum of all completion times on this engine, its own included."""
    without, with_it = deepcopy(engine), deepcopy(engine)
    _submit(with_it, request)
    return _request_s(with_it) - _request_s(without)


def _request_s(engine: BatchScheduler) -> float:
    engine.advance(NEVER_S)
    return engine.load().totals.request_s


def _submit(engine: BatchScheduler, request: CodeRequest) -> BatchedSequence:
    return engine.submit(request.at_s, prompt_tokens=request.prompt_tokens, new_tokens=request.answer_tokens)


def _advance(engine: BatchScheduler, now_s: float, ended_s: dict[BatchedSequence, float]) -> None:
    """The last token of a sequence overwrites the time of those before it."""
    ended_s.update({sequence: at_s for at_s, sequence in engine.advance(now_s) if sequence.is_ended})
