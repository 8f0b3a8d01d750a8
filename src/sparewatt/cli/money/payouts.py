"""`sparewatt payouts`: what was put into batches for the chain, how to fetch it, and whether a root holds."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import json_option, network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import DefaultGroup
from sparewatt.cli.money.statements import PAGE_LINES, PAGES_MAX, path_with_query


class Payment(msgspec.Struct):
    epoch: int
    created_at: float
    address: str
    amount_usd: str
    earned_usd: str
    state: str


class Batch(msgspec.Struct):
    epoch: int
    created_at: float
    root: str
    leaves: int
    promised_usd: str
    promised_micro: int
    added_usd: str
    state: str


class _Payments(msgspec.Struct):
    data: list[Payment]


class _Batches(msgspec.Struct):
    data: list[Batch]


class Claim(msgspec.Struct):
    address: str
    amount_usd: str
    state: str
    reason: str | None = None
    tx: str | None = None


class _Claims(msgspec.Struct):
    data: list[Claim]
    claimed_usd: str
    waiting_usd: str
    waiting_micro: int


@click.group(cls=DefaultGroup, default="list")
def payouts() -> None:
    """Show what you were paid, fetch it, and check it.

    \b
    Example:
      sparewatt payouts
      sparewatt payouts claim
      sparewatt payouts verify 3
    """


@payouts.command("list")
@click.option("--account", metavar="ID_OR_EMAIL", help="Of somebody else; for operators.")
@json_option
@network_options
def list_payouts(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """List your payouts, the newest first.

    \b
    Example:
      sparewatt payouts list
    """
    reply = client.get(path_with_query("/payouts", {"account": account, "limit": PAGE_LINES}))
    found = reply.parse(_Payments).data
    if as_json:
        output.print_json(reply.json())
    elif found:
        columns = [*output.left("BATCH", "WHEN", "STATE"), *output.right("AMOUNT", "IN ALL"), *output.left("ADDRESS")]
        output.print_table(columns, [_payment_row(row) for row in found], may_drop=("ADDRESS", "IN ALL", "WHEN"))
    else:
        output.note("No payouts yet. 'sparewatt node earnings' shows what is pending for the next batch.")


def _payment_row(row: Payment) -> output.Row:
    when = output.ago(row.created_at, now_s=time.time())
    amounts = output.format_usd(row.amount_usd), output.format_usd(row.earned_usd)
    return [str(row.epoch), when, row.state, *amounts, row.address]


@payouts.command("batches")
@json_option
@network_options
def list_batches(client: ApiClient, *, as_json: bool) -> None:
    """List the network's payout batches. Anybody may.

    \b
    Example:
      sparewatt payouts batches
    """
    reply = client.get(path_with_query("/payouts/batches", {"limit": PAGE_LINES}))
    found = reply.parse(_Batches).data
    if as_json:
        output.print_json(reply.json())
    elif found:
        columns = [
            *output.left("BATCH", "WHEN", "STATE"),
            *output.right("LEAVES", "ADDED", "IN ALL"),
            *output.left("ROOT"),
        ]
        output.print_table(columns, [_batch_row(row) for row in found], may_drop=("WHEN", "LEAVES", "ADDED"))
    else:
        output.note("No batch yet. An operator can make one now with 'sparewatt payouts make'.")


def _batch_row(row: Batch) -> output.Row:
    when, count = output.ago(row.created_at, now_s=time.time()), output.format_count(row.leaves)
    amounts = output.format_usd(row.added_usd), output.format_usd(row.promised_usd)
    return [str(row.epoch), when, row.state, count, *amounts, row.root]


@payouts.command("make")
@json_option
@network_options
def make_batch(client: ApiClient, *, as_json: bool) -> None:
    """Put what was earned into a batch now, instead of at its time. For operators.

    \b
    Example:
      sparewatt payouts make
    """
    told = client.post("/payouts/batches", {}).json()
    if as_json:
        output.print_json(told)
    elif told["made"]:
        batch = msgspec.convert(told["batch"], Batch)
        output.print_lines([f"Batch {batch.epoch}: {output.format_usd(batch.added_usd)} more, root {batch.root}."])
    else:
        output.note("Nothing new was earned or spent since the last batch.")


@payouts.command("claim")
@click.option("--account", metavar="ID_OR_EMAIL", help="Of somebody else; for operators.")
@json_option
@network_options
def claim(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """Fetch what you earned, as far as its batches are on the chain. It goes to your account's address there.

    \b
    Example:
      sparewatt payouts claim
    """
    reply = client.post(path_with_query("/payouts/claim", {"account": account}), {})
    told = reply.parse(_Claims)
    claimed = [each for each in told.data if each.state == "claimed"]
    if as_json:
        output.print_json(reply.json())
    elif told.data:
        output.print_lines(
            [f"Claimed {output.format_usd(each.amount_usd)} to {each.address} ({each.tx})." for each in claimed]
        )
    else:
        output.note(_nothing_to_claim(told))
    for failed in [each for each in told.data if each not in claimed]:
        amount = output.format_usd(failed.amount_usd)
        raise CliError(f"{amount} for {failed.address} could not be claimed: {failed.reason}")


def _nothing_to_claim(told: _Claims) -> str:
    waits = f" {output.format_usd(told.waiting_usd)} wait for their batch to be posted." if told.waiting_micro else ""
    return f"Nothing to claim now; {output.format_usd(told.claimed_usd)} were claimed so far.{waits}"


@payouts.command("verify")
@click.argument("epoch", type=click.IntRange(1))
@json_option
@network_options
def verify(client: ApiClient, *, epoch: int, as_json: bool) -> None:
    """Compute a batch's root from its published leaves, here, and compare.

    \b
    Example:
      sparewatt payouts verify 3
    """
    from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree

    batch, leaves = _fetch_batch(client, epoch)
    entries = [PayoutEntry(leaf["address"], leaf["earned_micro"], leaf["spent_micro"]) for leaf in leaves]
    root = "0x" + settlement_tree(entries).root.hex()
    promised = sum(leaf["earned_micro"] for leaf in leaves)
    holds = root == batch.root and promised == batch.promised_micro and len(leaves) == batch.leaves
    if as_json:
        output.print_json({"epoch": epoch, "root": root, "published_root": batch.root, "verified": holds})
    elif holds:
        output.print_lines([f"Batch {epoch} holds: {len(leaves)} leaves make the root {root}."])
    if not holds:
        raise CliError(
            f"Batch {epoch} does not hold: its {len(leaves)} leaves make {root}, published is {batch.root}.",
            next_step="Keep this output: it is evidence against the operator.",
        )


def _fetch_batch(client: ApiClient, epoch: int) -> tuple[Batch, list[dict[str, Any]]]:
    leaves: list[dict[str, Any]] = []
    after: str | None = None
    for _ in range(PAGES_MAX + 50):
        path = path_with_query(path_of("payouts", "batches", str(epoch)), {"limit": PAGE_LINES, "after": after})
        reply = client.get(path)
        told = reply.json()
        leaves += told["data"]
        after = told["next"]
        if after is None:
            return reply.parse(Batch), leaves
    raise CliError(f"Batch {epoch} has more leaves than a contract takes.")
