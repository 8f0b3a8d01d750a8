"""`sparewatt payouts`: payout batches, how to claim what one earned, and whether a batch's Merkle root holds."""

from __future__ import annotations

import time
from typing import Literal

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of, path_with_query
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.money.statements import PAGE_LINES, PAGES_MAX, account_option
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.payouts import (
    Payout,
    PayoutBatch,
    PayoutBatchCreation,
    PayoutBatchLeaves,
    PayoutBatchList,
    PayoutClaimList,
    PayoutLeaf,
    PayoutList,
)


@click.group(cls=DefaultGroup, default="list")
@examples("sparewatt payouts", "sparewatt payouts claim", "sparewatt payouts verify 3")
def payouts() -> None:
    """Show what you were paid, claim it, and check it."""


@payouts.command("list")
@account_option
@network_options
@examples("sparewatt payouts list")
def list_payouts(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """List your payouts, the newest first."""
    reply = client.get(path_with_query("/payouts", {"account": account, "limit": PAGE_LINES}))
    reply.show(PayoutList, _print_payouts, as_json=as_json)


def _print_payouts(listed: PayoutList) -> None:
    if not listed.data:
        output.note("No payouts yet. 'sparewatt node earnings' shows what is pending for the next batch.")
        return
    columns: list[Column[Payout]] = [
        left("BATCH", lambda payout: str(payout.epoch)),
        left("WHEN", lambda payout: output.ago(payout.created_at, now_s=time.time())),
        left("STATE", lambda payout: payout.state),
        right("AMOUNT", lambda payout: output.format_usd(payout.amount_usd)),
        right("IN ALL", lambda payout: output.format_usd(payout.earned_usd)),
        left("ADDRESS", lambda payout: payout.address),
    ]
    output.print_table(columns, listed.data, may_drop=("ADDRESS", "IN ALL", "WHEN"))


@payouts.command("decide")
@click.argument("epoch", type=int)
@click.option("--post-again", "action", flag_value="post_again", help="The batch is right: post its root again.")
@click.option("--make-anew", "action", flag_value="make_anew", help="Take it back, and compute it again.")
@network_options
@examples("sparewatt payouts decide 4 --make-anew")
def decide(client: ApiClient, *, epoch: int, action: str | None, as_json: bool) -> None:
    """Decide what becomes of a batch whose root the guardian struck. For operators."""
    if action is None:
        raise click.UsageError("Say what to do: --post-again or --make-anew.")

    def show(creation: PayoutBatchCreation) -> None:
        output.note("A new batch was made." if creation.made else "Its root is posted again.")

    reply = client.post(path_of("payouts", "batches", str(epoch), "decide"), {"action": action})
    reply.show(PayoutBatchCreation, show, as_json=as_json)


@payouts.command("batches")
@network_options
@examples("sparewatt payouts batches")
def list_batches(client: ApiClient, *, as_json: bool) -> None:
    """List the network's payout batches. Any account may see them."""
    reply = client.get(path_with_query("/payouts/batches", {"limit": PAGE_LINES}))
    reply.show(PayoutBatchList, _print_batches, as_json=as_json)


def _print_batches(listed: PayoutBatchList) -> None:
    if not listed.data:
        output.note("No batch yet. An operator can make one now with 'sparewatt payouts make'.")
        return
    columns: list[Column[PayoutBatch]] = [
        left("BATCH", lambda batch: str(batch.epoch)),
        left("WHEN", lambda batch: output.ago(batch.created_at, now_s=time.time())),
        left("STATE", lambda batch: batch.state),
        right("LEAVES", lambda batch: output.format_count(batch.leaves)),
        right("ADDED", lambda batch: output.format_usd(batch.added_usd)),
        right("IN ALL", lambda batch: output.format_usd(batch.promised_usd)),
        left("ROOT", lambda batch: batch.root),
    ]
    output.print_table(columns, listed.data, may_drop=("WHEN", "LEAVES", "ADDED"))


@payouts.command("make")
@network_options
@examples("sparewatt payouts make")
def make_batch(client: ApiClient, *, as_json: bool) -> None:
    """Make a batch of what was earned now, before it is due. For operators."""
    client.post("/payouts/batches", {}).show(PayoutBatchCreation, _print_creation, as_json=as_json)


def _print_creation(creation: PayoutBatchCreation) -> None:
    batch = creation.batch
    if batch is None:
        output.note("Nothing new was earned or spent since the last batch.")
    else:
        output.print_lines([f"Batch {batch.epoch}: {output.format_usd(batch.added_usd)} more, root {batch.root}."])


@payouts.command("claim")
@account_option
@network_options
@examples("sparewatt payouts claim")
def claim(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """Claim what you earned and were rewarded, as far as its batches are on the chain.

    It goes to your account's address there; rewards that you want as a bond go into it.
    """
    reply = client.post(path_with_query("/payouts/claim", {"account": account}), {})
    reply.show(PayoutClaimList, _print_claims, as_json=as_json)
    for each in reply.parse(PayoutClaimList).data:
        if each.state == "failed":
            amount = output.format_usd(each.amount_usd)
            raise CliError(f"{amount} for {each.address} could not be claimed: {each.reason}")


def _print_claims(claims: PayoutClaimList) -> None:
    if claims.data:
        output.print_lines(
            f"Claimed {output.format_usd(each.amount_usd)} to {each.address} ({each.tx})."
            for each in claims.data
            if each.state == "claimed"
        )
        return
    waiting, claimed = output.format_usd(claims.waiting_usd), output.format_usd(claims.claimed_usd)
    waits = f" {waiting} wait for their batch to be posted." if claims.waiting_micro else ""
    output.note(f"Nothing to claim now; {claimed} were claimed so far.{waits}")


@payouts.command("verify")
@click.argument("epoch", type=click.IntRange(1))
@network_options
@examples("sparewatt payouts verify 3")
def verify(client: ApiClient, *, epoch: int, as_json: bool) -> None:
    """Compute a batch's Merkle root from its published leaves, here, and compare."""
    from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree

    batch, leaves = fetch_batch(client, epoch)
    tree = settlement_tree([PayoutEntry(leaf.address, leaf.earned_micro, leaf.spent_micro) for leaf in leaves])
    root = "0x" + tree.root.hex()
    promised_micro = sum(leaf.earned_micro for leaf in leaves)
    holds = root == batch.root and promised_micro == batch.promised_micro and len(leaves) == batch.leaves
    if as_json:
        output.print_json({"epoch": epoch, "root": root, "published_root": batch.root, "verified": holds})
    elif holds:
        output.print_lines([f"Batch {epoch} holds: {len(leaves)} leaves make the root {root}."])
    if not holds:
        raise CliError(
            f"Batch {epoch} does not hold: its {len(leaves)} leaves make {root}, published is {batch.root}.",
            next_step="Keep this output: it is evidence against the operator.",
        )


def fetch_batch(
    client: ApiClient, epoch: int, *, pool: Literal["earned", "rewards"] = "earned"
) -> tuple[PayoutBatch, list[PayoutLeaf]]:
    """With all its leaves, in the order of the tree."""
    leaves: list[PayoutLeaf] = []
    after: str | None = None
    for _ in range(PAGES_MAX + 50):
        query = {"limit": PAGE_LINES, "after": after, "pool": None if pool == "earned" else pool}
        path = path_with_query(path_of("payouts", "batches", str(epoch)), query)
        page = client.get(path).parse(PayoutBatchLeaves)
        leaves += page.data
        after = page.next
        if after is None:
            return page, leaves
    raise CliError(f"Batch {epoch} has more leaves than a contract takes.")
