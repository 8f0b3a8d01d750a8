"""A job as its client and the model of the storm see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparewatt.core.ids import AccountId, MatchId
from sparewatt.inference.dispatch.model import AttemptRecord
from sparewatt.inference.metering.service import RunningTab


@dataclass(slots=True)
class Ending:
    """How a job must have ended: its state, what it cost, and who earned."""

    state: str
    nano: int


@dataclass(slots=True)
class SimJob:
    """A job as its client and the model see it."""

    id: MatchId
    account: AccountId
    prompt: int
    length: int
    tab: RunningTab
    bound: int
    attempts: list[AttemptRecord] = field(default_factory=list)
    fault: str | None = None
    fault_at: int = 0
    noted: int = 0
    """What it was worth when its progress was last journalled."""
    endings: list[Ending] = field(default_factory=list)

    def worth(self) -> int:
        """By the model's own arithmetic: exact, rounded once, at most the hold."""
        parts: list[tuple[AttemptRecord, int]] = []
        for attempt in self.attempts:
            if (seen := attempt.delivered) is not None:
                left = self.bound - sum(n for _, n in parts)
                claimed = seen.chunks if seen.completion_tokens is None else seen.completion_tokens
                parts.append((attempt, min(claimed, seen.text_bytes, left)))
        written = sum(n for _, n in parts)
        if not written:
            return 0
        worth = sum(a.completion_price_nano * n * written + self._prompt(a) * a.prompt_price_nano * n for a, n in parts)
        return min(worth // (10**6 * written), self.tab.hold.amount.total)

    def _prompt(self, attempt: AttemptRecord) -> int:
        """As the node says, else as the last node that says it, else as it was guessed."""
        said = [
            a.delivered.prompt_tokens
            for a in (*self.attempts, attempt)
            if a.delivered and a.delivered.prompt_tokens is not None
        ]
        return min(said[-1] if said else self.prompt, int(self.prompt * 1.5) + 64)
