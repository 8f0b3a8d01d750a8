"""Follows orders phase by phase until each has a provider or has ended. What is said of a state is decided purely.

An order takes little more than a second, so the gateway is asked ten times a second at first. A single order is waited
for by a long poll; later, and when a rate limit says so, it is asked less often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparewatt.cli.client import ApiClient, path_of, path_with_query
from sparewatt.cli.errors import ApiError, NoReply
from sparewatt.cli.leases.quote_view import cost_text
from sparewatt.cli.output import format_usd
from sparewatt.protocol.api.lease_match import LeaseMatch
from sparewatt.protocol.api.leases import Lease

POLL_S, SLOW_POLL_S = 0.1, 1.0
SLOW_AFTER_S = 10.0
LONG_POLL_MS = 1_000
RELAXATIONS_SHOWN = 3
Say = Callable[[str], None]


@dataclass(slots=True)
class OrderProgress:
    """One order: what was seen last, and what has been said of it."""

    lease: Lease
    match: LeaseMatch | None = None
    said: set[str] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)
    """How earlier attempts ended, of those that were followed by the next before anybody looked."""

    @property
    def is_over(self) -> bool:
        order = self.lease.order
        match self.lease.phase:
            case "failed" | "closed" | "expired":
                return True
            case "matched":
                return order is not None and order.lease is not None
            case "unmatched":
                return order is not None and order.attempt >= order.max_attempts
            case _:
                return False

    @property
    def is_matched(self) -> bool:
        return self.lease.phase == "matched" and self.is_over

    def news(self) -> list[str]:
        """What has not been said yet, in the order in which it happened."""
        lines = [line for line in [*self.passed, *_milestones(self.lease, self.match)] if line not in self.said]
        self.said.update(lines)
        return lines


def _milestones(lease: Lease, match: LeaseMatch | None) -> list[str]:
    if lease.phase == "failed":
        return [f"Not sent: {lease.problem or 'the chain refused it'} Nothing was charged."]
    if lease.order_id is None:
        return []
    lines = [f"On chain: order {lease.order_id}"]
    if match is not None:
        lines += _auction(match)
    order = lease.order
    if order is not None and order.lease is not None and order.lease.provider is not None:
        won = order.lease
        whole = cost_text(won.hourly_usd, lease.duration_s)
        lines.append(
            f"Matched with {won.provider} at {format_usd(won.hourly_usd)} an hour, all-in: {whole} for the whole "
            f"duration, out of a deposit of {format_usd(won.deposit_usd)}"
        )
    elif lease.phase in {"unmatched", "expired"}:
        lines.append(_unmatched(lease, match))
    elif lease.phase == "closed":
        lines.append("Closed: the order was cancelled.")
    return lines


def _auction(match: LeaseMatch) -> list[str]:
    """Counts that still change are said once their phase is over."""
    counts, phase, number = match.counts, match.phase.name, f"Attempt {match.attempt}: " if match.attempt else ""
    lines = [f"{number}Lookup sent to {_number_of(counts.asked, 'node')}"] if counts.asked else []
    if phase == "commit":
        return lines
    declines = f", {counts.declines} declined" if counts.declines else ""
    lines.append(f"{number}{_number_of(counts.bids, 'bid')}{declines}")
    if phase != "reveal" and match.votes:
        voters = {vote.validator for vote in match.votes if vote.round == match.phase.round}
        if match.certificate is not None:
            lines.append(f"{number}Certified by {len(match.certificate.signers)} of {len(match.voters)} validators")
        elif voters:
            lines.append(f"{number}Voting, round {match.phase.round}")
    return lines


def _number_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _unmatched(lease: Lease, match: LeaseMatch | None) -> str:
    reason = lease.order.reason if lease.order is not None else None
    why = (match.why if match is not None else None) or f"No provider ({reason or 'expired'})."
    helps = [] if match is None else match.relaxations[:RELAXATIONS_SHOWN]
    hints = "".join(f" {each.field} {each.value} would admit {each.providers}." for each in helps)
    order = lease.order
    follows = order is not None and lease.phase == "unmatched" and order.attempt < order.max_attempts
    return f"{why}{hints}{' Another attempt follows.' if follows else ''}"


@dataclass(slots=True)
class OrderFollower:
    """Asks the gateway about orders, in turn."""

    client: ApiClient
    say: Say
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    timeout_s: float
    warn: Say = lambda _: None
    _is_silent: bool = field(default=False, init=False)

    def follow(self, leases: Sequence[Lease]) -> list[OrderProgress]:
        """Until all are over, or the time is."""
        started_s = self.monotonic()
        followed = [OrderProgress(lease) for lease in leases]
        while True:
            is_limited = False
            for each in followed:
                if not each.is_over or not each.said:
                    is_limited |= not self._look(each, wait_ms=LONG_POLL_MS if len(followed) == 1 else None)
                    self._report(each, several=len(followed) > 1, since_s=self.monotonic() - started_s)
            since_s = self.monotonic() - started_s
            if all(each.is_over for each in followed) or since_s > self.timeout_s:
                return followed
            self.sleep(SLOW_POLL_S if is_limited or since_s > SLOW_AFTER_S else POLL_S)

    def _look(self, each: OrderProgress, *, wait_ms: int | None) -> bool:
        """False if the gateway asks for less haste, or does not answer: one that is started again knows the order."""
        seen, was_open = each.match, each.lease.phase == "open"
        try:
            if each.match is not None and wait_ms is not None:
                each.match = self._match(each, wait_ms=wait_ms)
            each.lease = self.client.get(path_of("leases", each.lease.id)).parse(Lease)
            if each.match is None or each.is_over or wait_ms is None:
                each.match = self._match(each, wait_ms=None)
            if was_open and seen is not None and each.match is not None and seen.attempt < each.match.attempt:
                each.passed.append(self._end_of(each, seen.attempt))
        except NoReply as error:
            if not self._is_silent:
                self.warn(f"{error.message} The order goes on without it; asking again.")
            self._is_silent = True
            return False
        except ApiError as error:
            if error.http_status not in {429, 503}:
                raise
            return False
        self._is_silent = False
        return True

    def _match(self, each: OrderProgress, *, wait_ms: int | None) -> LeaseMatch | None:
        """What was known if the gateway has not seen the lookup yet: the order's own state is enough then."""
        if each.lease.order_id is None:
            return None
        path = path_of("leases", each.lease.order_id, "match")
        if each.match is not None and wait_ms is not None:
            path = path_with_query(path, {"have": each.match.version, "wait_ms": wait_ms})
        try:
            return self.client.get(path).parse(LeaseMatch)
        except ApiError as error:
            if error.http_status != 404:
                raise
            return each.match

    def _end_of(self, each: OrderProgress, attempt: int) -> str:
        path = path_of("leases", each.lease.order_id or each.lease.id, "match")
        try:
            why = self.client.get(path_with_query(path, {"attempt": attempt})).parse(LeaseMatch).why
        except ApiError as error:
            if error.http_status != 404:
                raise
            why = None
        return f"{f'Attempt {attempt}: ' if attempt else ''}{why or 'No provider.'} Another attempt follows."

    def _report(self, each: OrderProgress, *, several: bool, since_s: float) -> None:
        name = f"{each.lease.id}  " if several else ""
        for line in each.news():
            self.say(f"{since_s:6.1f} s  {name}{line}")
