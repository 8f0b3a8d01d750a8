"""How much of a model's weights a token reads: all of a dense model, a few experts of a mixture. By its name alone."""

from __future__ import annotations

import re
from functools import lru_cache

from sparewatt.core.limits import WORDS_REMEMBERED_MAX

UNNAMED_SHARE = 0.05
"""Of mixtures whose names do not say how much is active: the sparsest that are served read about this much."""
_NAMED = re.compile(r"(\d+(?:\.\d+)?)b-a(\d+(?:\.\d+)?)b")
_MIXTURES = re.compile(
    r"gpt-oss|deepseek-(?:v[23]|r1(?!-distill))|mixtral|\d+x\d+b|llama-4|kimi|glm-4\.[5-9]|minimax|dbrx|grok|moe|qwen3-next"
)


@lru_cache(WORDS_REMEMBERED_MAX)
def read_share(name: str) -> float:
    """The share of the weights that a decoding step of one job reads, at the least."""
    lower = name.lower()
    named = _NAMED.search(lower)
    if named and float(named[1]) > 0.0:
        return min(1.0, max(UNNAMED_SHARE, float(named[2]) / float(named[1])))
    return UNNAMED_SHARE if _MIXTURES.search(lower) else 1.0
