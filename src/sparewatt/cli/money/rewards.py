"""`sparewatt rewards`: what eras paid, to whom and why; the pool; and where a node's rewards go."""

from __future__ import annotations

import time

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of, path_with_query
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.money.statements import PAGE_LINES, account_option, amount_body
from sparewatt.cli.output import Column, left, right
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.rewards import (
    AccountReward,
    AccountRewardList,
    Era,
    EraList,
    EraReply,
    NodeReward,
    RewardFunding,
    RewardTarget,
    ValidatorReward,
)

NANO_PER_MICRO = 1_000
NODE_CHARS = 12
PPM = 10**6


@click.group(cls=DefaultGroup, default="list")
@examples("sparewatt rewards", "sparewatt rewards show 12", "sparewatt rewards target berlin-4090 bond")
def rewards() -> None:
    """Show what eras paid and why, and check it."""


@rewards.command("list")
@account_option
@network_options
@examples("sparewatt rewards list")
def list_rewards(client: ApiClient, *, account: str | None, as_json: bool) -> None:
    """List what your nodes got, the newest era first."""
    reply = client.get(path_with_query("/rewards", {"account": account, "limit": PAGE_LINES}))
    reply.show(AccountRewardList, _print_rewards, as_json=as_json)


def _print_rewards(listed: AccountRewardList) -> None:
    if not listed.data:
        output.note("No rewards yet. 'sparewatt rewards eras' shows when the next era ends.")
        return
    columns: list[Column[AccountReward]] = [
        left("ERA", lambda row: str(row.era)),
        left("ENDED", lambda row: output.ago(row.until, now_s=time.time())),
        left("NODE", lambda row: row.node[:NODE_CHARS]),
        right("AVAILABILITY", lambda row: _dollars(row.availability_micro)),
        right("UPTIME", lambda row: _dollars(row.uptime_micro)),
        right("QUALITY", lambda row: _dollars(row.quality_micro)),
        right("TOTAL", lambda row: _dollars(row.total_micro)),
    ]
    output.print_table(columns, listed.data, may_drop=("ENDED", "QUALITY", "UPTIME"))
    output.note(
        f"{_dollars(listed.waiting_micro)} wait for the chain, {_dollars(listed.posted_micro)} are on it, "
        f"{_dollars(listed.claimed_micro)} were claimed. 'sparewatt payouts claim' claims."
    )


@rewards.command("eras")
@network_options
@examples("sparewatt rewards eras")
def list_eras(client: ApiClient, *, as_json: bool) -> None:
    """List the eras, and what is in the pool."""
    client.get(path_with_query("/rewards/eras", {"limit": PAGE_LINES})).show(EraList, _print_eras, as_json=as_json)


def _print_eras(listed: EraList) -> None:
    columns: list[Column[Era]] = [
        left("ERA", lambda era: str(era.era)),
        left("ENDED", lambda era: output.ago(era.until, now_s=time.time())),
        left("STATE", lambda era: era.state),
        right("POOL", lambda era: _dollars(era.pool_micro)),
        right("GIVEN", lambda era: _dollars(era.given_micro)),
        left("ROOT", lambda era: era.root or "none"),
    ]
    if listed.data:
        output.print_table(columns, listed.data, may_drop=("ROOT", "ENDED"))
    hours = f"{listed.era_s / 3_600:g}"
    output.note(f"An era is {hours} hours long; {output.format_usd(listed.held_usd)} wait in the pool for the next.")


@rewards.command("show")
@click.argument("era", type=click.IntRange(1))
@network_options
@examples("sparewatt rewards show 12", "sparewatt rewards show 12 --json")
def show_era(client: ApiClient, *, era: int, as_json: bool) -> None:
    """Show an era: who got what, by which factors, and what held each back."""
    client.get(path_of("rewards", "eras", str(era))).show(EraReply, _print_era, as_json=as_json)


def _print_era(era: EraReply) -> None:
    inputs = era.inputs
    share = f"{inputs.rule.share_ppm / 10_000:g} %"
    output.print_facts(
        [
            ("Era", f"{era.era}, {era.state}"),
            ("Pool", _dollars(era.pool_micro)),
            ("From fees", f"{share} of ${format_usd(inputs.inference_fees_nano + inputs.lease_fees_nano)}"),
            ("Held before", f"${format_usd(inputs.held_nano)}"),
            ("Given", _dollars(era.given_micro)),
            ("Carried on", f"${format_usd(era.carried_nano)}"),
            ("Inputs", era.inputs_hash),
            ("Root", era.root or "none"),
        ]
    )
    print()
    _print_nodes(era)
    validators: list[Column[ValidatorReward]] = [
        left("VALIDATOR", lambda row: row.operator),
        right("WEIGHT", lambda row: output.format_count(row.weight)),
        right("REWARD", lambda row: _dollars(row.micro)),
    ]
    if era.rewards.validators:
        print()
        output.print_table(validators, era.rewards.validators)
    output.note(f"'sparewatt trust replay {era.era}' computes all of it again, here.")


def _print_nodes(era: EraReply) -> None:
    columns: list[Column[NodeReward]] = [
        left("NODE", lambda row: row.node[:NODE_CHARS]),
        right("VERIFIED", lambda row: f"{row.verified_units / PPM:.3f}/{row.claimed_units / PPM:g}"),
        right("TIER", lambda row: f"{row.tier_ppm / PPM:g}"),
        right("UP", lambda row: f"{row.availability_ppm / 10_000:.1f}%"),
        right("RAMP", lambda row: f"{row.ramp_ppm / 10_000:.0f}%"),
        right("QUALITY", lambda row: f"{row.quality_ppm / 10_000:.1f}%"),
        right("REWARD", lambda row: _dollars(row.total_micro)),
        left("WHY NOT MORE", lambda row: row.why),
    ]
    output.print_table(columns, era.rewards.nodes, may_drop=("WHY NOT MORE", "RAMP", "TIER"))


@rewards.command("fund")
@click.argument("usd")
@click.option("--id", "reference", help="Your own id: the same one is never posted twice.")
@network_options
@examples("sparewatt rewards fund 100 --id november")
def fund(client: ApiClient, *, usd: str, reference: str | None, as_json: bool) -> None:
    """Put money into the pool of the next eras. For operators."""
    reply = client.post("/rewards/fund", amount_body(usd, reference=reference))
    reply.show(RewardFunding, _print_funding, as_json=as_json)


def _print_funding(funding: RewardFunding) -> None:
    again = "" if funding.posted else " (this id was posted before: nothing changed)"
    output.print_lines([f"The pool holds {output.format_usd(funding.held_usd)}{again}."])


@rewards.command("target")
@click.argument("node")
@click.argument("to", type=click.Choice(["account", "bond"]))
@network_options
@examples("sparewatt rewards target berlin-4090 bond")
def target(client: ApiClient, *, node: str, to: str, as_json: bool) -> None:
    """Choose where a node's rewards go: your account's address, or the bond of its provider."""
    reply = client.post(path_of("nodes", node, "reward-target"), {"to": to})
    reply.show(RewardTarget, _print_target, as_json=as_json)


def _print_target(chosen: RewardTarget) -> None:
    where = "the bond of its provider" if chosen.to == "bond" else "your account's address"
    output.print_lines([f"From the next era on, rewards of {chosen.node[:NODE_CHARS]} go to {where}."])


def _dollars(micro: int) -> str:
    return output.format_usd(format_usd(micro * NANO_PER_MICRO))
