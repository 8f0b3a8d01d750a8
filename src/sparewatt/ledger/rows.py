"""From a closed job to the rows that Postgres keeps of it."""

from __future__ import annotations

from sparewatt.ledger.model import Bill, ClosedJob, Delivery, OpenedJob, Part
from sparewatt.ledger.rules import bill, postings_of
from sparewatt.store.books import AttemptRow, JobRow


def job_row(closed: ClosedJob, billed: Bill | None = None) -> JobRow:
    """Raises UnbalancedEntry. `billed` is its bill, where that is known already."""
    job, deliveries, billed = closed.job, closed.deliveries, billed or bill(closed.deliveries, closed.job.hold)
    prompt_tokens = completion_tokens = 0
    attempts: list[AttemptRow] = []
    for delivery, part in zip(deliveries, billed.parts, strict=True):
        prompt_tokens = max(prompt_tokens, delivery.prompt_tokens)
        completion_tokens += delivery.completion_tokens
        attempts.append(_attempt_row(job, len(attempts), delivery, part))
    cost = billed.cost
    return JobRow(
        id=job.id,
        opened_unix_s=job.opened_unix_s,
        closed_unix_s=closed.closed_unix_s,
        account_id=job.account,
        key_id=job.key,
        model=job.model,
        state=closed.state.value,
        reason=_storable(closed.reason),
        finish_reason=_storable(closed.finish_reason),
        stream=job.stream,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_nano=cost.promo + cost.paid,
        promo_nano=cost.promo,
        attempts=tuple(attempts),
        lines=tuple(postings_of(closed, billed)),
    )


def _storable(text: str | None) -> str | None:
    """Nodes have a say in it, and Postgres takes no NUL: one such job would hold up all that are posted with it."""
    return text and text.replace("\0", "�")


def _attempt_row(job: OpenedJob, at: int, delivery: Delivery, part: Part) -> AttemptRow:
    price = delivery.price
    return AttemptRow(
        job_id=job.id,
        opened_unix_s=job.opened_unix_s,
        position=at,
        node_id=delivery.node_id,
        owner_id=delivery.owner,
        model=job.model,
        outcome=delivery.outcome,
        prompt_tokens=delivery.prompt_tokens,
        completion_tokens=delivery.completion_tokens,
        claimed_tokens=delivery.claimed_tokens,
        prompt_price=price.prompt,
        completion_price=price.completion,
        net_nano=part.net_paid,
        net_promo_nano=part.net_promo,
        fee_nano=part.fee_promo + part.fee_paid,
        first_token_ms=delivery.first_token_ms,
        duration_ms=delivery.duration_ms,
    )
