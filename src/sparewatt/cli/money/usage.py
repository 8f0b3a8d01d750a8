"""`sparewatt usage`: what an account used, by day, model, key or job."""

from __future__ import annotations

from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.money.statements import csv_option, fetch_lines, print_csv, span_options


@click.command()
@click.option("--by", type=click.Choice(["day", "model", "key", "job"]), default="day", show_default=True)
@click.option("--key", metavar="ID", help="Of one key only.")
@click.option("--account", metavar="ID_OR_EMAIL", help="Of somebody else; for operators.")
@span_options
@csv_option
@json_option
@network_options
def usage(
    client: ApiClient,
    *,
    by: str,
    key: str | None,
    account: str | None,
    from_: str | None,
    to_: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show what you used and what it cost. Answers appear here about a second after their end.

    \b
    Example:
      sparewatt usage --by model
      sparewatt usage --by job --from 2026-11-01 --to 2026-11-30 --csv > november.csv
    """
    query = {"by": by, "key": key, "account": account, "from": from_, "to": to_}
    if as_csv:
        print_csv(client, "/usage", query)
        return
    lines = fetch_lines(client, "/usage", query)
    if as_json:
        output.print_json({"object": "list", "data": lines})
    elif lines:
        _print_jobs(lines) if by == "job" else _print_groups(lines, by=by)
    else:
        output.note("Nothing was used in this time. Ask something with 'sparewatt chat MODEL \"Say hello\"'.")


def _print_groups(lines: list[dict[str, Any]], *, by: str) -> None:
    columns = [*output.left(by.upper()), *output.right("JOBS", "TOKENS IN", "TOKENS OUT", "COST", "OF IT FREE")]
    rows = [[line["name"], *_counts(line, jobs=line["jobs"])] for line in lines]
    total = {name: sum(line[name] for line in lines) for name in ("prompt_tokens", "completion_tokens")}
    money = {f"{name}_usd": _sum_usd(lines, name) for name in ("cost", "promo")}
    rows.append(["total", *_counts(total | money, jobs=sum(line["jobs"] for line in lines))])
    output.print_table(columns, rows, may_drop=("OF IT FREE", "TOKENS IN"))


def _counts(line: dict[str, Any], *, jobs: int) -> list[str]:
    tokens = [output.format_count(line["prompt_tokens"]), output.format_count(line["completion_tokens"])]
    return [
        output.format_count(jobs),
        *tokens,
        output.format_usd(line["cost_usd"]),
        output.format_usd(line["promo_usd"]),
    ]


def _sum_usd(lines: list[dict[str, Any]], name: str) -> str:
    from sparewatt.core.money import format_usd

    return format_usd(sum(line[f"{name}_nano"] for line in lines))


def _print_jobs(lines: list[dict[str, Any]]) -> None:
    columns = [*output.left("WHEN", "JOB", "MODEL", "STATE"), *output.right("TOKENS IN", "TOKENS OUT", "COST")]
    rows = [
        [
            line["opened_at"][:19],
            line["id"],
            line["model"],
            line["state"],
            output.format_count(line["prompt_tokens"]),
            output.format_count(line["completion_tokens"]),
            output.format_usd(line["cost_usd"]),
        ]
        for line in lines
    ]
    output.print_table(columns, rows, may_drop=("TOKENS IN", "STATE", "MODEL", "WHEN"))
