"""How much was delivered, as pure functions. The node says, the gateway has seen; the smaller count is paid.

Nearly every server sends one token per chunk. One that sends several is believed as far as its text could hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome, Seen
from sparewatt.ledger.model import Delivery, JobState, TokenPrice

BYTES_PER_TOKEN_AT_LEAST = 2
"""Prose and code lie near 4 bytes a token. Who claims more than one token per 2 bytes is not believed."""

BYTES_PER_TOKEN_USUAL = 4

PROMPT_SLACK, PROMPT_EXTRA_TOKENS = 1.5, 64
"""How far a prompt may exceed the guess by its bytes, and what a chat template adds."""

TOLERANCE, TOLERANCE_TOKENS = 0.1, 8
"""Counts that differ by less are the same: a last token without text, a chunk cut off by a cancellation."""

PRICE_CAP_MEDIANS = 4
"""A request that names no price goes to no node that asks more than this many times the model's median."""

FINISH_REASON_CHARS_MAX = 32
"""OpenAI's longest has 14."""

NOBODY = AccountId("acc_unknown")
"""Owner of a node that was registered before nodes had owners."""


def seen_tokens(seen: Seen) -> int:
    """The most that can have been in what was passed on."""
    return max(seen.chunks, -(-seen.text_bytes // BYTES_PER_TOKEN_AT_LEAST))


def claimed_tokens(seen: Seen) -> int:
    """What the node says; of one that says nothing, its chunks, or for an answer in one piece a guess by its text."""
    if seen.completion_tokens is not None:
        return seen.completion_tokens
    return seen.chunks or seen.text_bytes // BYTES_PER_TOKEN_USUAL


def prompt_bound(estimate: int) -> int:
    """What a prompt of this size, guessed, can count at most."""
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

    Of an answer in one piece nobody saw the first token: the time is left out.
    """
    found: list[Delivery] = []
    known = next((said for attempt in reversed(attempts) if (said := _prompt_said(attempt)) is not None), None)
    prompt = _Prompt(prompt_estimate if known is None else known, prompt_bound(prompt_estimate))
    left = output_bound
    for attempt in attempts:
        delivery = _delivery(attempt, prompt, left, now_ms)
        if delivery is None or (output_bound and not delivery.completion_tokens):
            continue  # reading alone is paid only where nothing was to be written
        found.append(delivery if is_streamed else replace(delivery, first_token_ms=None))
        left -= delivery.completion_tokens
    return tuple(found)


class _Prompt(NamedTuple):
    tokens: int
    """For a node that does not say: another's count of the same prompt, or the guess."""
    bound: int


def _prompt_said(attempt: AttemptRecord) -> int | None:
    """The prompt by the node's count, without what other nodes had written before and it read to go on from there."""
    if attempt.seen is None or attempt.seen.prompt_tokens is None:
        return None
    return max(0, attempt.seen.prompt_tokens - attempt.carried_tokens)


def _delivery(attempt: AttemptRecord, prompt: _Prompt, output_bound: int, now_ms: float | None) -> Delivery | None:
    seen = attempt.seen
    claimed = claimed_tokens(seen) if seen is not None else 0
    written = min(claimed, seen_tokens(seen), output_bound) if seen is not None else 0
    if seen is None:
        return None
    said = _prompt_said(attempt)
    ended_ms = attempt.ended_ms if attempt.ended_ms is not None else now_ms
    return Delivery(
        node_id=attempt.node_id,
        owner=attempt.owner or NOBODY,
        price=TokenPrice(Nano(attempt.prompt_price_nano), Nano(attempt.completion_price_nano)),
        prompt_tokens=min(prompt.tokens if said is None else said, prompt.bound),
        completion_tokens=written,
        claimed_tokens=claimed,
        outcome=attempt.outcome.value,
        first_token_ms=None if attempt.first_token_ms is None else attempt.first_token_ms - attempt.started_ms,
        duration_ms=0.0 if ended_ms is None else ended_ms - attempt.started_ms,
    )


def state_of(outcome: Outcome) -> JobState:
    match outcome:
        case Outcome.DONE:
            return JobState.DONE
        case Outcome.CANCELLED:
            return JobState.CANCELLED
        case _:
            return JobState.FAILED


def finish_reason(outcome: Outcome, attempts: Sequence[AttemptRecord]) -> str | None:
    """Why the answer ended, as its client was told. Nodes have a say in it, so not all of a long one."""
    seen = attempts[-1].seen if attempts else None
    if outcome is not Outcome.DONE:
        return None if outcome is Outcome.CANCELLED else "error"
    return seen.finish_reason[:FINISH_REASON_CHARS_MAX] if seen is not None and seen.finish_reason else None


def cap_of(median: TokenPrice) -> TokenPrice:
    return TokenPrice(Nano(median.prompt * PRICE_CAP_MEDIANS), Nano(median.completion * PRICE_CAP_MEDIANS))
