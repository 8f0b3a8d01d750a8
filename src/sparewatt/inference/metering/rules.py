"""Metering: how many tokens a job's nodes delivered. Pure. Paid is the smaller of a node's claim and our own count.

Nearly every server sends one token per chunk. A claim of more is accepted as far as the text could hold it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome
from sparewatt.ledger.model import Delivery, JobState, TokenPrice

BYTES_PER_TOKEN_AT_LEAST = 2
"""Prose and code lie near 4 bytes a token. A claim of more than one token per 2 bytes is cut."""

BYTES_PER_TOKEN_USUAL = 4

PROMPT_SLACK, PROMPT_EXTRA_TOKENS = 1.5, 64
"""How far a prompt may exceed the guess by its bytes, and what a chat template adds."""

TOLERANCE, TOLERANCE_TOKENS = 0.1, 8
"""Counts that differ by less are the same: a last token without text, a chunk cut off by a cancellation."""

FINISH_REASON_CHARS_MAX = 32
"""OpenAI's longest has 14."""

_DONE, _JOB_DONE, DONE_WORD = Outcome.DONE, JobState.DONE, Outcome.DONE.value
"""Looked up once: finding a member of an enum, or its value, takes as long as adding up an answer."""

NOBODY = AccountId("acc_unknown")
"""Owner of a node that was registered before nodes had owners."""


def prompt_bound(estimate: int) -> int:
    """The most tokens that a prompt of this estimated size can be billed for."""
    return int(estimate * PROMPT_SLACK) + PROMPT_EXTRA_TOKENS


def disagrees(claimed: int, seen: int) -> bool:
    """Whether a node claims more than was seen of it, beyond what counting can explain."""
    return claimed > seen * (1 + TOLERANCE) + TOLERANCE_TOKENS


def deliveries_of(
    attempts: Sequence[AttemptRecord],
    *,
    prompt_estimate: int,
    output_bound: int,
    now_ms: float | None = None,
    is_streamed: bool = True,
) -> tuple[Delivery, ...]:
    """What each attempt brought the client. Those that brought nothing are left out; together they keep the bound.

    An answer in one piece has no time of a first token.
    """
    found: list[Delivery] = []
    left, most = output_bound, prompt_bound(prompt_estimate)
    for attempt in attempts:
        counted = count(attempt, attempts, prompt_estimate=prompt_estimate, prompt_most=most, output_most=left)
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


def count(
    attempt: AttemptRecord,
    attempts: Sequence[AttemptRecord],
    *,
    prompt_estimate: int,
    prompt_most: int,
    output_most: int,
) -> CountedTokens | None:
    """What one of these attempts brought, within what may still be written. None if nothing was passed on.

    Without a claim the chunks are counted, or for an answer in one piece its text.
    """
    seen = attempt.delivered
    if seen is None:
        return None
    chunks, text_bytes, claimed, read = seen.chunks, seen.text_bytes, seen.completion_tokens, seen.prompt_tokens
    if claimed is None:
        claimed = chunks or text_bytes // BYTES_PER_TOKEN_USUAL
    written, by_text = claimed, -(-text_bytes // BYTES_PER_TOKEN_AT_LEAST)
    if claimed > output_most or (claimed > by_text and claimed > chunks):
        written = min(claimed, max(chunks, by_text), output_most)
    prompt = _prompt_of_others(attempts, prompt_estimate) if read is None else read - attempt.carried_tokens
    if not 0 <= prompt <= prompt_most:
        prompt = min(max(0, prompt), prompt_most)
    return CountedTokens(prompt, written, claimed)


def _prompt_of_others(attempts: Sequence[AttemptRecord], estimate: int) -> int:
    """Without a node's own count: another's count of the same prompt, or the estimate.

    Without the text of earlier nodes that this one read to continue it.
    """
    for attempt in reversed(attempts):
        seen = attempt.delivered
        if seen is not None and seen.prompt_tokens is not None:
            return max(0, seen.prompt_tokens - attempt.carried_tokens)
    return estimate


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
