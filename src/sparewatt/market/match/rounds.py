"""Rounds of leaders within an attempt: when one ends, and which round others have reached."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.market.quorum import is_some, weight_of

DOUBLINGS_MAX = 4


class Rounds:
    """Timeouts grow, so that a slow network meets in one round. Leaders rotate, so that a faulty one is passed over."""

    def __init__(self, weights: Mapping[str, int], *, round_ms: int, first: int = 0) -> None:
        self._weights = weights
        self._total = sum(weights.values())
        self._round_ms = round_ms
        self._reached: dict[str, int] = {}
        self.current = first
        self.entered_ms = 0

    def enter(self, round_: int, *, now_ms: int) -> None:
        self.current, self.entered_ms = round_, now_ms

    @property
    def ends_ms(self) -> int:
        return self.entered_ms + (self._round_ms << min(self.current, DOUBLINGS_MAX))

    def note(self, signer: str, round_: int) -> None:
        """A validator with weight has signed that it is in a round."""
        self._reached[signer] = max(round_, self._reached.get(signer, 0))

    def highest(self) -> int:
        """The highest round that validators worth more than a third of the stake have reached."""
        for round_ in sorted(set(self._reached.values()), reverse=True):
            signers = [signer for signer, reached in self._reached.items() if reached >= round_]
            if is_some(weight_of(signers, self._weights), total=self._total):
                return round_
        return 0
