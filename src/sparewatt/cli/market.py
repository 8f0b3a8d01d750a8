"""`sparewatt market`: what orders on chain are made of."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.market import MarketTables, TableEntry

TableRow = tuple[int, str, str]


@click.group(cls=DefaultGroup, default="tables")
@examples("sparewatt market tables")
def market() -> None:
    """Show the ids of countries, zones, GPUs, tiers and attested standards."""


@market.command("tables")
@network_options
@examples("sparewatt market tables", "sparewatt market tables --json")
def show_tables(client: ApiClient, *, as_json: bool) -> None:
    """Show the ids that orders and providers on chain use. They never change their meaning."""
    client.get("/market/tables").show(MarketTables, _print_tables, as_json=as_json)


def _print_tables(tables: MarketTables) -> None:
    classes = {entry.id: entry.name for entry in tables.gpu_classes}
    _print("Zones (distance in ms within the zone)", [(z.id, z.name, str(z.distances_ms[z.id])) for z in tables.zones])
    _print("GPU models", [(gpu.id, gpu.name, classes.get(gpu.gpu_class, "-")) for gpu in tables.gpu_models])
    _print("GPU classes", _rows(tables.gpu_classes))
    _print("Tiers", _rows(tables.tiers))
    _print("Standards", [(pair.id, pair.standard, pair.auditor) for pair in tables.compliance])
    _print("Countries", _rows(tables.countries))


def _rows(entries: Sequence[TableEntry]) -> list[TableRow]:
    return [(entry.id, entry.name, "") for entry in entries]


def _print(title: str, rows: Sequence[TableRow]) -> None:
    output.print_lines([title])
    columns: list[Column[TableRow]] = [
        right("ID", lambda row: str(row[0])),
        left("NAME", lambda row: row[1]),
        left("", lambda row: row[2]),
    ]
    output.print_table(columns, rows)
