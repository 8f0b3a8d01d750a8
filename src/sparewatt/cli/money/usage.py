"""`sparewatt usage`: what an account used, by day, model, key or job."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import examples
from sparewatt.cli.money.statements import Query, fetch_pages, json_lines, print_csv, statement_options
from sparewatt.cli.output import Column, left, right
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.usage import JobUsage, JobUsageList, UsageGroup, UsageGroupList


@click.command()
@click.option("--by", type=click.Choice(["day", "model", "key", "job"]), default="day", show_default=True)
@click.option("--key", metavar="ID", help="Of one key only.")
@statement_options
@network_options
@examples(
    "sparewatt usage --by model", "sparewatt usage --by job --from 2026-11-01 --to 2026-11-30 --csv > november.csv"
)
def usage(client: ApiClient, *, by: str, key: str | None, span: Query, as_csv: bool, as_json: bool) -> None:
    """Show what you used and what it cost. Answers appear here about a second after their end."""
    query = {"by": by, "key": key, **span}
    if as_csv:
        print_csv(client, "/usage", query)
        return
    pages = list(fetch_pages(client, "/usage", query))
    if as_json:
        output.print_json({"object": "list", "data": json_lines(pages)})
    elif not json_lines(pages):
        output.note("Nothing was used in this time. Ask something with 'sparewatt chat MODEL \"Say hello\"'.")
    elif by == "job":
        _print_jobs([job for page in pages for job in page.parse(JobUsageList).data])
    else:
        _print_groups([group for page in pages for group in page.parse(UsageGroupList).data], by=by)


def _print_groups(groups: list[UsageGroup], *, by: str) -> None:
    columns: list[Column[UsageGroup]] = [
        left(by.upper(), lambda group: group.name),
        right("JOBS", lambda group: output.format_count(group.jobs)),
        right("TOKENS IN", lambda group: output.format_count(group.prompt_tokens)),
        right("TOKENS OUT", lambda group: output.format_count(group.completion_tokens)),
        right("COST", lambda group: output.format_usd(group.cost_usd)),
        right("OF IT FREE", lambda group: output.format_usd(group.promo_usd)),
    ]
    output.print_table(columns, [*groups, _total(groups)], may_drop=("OF IT FREE", "TOKENS IN"))


def _total(groups: list[UsageGroup]) -> UsageGroup:
    cost_nano, promo_nano = sum(group.cost_nano for group in groups), sum(group.promo_nano for group in groups)
    return UsageGroup(
        name="total",
        jobs=sum(group.jobs for group in groups),
        prompt_tokens=sum(group.prompt_tokens for group in groups),
        completion_tokens=sum(group.completion_tokens for group in groups),
        cost_usd=format_usd(cost_nano),
        cost_nano=cost_nano,
        promo_usd=format_usd(promo_nano),
        promo_nano=promo_nano,
    )


def _print_jobs(jobs: list[JobUsage]) -> None:
    columns: list[Column[JobUsage]] = [
        left("WHEN", lambda job: job.opened_at[:19]),
        left("JOB", lambda job: job.id),
        left("MODEL", lambda job: job.model),
        left("STATE", lambda job: job.state),
        right("TOKENS IN", lambda job: output.format_count(job.prompt_tokens)),
        right("TOKENS OUT", lambda job: output.format_count(job.completion_tokens)),
        right("COST", lambda job: output.format_usd(job.cost_usd)),
    ]
    output.print_table(columns, jobs, may_drop=("TOKENS IN", "STATE", "MODEL", "WHEN"))
