"""`sparewatt market`: what orders on chain are made of, and the orders, leases, providers and validators there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlencode

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left, right
from sparewatt.cli.param_types import ADDRESS
from sparewatt.protocol.api.market import (
    MarketLease,
    MarketLeaseList,
    MarketOrder,
    MarketOrderList,
    MarketProvider,
    MarketProviderList,
    MarketTables,
    MarketValidator,
    MarketValidatorList,
    TableEntry,
    ValidatorVotes,
)

_Item = TypeVar("_Item")
TableRow = tuple[int, str, str]
ID_CHARS = 18
"""Of an id or an address in a table; `--json` has all of it."""
all_option = click.option("--all", "all_of_them", is_flag=True, help="Also what has ended.")


@click.group(cls=DefaultGroup, default="orders")
@examples("sparewatt market orders", "sparewatt market validators", "sparewatt market tables")
def market() -> None:
    """Show the lease market on the network's chain, and the ids that its orders consist of."""


@market.command("tables")
@network_options
@examples("sparewatt market tables", "sparewatt market tables --json")
def show_tables(client: ApiClient, *, as_json: bool) -> None:
    """Show the ids that orders and providers on chain use. They never change their meaning."""
    client.get("/market/tables").show(MarketTables, _print_tables, as_json=as_json)


@market.command("orders")
@all_option
@click.option("--renter", type=ADDRESS, help="Only of this renter.")
@network_options
@examples("sparewatt market orders", "sparewatt market orders --all --json")
def list_orders(client: ApiClient, *, all_of_them: bool, renter: str | None, as_json: bool) -> None:
    """List the orders on the chain, the newest first."""
    path = _path("orders", all_of_them=all_of_them, renter=renter)
    client.get_all(path).show(MarketOrderList, _print_orders, as_json=as_json)


@market.command("leases")
@all_option
@click.option("--renter", type=ADDRESS, help="Only of this renter.")
@click.option("--provider", type=ADDRESS, help="Only of this provider.")
@network_options
@examples("sparewatt market leases", "sparewatt market leases --all")
def list_leases(
    client: ApiClient, *, all_of_them: bool, renter: str | None, provider: str | None, as_json: bool
) -> None:
    """List the leases on the chain, the newest first."""
    path = _path("leases", all_of_them=all_of_them, renter=renter, provider=provider)
    client.get_all(path).show(MarketLeaseList, _print_leases, as_json=as_json)


@market.command("providers")
@all_option
@network_options
@examples("sparewatt market providers")
def list_providers(client: ApiClient, *, all_of_them: bool, as_json: bool) -> None:
    """List the providers on the chain, yours and others'. 'sparewatt providers' acts for yours."""
    client.get_all(_path("providers", all_of_them=all_of_them)).show(
        MarketProviderList, _print_providers, as_json=as_json
    )


@market.command("validators")
@network_options
@examples("sparewatt market validators")
def list_validators(client: ApiClient, *, as_json: bool) -> None:
    """List the validators with their stakes and votes, those with most weight first."""
    client.get("/market/validators").show(MarketValidatorList, _print_validators, as_json=as_json)


def _path(noun: str, *, all_of_them: bool, **filters: str | None) -> str:
    given = {"which": "all" if all_of_them else None, **filters}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return f"/market/{noun}?{query}" if query else f"/market/{noun}"


def _short(text: str | None) -> str:
    return output.UNKNOWN if text is None else text[:ID_CHARS]


def _print_list(columns: Sequence[Column[_Item]], items: Sequence[_Item], *, empty: str) -> None:
    if items:
        output.print_table(columns, items)
    else:
        output.note(empty)


def _print_orders(orders: MarketOrderList) -> None:
    columns: list[Column[MarketOrder]] = [
        left("ID", lambda order: _short(order.id)),
        left("STATE", lambda order: order.state if order.reason is None else f"{order.state} ({order.reason})"),
        right("ATTEMPT", lambda order: str(order.attempt)),
        right("GPUS", lambda order: str(order.gpu_units)),
        right("MAX/H", lambda order: output.format_usd(order.max_hourly_usd)),
        right("DEPOSIT", lambda order: output.format_usd(order.deposit_usd)),
        left("PROVIDER", lambda order: _short(order.lease.provider if order.lease else None)),
    ]
    _print_list(columns, orders.data, empty="There are no orders.")


def _print_leases(leases: MarketLeaseList) -> None:
    columns: list[Column[MarketLease]] = [
        left("ID", lambda lease: _short(lease.id)),
        left("STATE", lambda lease: lease.state if not lease.close_reason else f"{lease.state} ({lease.close_reason})"),
        left("PROVIDER", lambda lease: _short(lease.provider)),
        right("TERM", lambda lease: str(lease.term)),
        right("PER HOUR", lambda lease: output.format_usd(lease.hourly_usd)),
        right("DEPOSIT", lambda lease: output.format_usd(lease.deposit_usd)),
    ]
    _print_list(columns, leases.data, empty="There are no leases.")


def _print_providers(providers: MarketProviderList) -> None:
    columns: list[Column[MarketProvider]] = [
        left("ID", lambda provider: _short(provider.id)),
        left("STATUS", lambda provider: provider.status),
        right("GPUS", lambda provider: str(provider.gpu_units)),
        right("FREE BOND", lambda provider: output.format_usd(provider.free_usd)),
        right("LOCKED", lambda provider: output.format_usd(provider.locked_usd)),
        right("UNBONDING", lambda provider: output.format_usd(provider.unbonding_usd)),
    ]
    _print_list(columns, providers.data, empty="There are no providers.")


def _print_validators(validators: MarketValidatorList) -> None:
    columns: list[Column[MarketValidator]] = [
        left("ID", lambda validator: _short(validator.id)),
        right("WEIGHT", lambda validator: output.format_usd(validator.weight_usd)),
        right("PENDING", lambda validator: output.format_usd(validator.pending_usd)),
        right("IN CERTIFICATES", lambda validator: f"{validator.votes} of {validator.certificates}"),
        right("AGREED", lambda validator: f"{validator.recent.agreed} of {_matches(validator.recent)}"),
        right("MISSED", lambda validator: str(validator.recent.missed)),
        left("", lambda validator: "jailed" if validator.jailed else ""),
        left("URL", lambda validator: validator.url),
    ]
    _print_list(columns, validators.data, empty="There are no validators.")
    snapshot = "none yet" if validators.snapshot is None else f"epoch {validators.snapshot.epoch}"
    total = output.format_usd(validators.total_usd)
    output.print_lines([f"Stake version {validators.stake_version}, {total} in all; snapshot: {snapshot}."])


def _matches(recent: ValidatorVotes) -> int:
    return recent.agreed + recent.differed + recent.missed


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
