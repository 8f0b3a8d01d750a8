"""Jobs from a trace that knows which prompts begin alike: conversations repeated whole, to reach a rate.

A further copy of a conversation is somebody else's: same times (within a second) and sizes, other text. All turns of a
conversation go to the same model and come from the same place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.scenario import JOB_FAILS, Scenario, SimModel
from sparewatt.sim.traffic.trace import TraceRequest

JITTER_S = 1.0
OPENING = 2
"""Blocks that tell conversations apart: the first is often a system prompt that many share."""


class ConversationTurn(NamedTuple):
    """One request of one copy of a conversation."""

    at_s: float
    copy: int
    model: SimModel
    region: int
    request: TraceRequest


def repeat_conversations(
    window: Sequence[TraceRequest], scenario: Scenario, *, copies: float, start_s: float, seed: int
) -> list[SimJob]:
    """About `copies` of every conversation; of the last one only some."""
    turns = list(_turns(window, scenario, copies=copies, seed=seed))
    rng = random.Random(f"jobs {seed}")
    turns = [turn._replace(at_s=turn.at_s - start_s + rng.random() * JITTER_S) for turn in turns]
    turns.sort(key=lambda turn: turn.at_s)
    return [
        SimJob(
            number=number,
            model=turn.model,
            arrived_s=turn.at_s,
            prompt_tokens=turn.request.input_tokens,
            output_tokens=max(1, turn.request.output_tokens),
            region=turn.region,
            fails=rng.random() < JOB_FAILS,
            prefix=_named(turn, n_models=len(scenario.models), n_copies=math.ceil(copies)),
        )
        for number, turn in enumerate(turns)
    ]


def _turns(
    window: Sequence[TraceRequest], scenario: Scenario, *, copies: float, seed: int
) -> Iterator[ConversationTurn]:
    popularity = [model.popularity for model in scenario.models]
    for request in window:
        for copy in range(math.ceil(copies)):
            rng = random.Random(f"talk {seed} {copy} {request.prefix_blocks[:OPENING]}")
            if copy < int(copies) or rng.random() < copies % 1:
                model = rng.choices(scenario.models, popularity)[0]
                region = rng.choices(range(len(scenario.regions)), scenario.user_shares)[0]
                yield ConversationTurn(request.at_s, copy, model, region, request)


def _named(turn: ConversationTurn, *, n_models: int, n_copies: int) -> tuple[int, ...]:
    """The trace's blocks with a name of their own for every copy and model."""
    name, names = turn.copy * n_models + turn.model.number, n_copies * n_models
    return tuple(block * names + name for block in turn.request.prefix_blocks)
