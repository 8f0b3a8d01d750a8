"""Metering: how many tokens a job's nodes delivered. Pure.

A node's own count is settled once, when its part of the answer is complete: `token_rates` decides what of it is paid.
Until then a running answer counts as far as its text could hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, Outcome
from sparewatt.ledger.model import Delivery, JobState, TokenPrice

BYTES_PER_TOKEN_AT_LEAST = 1
"""Of a running answer, whose text is not looked at yet: no token is shorter."""

BYTES_PER_TOKEN_USUAL = 4

PROMPT_SLACK, PROMPT_EXTRA_TOKENS = 1.5, 64
"""How far a prompt may exceed the guess by its bytes, and what a chat template adds."""

TOLERANCE, TOLERANCE_TOKENS = 0.1, 8
"""Counts that differ by less are the same: a last token without text, a chunk cut off by a cancellation."""

FINISH_REASON_CHARS_MAX = 32
"""OpenAI's longest has 14."""

_FAULTS = (Outcome.FAILED, Outcome.TIMED_OUT)
_DONE, _JOB_DONE, DONE_WORD = Outcome.DONE, JobState.DONE, Outcome.DONE.value
"""Looked up once: finding a member of an enum, or its value, takes as long as adding up an answer."""

NOBODY = AccountId("acc_unknown")
"""Owner of a node that was registered before nodes had owners."""


class PromptEstimate(NamedTuple):
    """Tokens of a prompt that no node has counted."""

    typical: int
    least: int
    """For a node that should have counted it: a wrong estimate must not pay better than the truth."""


NO_ESTIMATE = PromptEstimate(0, 0)


def prompt_bound(estimate: int) -> int:
    """The most tokens that a prompt of this estimated size can be billed for."""
    return int(estimate * PROMPT_SLACK) + PROMPT_EXTRA_TOKENS


def disagrees(claimed: int, seen: int) -> bool:
    """Whether a node claims more than was seen of it, beyond what counting can explain."""
    return claimed > seen * (1 + TOLERANCE) + TOLERANCE_TOKENS


def deliveries_of(
    attempts: Sequence[AttemptRecord],
    *,
    prompt_estimate: int | PromptEstimate,
    output_bound: int,
    prompt_most: int | None = None,
    now_ms: float | None = None,
    is_streamed: bool = True,
) -> tuple[Delivery, ...]:
    """What each attempt brought the client. Those that brought nothing are left out; together they keep the bound.

    An answer in one piece has no time of a first token.
    """
    found: list[Delivery] = []
    estimate = PromptEstimate(prompt_estimate, prompt_estimate) if isinstance(prompt_estimate, int) else prompt_estimate
    left, most = output_bound, prompt_bound(estimate.typical) if prompt_most is None else prompt_most
    for attempt in attempts:
        counted = count(attempt, attempts, prompt_estimate=estimate, prompt_most=most, output_most=left)
        if counted is None or (output_bound and not counted.written):
            continue  # reading alone is paid only where nothing was to be written
        found.append(_delivery(attempt, counted, now_ms, is_streamed=is_streamed))
        left -= counted.written
    return tuple(found)


class CountedTokens(msgspec.Struct, frozen=True, gc=False):
    """An attempt in tokens."""

    prompt: int
    written: int
    claimed: int


def claim_of(seen: DeliveryCount) -> int:
    """What a node claims to have written. Without its own count: its chunks, or of an answer in one piece the text."""
    if seen.completion_tokens is not None:
        return seen.completion_tokens
    return seen.chunks or seen.text_bytes // BYTES_PER_TOKEN_USUAL


def count(
    attempt: AttemptRecord,
    attempts: Sequence[AttemptRecord],
    *,
    prompt_estimate: PromptEstimate,
    prompt_most: int,
    output_most: int,
) -> CountedTokens | None:
    """What one of these attempts brought, within what may still be written. None if nothing was passed on."""
    seen = attempt.delivered
    if seen is None:
        return None
    claimed, written = claim_of(seen), seen.paid_completion_tokens
    if written is None:
        written = min(claimed, -(-seen.text_bytes // BYTES_PER_TOKEN_AT_LEAST))
    prompt = prompt_of(attempt, attempts, estimate=prompt_estimate)
    return CountedTokens(min(prompt, prompt_most), min(written, output_most), claimed)


def prompt_of(attempt: AttemptRecord, attempts: Sequence[AttemptRecord], *, estimate: PromptEstimate) -> int:
    """What is paid of this node's count of the prompt; without one, of another's count, or the estimate.

    Without the text of earlier nodes that this one read to continue it.
    """
    for each in (attempt, *reversed(attempts)):
        seen = each.delivered
        if seen is not None and seen.paid_prompt_tokens is not None:
            return seen.paid_prompt_tokens
        if seen is not None and seen.prompt_tokens is not None:
            return max(0, seen.prompt_tokens - each.carried_tokens)
    return estimate.least if _should_have_counted(attempt) else estimate.typical


def _should_have_counted(attempt: AttemptRecord) -> bool:
    """Whether it is the node's fault that there is no count: it broke off, or ended its answer without a true one."""
    seen = attempt.delivered
    is_ended = seen is not None and seen.finish_reason is not None and seen.completion_tokens is None
    return is_ended or attempt.outcome in _FAULTS


def _delivery(attempt: AttemptRecord, counted: CountedTokens, now_ms: float | None, *, is_streamed: bool) -> Delivery:
    started_ms, first_ms, outcome = attempt.started_ms, attempt.first_token_ms, attempt.outcome
    ended_ms = attempt.ended_ms if attempt.ended_ms is not None else now_ms
    return Delivery(
        node_id=attempt.node_id,
        owner=attempt.owner or NOBODY,
        price=TokenPrice(Nano(attempt.prompt_price_nano), Nano(attempt.completion_price_nano)),
        prompt_tokens=counted.prompt,
        completion_tokens=counted.written,
        claimed_tokens=counted.claimed,
        outcome=DONE_WORD if outcome is _DONE else outcome.value,
        first_token_ms=first_ms - started_ms if is_streamed and first_ms is not None else None,
        duration_ms=0.0 if ended_ms is None else ended_ms - started_ms,
    )


def state_of(outcome: Outcome) -> JobState:
    if outcome is _DONE:
        return _JOB_DONE
    return JobState.CANCELLED if outcome is Outcome.CANCELLED else JobState.FAILED


def finish_reason(outcome: Outcome, attempts: Sequence[AttemptRecord]) -> str | None:
    """Why the answer ended, as the client saw it. A node may choose the text, so it is cut."""
    if outcome is not _DONE:
        return None if outcome is Outcome.CANCELLED else "error"
    seen = attempts[-1].delivered if attempts else None
    return seen.finish_reason[:FINISH_REASON_CHARS_MAX] if seen is not None and seen.finish_reason else None
