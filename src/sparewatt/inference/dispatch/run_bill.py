"""What a job's run tells its tab: what each attempt is paid for, what the client is told, and that the job is over."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.money import NANO_PER_USD, Nano, format_usd
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, DeliveryCount, Outcome, Tab
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.protocol.openai.chat import Usage


class RunBill:
    """One per job. Without a tab nothing is billed."""

    __slots__ = ("_attempts", "_cost", "_tab")

    def __init__(self, tab: Tab | None, attempts: Sequence[AttemptRecord]) -> None:
        self._tab = tab
        self._attempts = attempts
        """Of the job's record, which grows."""
        self._cost: Nano | None = None
        """The price of the whole answer, once the client was told."""

    def count(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None:
        """The running attempt has sent all that it will: the bill of the whole answer."""
        self._attempts[-1].delivered = delivered
        if self._tab is None:
            return None
        self._tab.settle(self._attempts, units)
        billed = self._tab.billed(self._attempts)
        self._cost = billed.cost
        return billed

    def settle(self, attempt: Attempt | None) -> None:
        """Decide what the running attempt is paid for: once, and before its tokens count for anything."""
        delivered = self._attempts[-1].delivered
        if attempt is None or self._tab is None or delivered is None:
            return
        if delivered.paid_completion_tokens is None:
            self._tab.settle(self._attempts, attempt.units())

    def total(self, claimed: Usage) -> tuple[Usage, float | None]:
        """Tokens and dollars of the answer so far; as the nodes say, and no price, where nothing is billed."""
        if self._tab is None:
            return claimed, None
        usage, cost = self._tab.billed(self._attempts)
        return usage, cost / NANO_PER_USD

    def headers(self) -> dict[str, str]:
        if self._tab is None:
            return {}
        cost = self._tab.billed(self._attempts).cost if self._cost is None else self._cost
        return {"x-sparewatt-cost": format_usd(cost)}

    def note_complete(self) -> None:
        """Before the client has the end of its answer. Raises if the books cannot take it."""
        if self._tab is not None:
            self._tab.note_complete(self._attempts)

    def close(self, outcome: Outcome) -> None:
        if self._tab is not None:
            self._tab.close(outcome, self._attempts)
