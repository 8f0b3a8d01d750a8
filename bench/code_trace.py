"""A bursty trace in the manner of code completion: long prompts, short answers, arrivals in bursts. By seed, in memory.

Lengths are log-normal, cut at both ends. The gaps between arrivals are gamma distributed, with a coefficient of
variation of two.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparewatt.testing import count_tokens, render_chat

PROMPT_MEAN, PROMPT_SIGMA, PROMPT_MIN, PROMPT_MAX = 2000.0, 0.8, 64, 7000
ANSWER_MEAN, ANSWER_SIGMA, ANSWER_MIN, ANSWER_MAX = 30.0, 1.0, 2, 400
BURST_SHAPE = 0.25
"""Of the gamma distribution: 1 is Poisson, less comes in bursts."""
MAX_TOKENS = 512
"""As a client sets it, who does not know how long the answer gets."""
_WORDS = ("fn", "let", "if", "self", "key", "map", "int", "for", "row", "def", "return", "None", "x1", "args", "await")


@dataclass(frozen=True, slots=True)
class CodeRequest:
    at_s: float
    prompt_tokens: int
    answer_tokens: int
    prompt: str


def code_trace(*, rate: float, duration_s: float, seed: int) -> list[CodeRequest]:
    """Requests at `rate` a second in the mean; the same lengths and gaps, scaled, at every rate."""
    count = round(rate * duration_s)
    sizes = code_sizes(count, seed=seed)
    rng = random.Random(f"gaps {seed}")  # noqa: S311 (repeatable)
    gaps = [rng.gammavariate(BURST_SHAPE, 1.0) for _ in range(count)]
    scale = duration_s / sum(gaps)
    now_s, trace = 0.0, []
    for number, (gap, (prompt_tokens, answer_tokens)) in enumerate(zip(gaps, sizes, strict=True)):
        now_s += gap * scale
        prompt = prompt_of(number, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
        trace.append(CodeRequest(now_s, prompt_tokens, answer_tokens, prompt))
    return trace


def code_sizes(count: int, *, seed: int) -> list[tuple[int, int]]:
    """Tokens of prompts and answers."""
    rng = random.Random(f"sizes {seed}")  # noqa: S311 (repeatable)
    return [
        (
            _log_normal(rng, PROMPT_MEAN, PROMPT_SIGMA, PROMPT_MIN, PROMPT_MAX),
            _log_normal(rng, ANSWER_MEAN, ANSWER_SIGMA, ANSWER_MIN, ANSWER_MAX),
        )
        for _ in range(count)
    ]


def _log_normal(rng: random.Random, mean: float, sigma: float, least: int, most: int) -> int:
    drawn = rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
    return max(least, min(most, round(drawn)))


def prompt_of(number: int, *, prompt_tokens: int, answer_tokens: int) -> str:
    """As many tokens as the engine counts, chat markers included; no two begin alike."""
    rng = random.Random(f"code {number}")  # noqa: S311 (repeatable)
    head = f"{number} [answer {answer_tokens}]"
    words = prompt_tokens - chat_tokens(head)
    return " ".join([head, *rng.choices(_WORDS, k=max(0, words))])


def chat_tokens(prompt: str) -> int:
    return count_tokens(render_chat([{"role": "user", "content": prompt}]))


def burstiness(trace: Sequence[CodeRequest]) -> float:
    """The coefficient of variation of the gaps."""
    gaps = [later.at_s - earlier.at_s for earlier, later in pairwise(trace)]
    mean = sum(gaps) / len(gaps)
    return math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean
