"""What a request that names no price may cost per token: a few times what nodes usually ask for the model.

Without a bound, one node with an absurd price would make every hold absurd; with it, such a node gets no jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.core.clock import Clock
from sparewatt.core.ids import ModelId
from sparewatt.core.money import Nano
from sparewatt.inference.metering.rules import cap_of
from sparewatt.ledger.model import TokenPrice

FRESH_S = 1.0
"""A median over many nodes takes longer than a match; prices change seldom."""


class PriceCaps:
    def __init__(self, median: Callable[[ModelId], tuple[int, int]], *, clock: Clock) -> None:
        self._median = median
        self._clock = clock
        self._known: dict[ModelId, tuple[float, TokenPrice]] = {}

    def of(self, model: ModelId) -> TokenPrice:
        now_s = self._clock.now_s()
        known = self._known.get(model)
        if known is not None and now_s - known[0] < FRESH_S:
            return known[1]
        prompt, completion = self._median(model)
        cap = cap_of(TokenPrice(Nano(prompt), Nano(completion)))
        if cap.prompt or cap.completion:  # a name that nobody serves is not worth remembering
            self._known[model] = (now_s, cap)
        return cap
