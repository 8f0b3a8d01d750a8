"""`sparewatt node earnings`: what an owner's nodes earned, line by line, summed, and net of electricity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_with_query
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.money.statements import Query, fetch_pages, json_lines, print_csv, statement_options
from sparewatt.cli.node.agent import joined_network_options
from sparewatt.cli.node.lease_income import show_lease_income
from sparewatt.cli.output import Column, Fact, left, right
from sparewatt.cli.param_types import FiniteRange
from sparewatt.core.money import NANO_PER_USD, format_usd
from sparewatt.protocol.api.earnings import (
    AttemptEarnings,
    AttemptEarningsList,
    EarningsGroup,
    EarningsGroupList,
    EarningsSummary,
    EarningsSummaryReply,
    NodeUtilisation,
)


@dataclass(frozen=True, slots=True)
class ElectricityCost:
    """What the electricity for one node's jobs cost."""

    node_id: str
    watts: float
    is_measured: bool
    kwh: float
    cost_nano: int
    earned_nano: int

    @property
    def net_nano(self) -> int:
        return self.earned_nano - self.cost_nano

    def as_json(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id,
            "watts": self.watts,
            "watts_measured": self.is_measured,
            "kwh": self.kwh,
            "cost_usd": format_usd(self.cost_nano),
            "earned_usd": format_usd(self.earned_nano),
            "net_usd": format_usd(self.net_nano),
        }


