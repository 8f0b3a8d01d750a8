"""Lines of statements, from rows of the store: amounts in dollars and nano-dollars, prices in dollars, times in UTC."""

from __future__ import annotations

import datetime as dt
from typing import cast

from sparewatt.core.money import format_usd
from sparewatt.protocol.api.earnings import AttemptEarnings, EarningsGroup
from sparewatt.protocol.api.feed import OutcomeName
from sparewatt.protocol.api.usage import JobStateName, JobUsage, UsageGroup
from sparewatt.store.statements import EarningLine, EarningSum, JobLine, UsageLine


def usage_group_of(row: UsageLine) -> UsageGroup:
    return UsageGroup(
        name=row.name,
        jobs=row.jobs,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=format_usd(row.cost_nano),
        cost_nano=row.cost_nano,
        promo_usd=format_usd(row.promo_nano),
        promo_nano=row.promo_nano,
    )


def job_usage_of(row: JobLine) -> JobUsage:
    return JobUsage(
        id=row.id,
        opened_at=_utc(row.opened_at),
        closed_at=_utc(row.closed_at),
        account_id=row.account_id,
        key_id=row.key_id,
        model=row.model,
        state=state_of(row),
        reason=row.reason,
        finish_reason=row.finish_reason,
        stream=row.stream,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=format_usd(row.cost_nano),
        cost_nano=row.cost_nano,
        promo_usd=format_usd(row.promo_nano),
        promo_nano=row.promo_nano,
    )


def state_of(row: JobLine) -> JobStateName:
    return cast("JobStateName", row.state)  # the table has a CHECK


def earnings_group_of(row: EarningSum) -> EarningsGroup:
    return EarningsGroup(
        name=row.name,
        jobs=row.jobs,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        fee_usd=format_usd(row.fee_nano),
        fee_nano=row.fee_nano,
        net_usd=format_usd(row.net_nano),
        net_nano=row.net_nano,
        net_promo_usd=format_usd(row.net_promo_nano),
        net_promo_nano=row.net_promo_nano,
    )


def attempt_earnings_of(row: EarningLine) -> AttemptEarnings:
    return AttemptEarnings(
        job_id=row.job_id,
        opened_at=_utc(row.opened_at),
        position=row.position,
        node_id=row.node_id,
        model=row.model,
        outcome=cast("OutcomeName", row.outcome),  # metering writes nothing else
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        prompt_usd_per_mtok=format_usd(row.prompt_price),
        completion_usd_per_mtok=format_usd(row.completion_price),
        fee_usd=format_usd(row.fee_nano),
        fee_nano=row.fee_nano,
        net_usd=format_usd(row.net_nano),
        net_nano=row.net_nano,
        net_promo_usd=format_usd(row.net_promo_nano),
        net_promo_nano=row.net_promo_nano,
        first_token_ms=row.first_token_ms,
        duration_ms=row.duration_ms,
    )


def _utc(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat()
