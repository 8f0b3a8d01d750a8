"""From a closed job to the rows that Postgres keeps of it. By position: with names it takes five times as long."""

from __future__ import annotations

from sparewatt.ledger.model import Bill, ClosedJob, Delivery, OpenedJob, RevenueSplit
from sparewatt.ledger.rules import bill, job_postings
from sparewatt.store.ledger import AttemptRow, JobRow


def job_row(closed: ClosedJob, billed: Bill | None = None) -> JobRow:
    """Raises UnbalancedEntry. `billed` is its bill, where that is known already."""
    job, billed = closed.job, billed or bill(closed.deliveries, closed.job.hold)
    prompt_tokens = completion_tokens = 0
    attempts: list[AttemptRow] = []
    for delivery, part in zip(closed.deliveries, billed.splits, strict=True):
        prompt_tokens = max(prompt_tokens, delivery.prompt_tokens)
        completion_tokens += delivery.completion_tokens
        attempts.append(_attempt_row(job, len(attempts), delivery, part))
    promo_nano = billed.cost.promo
    cost_nano = promo_nano + billed.cost.paid
    return JobRow(
        job.id,
        job.opened_unix_s,
        closed.closed_unix_s,
        job.account,
        job.key,
        job.model,
        closed.state.value,
        _storable(closed.reason),
        _storable(closed.finish_reason),
        job.stream,
        prompt_tokens,
        completion_tokens,
        cost_nano,
        promo_nano,
        tuple(attempts),
        tuple(job_postings(closed, billed)),
    )


def _storable(text: str | None) -> str | None:
    """Nodes have a say in it, and Postgres takes no NUL: one such job would hold up all that are posted with it."""
    return text and text.replace("\0", "�")


def _attempt_row(job: OpenedJob, position: int, delivery: Delivery, part: RevenueSplit) -> AttemptRow:
    price = delivery.price
    return AttemptRow(
        job.id,
        job.opened_unix_s,
        position,
        delivery.node_id,
        delivery.owner,
        job.model,
        delivery.outcome,
        delivery.prompt_tokens,
        delivery.completion_tokens,
        delivery.claimed_tokens,
        price.prompt,
        price.completion,
        part.net_paid,
        part.net_promo,
        part.fee_promo + part.fee_paid,
        delivery.first_token_ms,
        delivery.duration_ms,
    )