@click.command("earnings")
@click.option("--by", type=click.Choice(["job", "day", "model", "node", "lease"]), default="day", show_default=True)
@click.option("--node", "node_name", metavar="NAME_OR_ID", help="Of one node only.")
@click.option(
    "--kwh-usd",
    type=FiniteRange(0, 100),
    envvar="SPAREWATT_KWH_USD",
    help="What a kWh costs you.  [env: SPAREWATT_KWH_USD]",
)
@click.option(
    "--watts",
    type=FiniteRange(0, 1e6),
    envvar="SPAREWATT_WATTS",
    help="What a machine draws while it works, for those that do not measure it.  [env: SPAREWATT_WATTS]",
)
@statement_options
@joined_network_options
@examples(
    "sparewatt node earnings --by job",
    "sparewatt node earnings --by lease",
    "sparewatt node earnings --kwh-usd 0.30",
    "sparewatt node earnings --kwh-usd 0.30 --watts 350",
    "sparewatt node earnings --by job --from 2026-11-01 --csv > november.csv",
)
def earnings(
    client: ApiClient,
    *,
    by: str,
    node_name: str | None,
    kwh_usd: float | None,
    watts: float | None,
    span: Query,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show what your nodes earned: tokens, price, fee and net of each job, or sums of them.

    Income from free credits is listed apart: it becomes payable as far as the network's treasury covers it. With
    --kwh-usd electricity is subtracted: by the power that a node measured itself, else by --watts.
    """
    query = {"node": node_name, **span}
    if by == "lease":
        if as_csv or any(value is not None for value in query.values()):
            raise CliError(
                "--by lease shows all leases of your providers: no --csv, --node or time.", exit_code=ExitCode.USAGE
            )
        show_lease_income(client, as_json=as_json)
        return
    if as_csv:
        print_csv(client, "/earnings", {"by": by, **query})
        return
    reply = client.get(path_with_query("/earnings/summary", query))
    pages = list(fetch_pages(client, "/earnings", {"by": by, **query}))
    power = None
    if kwh_usd is not None:
        by_node = fetch_pages(client, "/earnings", {"by": "node", **query})
        groups = [group for page in by_node for group in page.parse(EarningsGroupList).data]
        nodes = reply.parse(EarningsSummaryReply).data.nodes
        power = electricity_costs(nodes, groups, watts=watts, kwh_usd=kwh_usd)
    if as_json:
        result = {"summary": reply.json()["data"], "data": json_lines(pages)}
        output.print_json(result if power is None else result | {"electricity": [each.as_json() for each in power]})
        return
    summary = reply.parse(EarningsSummaryReply).data
    output.print_facts(_facts(summary))
    if not json_lines(pages):
        output.note("Nothing was earned in this time. 'sparewatt node why' says where the jobs went instead.")
        return
    output.print_title("Earned")
    if by == "job":
        _print_attempts([attempt for page in pages for attempt in page.parse(AttemptEarningsList).data])
    else:
        _print_groups([group for page in pages for group in page.parse(EarningsGroupList).data], by=by)
    _print_nodes(summary.nodes, power)


def electricity_costs(
    nodes: Sequence[NodeUtilisation], groups: Sequence[EarningsGroup], *, watts: float | None, kwh_usd: float
) -> list[ElectricityCost]:
    """For the time in which each node worked. Its own measurement goes before `watts`, its owner's estimate.

    Power that it draws while idle is not counted. A node whose power is unknown is left out.
    """
    earned_nano = {group.name: group.net_nano for group in groups}
    costs = []
    for node in nodes:
        drawn_watts = node.working_watts if node.working_watts is not None else watts
        if drawn_watts is None or node.node_id not in earned_nano:
            continue
        kwh = drawn_watts / 1_000 * node.busy_s / 3_600
        cost_nano = round(kwh * kwh_usd * NANO_PER_USD)
        is_measured = node.working_watts is not None
        costs.append(ElectricityCost(node.node_id, drawn_watts, is_measured, kwh, cost_nano, earned_nano[node.node_id]))
    return costs


def _facts(summary: EarningsSummary) -> list[Fact]:
    usd, treasury = output.format_usd, summary.treasury
    covered = f"the treasury holds {usd(treasury.balance_usd)} and releases {usd(treasury.daily_budget_usd)} a day"
    return [
        ("Withheld", f"{usd(summary.withheld_usd)} (until the next passed check: sparewatt node why --trust)"),
        ("Pending", f"{usd(summary.pending_usd)} (comes with the next payout batch)"),
        ("Batched", f"{usd(summary.batched_usd)} (waits to be posted on chain)"),
        ("Settled", f"{usd(summary.settled_usd)} (posted; {usd(summary.claimed_usd)} claimed)"),
        ("Promo", f"{usd(summary.promo_usd)} from free credits ({covered})"),
        ("Fee", f"{summary.fee_bps / 100:g} % of what was paid; the amounts above are yours"),
    ]


def _print_attempts(attempts: list[AttemptEarnings]) -> None:
    columns: list[Column[AttemptEarnings]] = [
        left("WHEN", lambda attempt: attempt.opened_at[:19]),
        left("JOB", lambda attempt: attempt.job_id),
        left("MODEL", lambda attempt: attempt.model),
        right("TOKENS IN", lambda attempt: output.format_count(attempt.prompt_tokens)),
        right("TOKENS OUT", lambda attempt: output.format_count(attempt.completion_tokens)),
        right("$/1M IN", lambda attempt: output.format_usd(attempt.prompt_usd_per_mtok)),
        right("$/1M OUT", lambda attempt: output.format_usd(attempt.completion_usd_per_mtok)),
        right("FEE", lambda attempt: output.format_usd(attempt.fee_usd)),
        right("NET", lambda attempt: output.format_usd(attempt.net_usd)),
        right("PROMO", lambda attempt: output.format_usd(attempt.net_promo_usd)),
    ]
    output.print_table(columns, attempts, may_drop=("$/1M IN", "WHEN", "TOKENS IN", "MODEL", "$/1M OUT"))


def _print_groups(groups: list[EarningsGroup], *, by: str) -> None:
    columns: list[Column[EarningsGroup]] = [
        left(by.upper(), lambda group: group.name),
        right("JOBS", lambda group: output.format_count(group.jobs)),
        right("TOKENS IN", lambda group: output.format_count(group.prompt_tokens)),
        right("TOKENS OUT", lambda group: output.format_count(group.completion_tokens)),
        right("FEE", lambda group: output.format_usd(group.fee_usd)),
        right("NET", lambda group: output.format_usd(group.net_usd)),
        right("PROMO", lambda group: output.format_usd(group.net_promo_usd)),
    ]
    output.print_table(columns, groups, may_drop=("TOKENS IN", "FEE"))


def _print_nodes(nodes: list[NodeUtilisation], power: list[ElectricityCost] | None) -> None:
    output.print_title("Machines")
    columns: list[Column[NodeUtilisation]] = [
        left("NODE", lambda node: output.node_label(node.node_id, node.name)),
        right("BUSY", lambda node: _format_duration(node.busy_s)),
        right("UTILISATION", lambda node: f"{node.utilisation:.1%}"),
    ]
    output.print_table([*columns, *(_power_columns(power) if power else [])], nodes)
    if power is None:
        output.note("Net of electricity: add --kwh-usd. Jobs that went elsewhere: 'sparewatt node why'.")
    elif len(power) < len(nodes):
        output.note("A node that does not measure its power has no electricity here: add --watts.")


def _power_columns(power: list[ElectricityCost]) -> list[Column[NodeUtilisation]]:
    by_node = {each.node_id: each for each in power}

    def column(header: str, text: Callable[[ElectricityCost], str]) -> Column[NodeUtilisation]:
        return right(header, lambda node: text(by_node[node.node_id]) if node.node_id in by_node else output.UNKNOWN)

    return [
        column("WATTS", lambda cost: f"{cost.watts:.0f} {'measured' if cost.is_measured else 'as given'}"),
        column("KWH", lambda cost: output.format_rate(cost.kwh)),
        column("ELECTRICITY", lambda cost: output.format_usd(format_usd(cost.cost_nano))),
        column("NET OF IT", lambda cost: output.format_usd(format_usd(cost.net_nano))),
    ]


def _format_duration(seconds: float) -> str:
    """In the largest unit of which there is one."""
    for unit_s, unit in ((3_600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:.1f} s"
