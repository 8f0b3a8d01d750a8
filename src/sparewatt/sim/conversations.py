"""Jobs from a trace that knows which prompts begin alike: conversations repeated whole, to reach a rate.

A further copy of a conversation is somebody else's: same times (within a second) and sizes, other text. All turns of a
conversation go to the same model and come from the same place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparewatt.sim.physics import SimJob
from sparewatt.sim.request import Request
from sparewatt.sim.scenario import JOB_FAILS, Model, Scenario

JITTER_S = 1.0
OPENING = 2
"""Blocks that tell conversations apart: the first is often a system prompt that many share."""


class Talk(NamedTuple):
    """One copy of one conversation."""

    model: Model
    region: int


def repeated(
    window: Sequence[Request], scenario: Scenario, *, copies: float, start_s: float, seed: int
) -> list[SimJob]:
    n_copies = int(copies) + (copies % 1 > 0)
    found = []
    for request in window:
        for copy in range(n_copies):
            rng = random.Random(f"talk {seed} {copy} {request.prefix_blocks[:OPENING]}")
            if copy < int(copies) or rng.random() < copies % 1:
                talk = Talk(*_drawn(scenario, rng))
                found.append((request.at_s - start_s, copy, talk, request))
    rng = random.Random(f"jobs {seed}")
    timed = sorted(((at_s + rng.random() * JITTER_S, *rest) for at_s, *rest in found), key=lambda item: item[0])
    n_names = n_copies * len(scenario.models)
    return [
        SimJob(
            number=number,
            model=talk.model,
            arrived_s=at_s,
            prompt_tokens=request.input_tokens,
            output_tokens=max(1, request.output_tokens),
            region=talk.region,
            fails=rng.random() < JOB_FAILS,
            prefix=_named(request, copy * len(scenario.models) + talk.model.number, n_names),
        )
        for number, (at_s, copy, talk, request) in enumerate(timed)
    ]


def _drawn(scenario: Scenario, rng: random.Random) -> tuple[Model, int]:
    model = rng.choices(scenario.models, [model.popularity for model in scenario.models])[0]
    return model, rng.choices(range(len(scenario.regions)), scenario.user_shares)[0]


def _named(request: Request, name: int, n_names: int) -> tuple[int, ...]:
    """The trace's blocks with a name of their own for every copy and model."""
    return tuple(block * n_names + name for block in request.prefix_blocks)
