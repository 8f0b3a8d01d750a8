"""How fast a simulated machine reads prompts and decodes: two families of model servers on one set of formulas.

A server works in iterations. One that only decodes reads the weights and the contexts of all running jobs, and gives
each a token. One that also reads a prompt gives it a chunk of tokens; the running jobs still get one token each, so
while somebody reads, writers all but stop. Prompts are read in the order of arrival.

The constants of `BATCHING` (vLLM, SGLang) fit measurements on an H200 with an 8B model: 5.0 ms a step alone, 7.6 ms for
64 jobs of 1,200 tokens and 20.4 ms for 64 of 8,192; prompts at 12,400 tokens/s for 128 tokens, 45,900 for 2,048 and
39,100 for 8,192. `SLOTTED` (llama.cpp, Ollama) batches less well, and has few slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MS = 1e-3
SQUARE_SHARE = 1.9e-5
"""What attention adds to a prompt, per token of its length, as a share of the rest; for a model of REFERENCE_PARAMS."""
REFERENCE_PARAMS = 8e9


@dataclass(frozen=True, slots=True)
class EngineFamily:
    bandwidth_share: float
    """Of the card's memory bandwidth, what decoding reaches."""
    flops_share: float
    """Of the card's operations per second, what reading prompts reaches."""
    step_fixed_s: float
    step_per_job_s: float
    prefill_fixed_s: float
    prefill_steps_min: float
    """The shortest prompt takes as long as this many steps alone."""
    chunk_tokens: int
    """Tokens of prompts and answers in one iteration."""
    hidden_share: float = 1.0
    """Of what a step takes alone, the share that a chunk's arithmetic hides."""


BATCHING = EngineFamily(0.95, 0.76, 1.45 * MS, 0.01 * MS, 1.0 * MS, 2.0, 2048)
SLOTTED = EngineFamily(0.75, 0.50, 2.0 * MS, 0.40 * MS, 10.0 * MS, 1.0, 2048)


class Prefill(NamedTuple):
    """The curve of one model's prompts on one machine."""

    fixed_s: float
    token_s: float
    square_s: float
    floor_s: float
    chunk_tokens: float

    def seconds(self, tokens: float, cached: float = 0.0) -> float:
        """Alone on the machine; the cached beginning of a prompt is not read again, only attended to."""
        read = tokens - cached
        return max(self.floor_s, self.fixed_s + read * (self.token_s + (tokens + cached) * self.square_s))

    def piece_s(self, begin: float, tokens: float) -> float:
        """Seconds for some tokens of a prompt, of which `begin` are read or cached; without the fixed part."""
        return tokens * (self.token_s + (2 * begin + tokens) * self.square_s)


class PrefillColumns(NamedTuple):
    """The curves of one model on many machines."""

    fixed_s: Floats
    token_s: Floats
    square_s: Floats
    floor_s: Floats
    chunk_tokens: Floats

    @classmethod
    def of(cls, curves: Sequence[Prefill]) -> PrefillColumns:
        return cls(*np.array(curves).T)

    def seconds(self, tokens: float, cached: Floats | float = 0.0) -> Floats:
        """As `Prefill.seconds`."""
        read = tokens - cached
        whole_s = self.fixed_s + read * (self.token_s + (tokens + cached) * self.square_s)
        longest: Floats = np.maximum(self.floor_s, whole_s)
        return longest


def prefill_of(family: EngineFamily, *, flops: float, params: float, alone_step_s: float) -> Prefill:
    """`flops` is what the card really does; a step alone reads the weights once."""
    token_s = 2 * params / (family.flops_share * flops)
    square_s = token_s * SQUARE_SHARE * (REFERENCE_PARAMS / params) ** (1 / 3)
    floor_s = family.prefill_steps_min * alone_step_s
    return Prefill(family.prefill_fixed_s, token_s, square_s, floor_s, family.chunk_tokens)


class IterationPace(NamedTuple):
    """While a prompt is read beside running jobs: the speed of each, as a share of its speed alone."""

    prefill: float
    decode: float


UNDISTURBED = IterationPace(1.0, 1.0)


def shared_pace(chunk_s: float, step_s: float, base_s: float) -> IterationPace:
    """`step_s` is a step of all running jobs, `base_s` the part of it that does not grow with them.

    The chunk's arithmetic hides what a step would read of the weights; contexts come on top.
    """
    iteration_s = max(chunk_s, base_s) + step_s - base_s
    return IterationPace(chunk_s / iteration_s, step_s / iteration_s)
