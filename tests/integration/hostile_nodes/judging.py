"""What others noticed of a behaviour, and whether that keeps its bounds. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.integration.hostile_nodes.behaviour import COMPLETION_PRICE_NANO, PROMPT_PRICE_NANO, Behaviour
from tests.integration.hostile_nodes.clients import Asked

FIRST = 10
"""Requests in which a network may still learn of a behaviour."""
TOKENS_PER_PRICE = 1_000_000
TAKEN_OVER_TOKENS = 16
"""Over a whole behaviour: a job that the liar took over has a longer prompt than the client's, with the text so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What the books have of one job of the liar."""

    job: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(slots=True, kw_only=True)
class Findings:
    """All that was seen of one behaviour."""

    behaviour: Behaviour
    calm_wait_s: float
    """The longest that a request waited without any attack."""
    liars: Collection[str] = ()
    """Their node ids."""
    bystanders: Sequence[Asked] = ()
    """In the order in which they were asked."""
    pinned: Sequence[Asked] = ()
    earned: list[Earned] = field(default_factory=list)
    memory_bytes: int = 0
    rejoin_s: float | None = None
    jobs_given: int = 0
    let_in: int = 0
    wave: int = 0
    """Those of one wave were played at the same time."""
    marker_logged: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def judged(self) -> Sequence[Asked]:
        return self.bystanders[FIRST:]

    def is_good(self, asked: Asked) -> bool:
        """Served, and with the right text unless the liar alone wrote it."""
        return asked.is_served and (asked.is_genuine or asked.node in self.liars)

    @property
    def success(self) -> float:
        judged = self.judged
        return sum(self.is_good(asked) for asked in judged) / len(judged) if judged else 1.0

    @property
    def extra_wait_s(self) -> float:
        return max((asked.wait_s for asked in self.bystanders), default=0.0) - self.calm_wait_s

    @property
    def share(self) -> float:
        judged = self.judged
        return sum(asked.node in self.liars for asked in judged) / len(judged) if judged else 0.0

    @property
    def leaks(self) -> int:
        return sum(asked.leaked for asked in (*self.bystanders, *self.pinned))

    @property
    def paid_tokens(self) -> float:
        """In completion tokens: what was read counts by its price."""
        return sum(_worth(each.prompt_tokens, each.completion_tokens) for each in self.earned)

    @property
    def honest_tokens(self) -> float:
        """What an honest node is paid for what clients could read of these jobs."""
        return sum(_worth(each.question.prompt_tokens, each.readable_tokens) for each in self.paid_requests())

    @property
    def pay_ratio(self) -> float | None:
        """None where the liar earned nothing."""
        if not self.earned:
            return None
        return pay_ratio([self])

    def paid_requests(self) -> list[Asked]:
        jobs = {each.job for each in self.earned}
        return [each for each in (*self.bystanders, *self.pinned) if each.job in jobs]

    def broken_bounds(self) -> list[str]:
        """What others noticed too much of, in sentences; empty if nothing."""
        bounds, wrong = self.behaviour.bounds, []
        if self.success < bounds.success_min:
            reason = next((each.error for each in self.judged if not self.is_good(each)), None) or "a wrong text"
            wrong.append(f"{self.success:.1%} of others' requests succeeded ({reason})")
        if self.extra_wait_s > bounds.extra_wait_s_max:
            wrong.append(f"a request waited {self.extra_wait_s:.1f} s longer")
        if self.pay_ratio is not None and self.pay_ratio > bounds.pay_ratio_max:
            wrong.append(f"the liar was paid {self.pay_ratio:.1f} times an honest node")
        if self.memory_bytes > bounds.memory_bytes_max:
            wrong.append(f"the gateway grew by {self.memory_bytes / 1e6:.0f} MB")
        if bounds.share_max is not None and self.share > bounds.share_max:
            wrong.append(f"the liar answered {self.share:.0%} of others' requests")
        if bounds.rejoin_s_max is not None and (self.rejoin_s is None or self.rejoin_s > bounds.rejoin_s_max):
            after = "never" if self.rejoin_s is None else f"after {self.rejoin_s:.1f} s"
            wrong.append(f"honest nodes, restarted meanwhile, served again {after}")
        if self.leaks:
            wrong.append(f"the liar's error text reached {self.leaks} replies")
        if self.marker_logged:
            wrong.append("the liar's error text is in the gateway's log")
        return [*wrong, *self.notes]


def pay_ratio(found: Sequence[Findings]) -> float:
    """What liars earned together, as a multiple of what honest nodes are paid for the same text."""
    paid = sum(each.paid_tokens for each in found)
    slack = TAKEN_OVER_TOKENS * sum(bool(each.earned) for each in found)
    return max(0.0, paid - slack) / max(1.0, sum(each.honest_tokens for each in found))


def _worth(prompt_tokens: int, completion_tokens: int) -> float:
    return completion_tokens + prompt_tokens * PROMPT_PRICE_NANO / COMPLETION_PRICE_NANO
