"""`sparewatt node earnings`: what an owner's machines earned: line by line, summed, and net of electricity."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option
from sparewatt.cli.money.statements import csv_option, fetch_lines, path_with_query, print_csv, span_options
from sparewatt.cli.node.agent import joined_network_options
from sparewatt.cli.param_types import FiniteRange
from sparewatt.core.money import NANO_PER_USD, format_usd


class NodeTime(msgspec.Struct):
    node_id: str
    busy_s: float
    utilisation: float
    name: str | None = None
    slots: int | None = None
    working_watts: float | None = None
    """As the node measured it; None where it cannot."""


class Treasury(msgspec.Struct):
    balance_usd: str = "0"
    daily_budget_usd: str = "0"


class Summary(msgspec.Struct):
    fee_bps: int
    pending_usd: str
    batched_usd: str
    settled_usd: str
    claimed_usd: str
    promo_usd: str
    treasury: Treasury
    nodes: list[NodeTime]


class _Shown(msgspec.Struct):
    data: Summary


class ElectricityCost(msgspec.Struct):
    """What the work of one node took, at the wall."""

    node_id: str
    watts: float
    is_measured: bool
    kwh: float
    cost_nano: int
    earned_nano: int

    @property
    def net_nano(self) -> int:
        return self.earned_nano - self.cost_nano


@click.command("earnings")
@click.option("--by", type=click.Choice(["job", "day", "model", "node"]), default="day", show_default=True)
@click.option("--node", "node_name", metavar="NAME_OR_ID", help="Of one node only.")
@click.option("--account", metavar="ID_OR_EMAIL", help="Of somebody else; for operators.")
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
@span_options
@csv_option
@json_option
@joined_network_options
def earnings(
    client: ApiClient,
    *,
    by: str,
    node_name: str | None,
    account: str | None,
    kwh_usd: float | None,
    watts: float | None,
    from_: str | None,
    to_: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show what your nodes earned: tokens, price, fee and net of each job, or sums of them.

    Income from free credits stands apart: it becomes payable as far as the network's treasury covers it. With
    --kwh-usd electricity is taken off: by the power that a node measured itself, else by --watts.

    \b
    Example:
      sparewatt node earnings --by job
      sparewatt node earnings --kwh-usd 0.30
      sparewatt node earnings --kwh-usd 0.30 --watts 350
      sparewatt node earnings --by job --from 2026-11-01 --csv > november.csv
    """
    span = {"node": node_name, "account": account, "from": from_, "to": to_}
    query = {"by": by, **span}
    if as_csv:
        print_csv(client, "/earnings", query)
        return
    reply = client.get(path_with_query("/earnings/summary", span))
    lines = fetch_lines(client, "/earnings", query)
    power = None
    if kwh_usd is not None:
        by_node = fetch_lines(client, "/earnings", {"by": "node", **span})
        power = electricity_costs(reply.parse(_Shown).data.nodes, by_node, watts=watts, kwh_usd=kwh_usd)
    if as_json:
        told = {"summary": reply.json()["data"], "data": lines}
        output.print_json(told if power is None else told | {"electricity": [_cost_json(each) for each in power]})
        return
    _print_all(reply.parse(_Shown).data, lines, power, by=by)


def electricity_costs(
    nodes: list[NodeTime], by_node: list[dict[str, Any]], *, watts: float | None, kwh_usd: float
) -> list[ElectricityCost]:
    """Of the time in which each node worked; what it measured counts before what its owner says.

    What it draws while it waits is the owner's own. A node of which nobody knows the power is left out.
    """
    earned = {line["name"]: line["net_nano"] for line in by_node}
    found = []
    for node in nodes:
        drawn = node.working_watts if node.working_watts is not None else watts
        if drawn is None or node.node_id not in earned:
            continue
        kwh = drawn / 1_000 * node.busy_s / 3_600
        cost_nano = round(kwh * kwh_usd * NANO_PER_USD)
        is_measured = node.working_watts is not None
        found.append(ElectricityCost(node.node_id, drawn, is_measured, kwh, cost_nano, earned[node.node_id]))
    return found


def _cost_json(each: ElectricityCost) -> dict[str, Any]:
    money = {"cost": each.cost_nano, "earned": each.earned_nano, "net": each.net_nano}
    shown = {f"{name}_usd": format_usd(nano) for name, nano in money.items()}
    power = {"watts": each.watts, "watts_measured": each.is_measured}
    return {"node_id": each.node_id, **power, "kwh": each.kwh, **shown}


