"""From a closed job to the rows that Postgres keeps of it."""

from __future__ import annotations

from sparewatt.ledger.model import Bill, ClosedJob, Delivery, OpenedJob, Part
from sparewatt.ledger.rules import bill, postings_of
from sparewatt.store.books import AttemptRow, JobRow


def job_row(closed: ClosedJob, billed: Bill | None = None) -> JobRow:
    """Raises UnbalancedEntry. `billed` is its bill, where that is known already."""
    job, deliveries, billed = closed.job, closed.deliveries, billed or bill(closed.deliveries, closed.job.hold)
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
        prompt_tokens=max([delivery.prompt_tokens for delivery in deliveries], default=0),
        completion_tokens=sum([delivery.completion_tokens for delivery in deliveries]),
        cost_nano=billed.cost.total,
        promo_nano=billed.cost.promo,
        attempts=tuple(
            [_attempt_row(job, at, *each) for at, each in enumerate(zip(deliveries, billed.parts, strict=True))]
        ),
        lines=tuple(postings_of(closed, billed)),
    )


def _storable(text: str | None) -> str | None:
    """Nodes have a say in it, and Postgres takes no NUL: one such job would hold up all that are posted with it."""
    return text and text.replace("\0", "�")


def _attempt_row(job: OpenedJob, at: int, delivery: Delivery, part: Part) -> AttemptRow:
    net, price = part.net, delivery.price
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
        net_nano=net.paid,
        net_promo_nano=net.promo,
        fee_nano=part.fee.total,
        first_token_ms=delivery.first_token_ms,
        duration_ms=delivery.duration_ms,
    )