def _print_all(summary: Summary, lines: list[dict[str, Any]], power: list[ElectricityCost] | None, *, by: str) -> None:
    output.print_facts(_facts(summary))
    if not lines:
        output.note("Nothing was earned in this time. 'sparewatt node why' says where the jobs went instead.")
        return
    output.print_title("Earned")
    _print_jobs(lines) if by == "job" else _print_sums(lines, by=by)
    output.print_title("Machines")
    _print_nodes(summary.nodes, {each.node_id: each for each in power or []})
    if power is None:
        output.note("Net of electricity: add --kwh-usd. Jobs that went elsewhere: 'sparewatt node why'.")
    elif len(power) < len(summary.nodes):
        output.note("A node that does not measure its power has no electricity here: add --watts.")


def _facts(found: Summary) -> list[tuple[str, output.Cell | str]]:
    daily = output.format_usd(found.treasury.daily_budget_usd)
    covered = f"the treasury holds {output.format_usd(found.treasury.balance_usd)} and releases {daily} a day"
    return [
        ("Pending", f"{output.format_usd(found.pending_usd)} (comes with the next payout batch)"),
        ("Batched", f"{output.format_usd(found.batched_usd)} (waits to be posted on chain)"),
        ("Settled", f"{output.format_usd(found.settled_usd)} (posted; {output.format_usd(found.claimed_usd)} claimed)"),
        ("Promo", f"{output.format_usd(found.promo_usd)} from free credits ({covered})"),
        ("Fee", f"{found.fee_bps / 100:g} % of what was paid; the amounts above are yours"),
    ]


def _print_jobs(lines: list[dict[str, Any]]) -> None:
    columns = [
        *output.left("WHEN", "JOB", "MODEL"),
        *output.right("TOKENS IN", "TOKENS OUT", "$/1M IN", "$/1M OUT", "FEE", "NET", "PROMO"),
    ]
    rows = [
        [
            line["opened_at"][:19],
            line["job_id"],
            line["model"],
            output.format_count(line["prompt_tokens"]),
            output.format_count(line["completion_tokens"]),
            output.format_usd(line["prompt_usd_per_mtok"]),
            output.format_usd(line["completion_usd_per_mtok"]),
            *_money(line),
        ]
        for line in lines
    ]
    output.print_table(columns, rows, may_drop=("$/1M IN", "WHEN", "TOKENS IN", "MODEL", "$/1M OUT"))


def _print_sums(lines: list[dict[str, Any]], *, by: str) -> None:
    columns = [*output.left(by.upper()), *output.right("JOBS", "TOKENS IN", "TOKENS OUT", "FEE", "NET", "PROMO")]
    rows = [
        [
            line["name"],
            *(output.format_count(line[name]) for name in ("jobs", "prompt_tokens", "completion_tokens")),
            *_money(line),
        ]
        for line in lines
    ]
    output.print_table(columns, rows, may_drop=("TOKENS IN", "FEE"))


def _money(line: dict[str, Any]) -> list[str]:
    return [output.format_usd(line[f"{name}_usd"]) for name in ("fee", "net", "net_promo")]


def _print_nodes(nodes: list[NodeTime], power: dict[str, ElectricityCost]) -> None:
    columns = [*output.left("NODE"), *output.right("BUSY", "UTILISATION")]
    rows = [[output.node_label(n.node_id, n.name), _format_duration(n.busy_s), f"{n.utilisation:.1%}"] for n in nodes]
    if power:
        columns += output.right("WATTS", "KWH", "ELECTRICITY", "NET OF IT")
        rows = [row + _power_cells(power.get(n.node_id)) for n, row in zip(nodes, rows, strict=True)]
    output.print_table(columns, rows)


def _format_duration(seconds: float) -> str:
    """In the largest unit of which there is one."""
    for unit_s, unit in ((3_600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:.1f} s"


def _power_cells(each: ElectricityCost | None) -> list[str]:
    if each is None:
        return [output.UNKNOWN] * 4
    return [
        f"{each.watts:.0f} {'measured' if each.is_measured else 'as given'}",
        output.format_rate(each.kwh),
        *(output.format_usd(format_usd(nano)) for nano in (each.cost_nano, each.net_nano)),
    ]
