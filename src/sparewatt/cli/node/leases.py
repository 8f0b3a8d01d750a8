"""`sparewatt node leases`: what this machine's node offers for leases, its bids, and the owner's rules.

A change goes to the running agent; without one, it is saved in the data directory, where the next agent reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import NOT_RUNNING, ask_agent, data_option, node_dir
from sparewatt.cli.node.lease_offer import plain_duration, print_leases
from sparewatt.cli.node.lease_rules import DISCOUNT, PRICE, UsdParam, changed_rules, checked_rules
from sparewatt.cli.param_types import ADDRESS, DURATION, FiniteRange

REGISTERED = "This node offers leases."
ON = f"{REGISTERED} 'sparewatt providers register NODE' makes it a provider, if it is none."
OFF = "This node offers no leases. If it is a provider, 'sparewatt providers status NODE maintenance' pauses it."


@click.group("leases", invoke_without_command=True)
@data_option
@json_option
@click.pass_context
@examples("sparewatt node leases", "sparewatt node leases on", "sparewatt node leases offer --price 1=0.40")
def leases(context: click.Context, *, data_dir: Path | None, as_json: bool) -> None:
    """What this machine's node offers for leases, and its bids; without a command, show it.

    A node bids once it has tried containers of Docker or podman here. Inference goes on beside a lease, unless that
    has the GPU, or all processors, that it works with.
    """
    if context.invoked_subcommand is not None:
        return
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "status"})
    report = _report(folder, status)
    if as_json:
        output.print_json(report)
        return
    print_leases(report)
    if status is None:
        output.note(NOT_RUNNING)


@leases.command("on")
@click.option("--wallet", type=ADDRESS, help="Serve no other provider than this wallet of yours.")
@data_option
@json_option
@examples("sparewatt node leases on", "sparewatt node leases on --wallet 0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
def turn_on(*, wallet: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Offer leases. Then register the node: sparewatt providers register NODE."""
    _set_leases(data_dir, {"leases": True, "lease_wallet": wallet}, as_json=as_json)


@leases.command("off")
@data_option
@json_option
@examples("sparewatt node leases off")
def turn_off(*, data_dir: Path | None, as_json: bool) -> None:
    """Offer no leases. A provider that is registered stays so: pause it with 'sparewatt providers status'."""
    _set_leases(data_dir, {"leases": False, "lease_wallet": None}, as_json=as_json)


@leases.command("offer")
@click.argument("state", type=click.Choice(["on", "off"]), required=False)
@click.option(
    "--price",
    "prices",
    multiple=True,
    type=PRICE,
    help="An hour of a lease with this many GPUs; may be repeated. Others cost as much per GPU as the next below. "
    "GPUS=none forgets one.",
)
@click.option("--cpu-price", type=UsdParam(), help="An hour of one processor, of leases without GPUs.")
@click.option(
    "--discount",
    "discounts",
    multiple=True,
    type=DISCOUNT,
    help="Off the price of leases at least this long; may be repeated. DURATION=none forgets one.",
)
@click.option("--longest", type=DURATION, help="The longest lease.  [default: 7d]")
@click.option("--refuse-image", "images", multiple=True, metavar="PATTERN", help="Also refuse images, as '*/xmrig*'.")
@click.option("--allow-image", "allowed_images", multiple=True, metavar="PATTERN", help="Refuse it no longer.")
@click.option("--refuse-tenant", "tenants", multiple=True, type=ADDRESS, help="Also refuse a renter, by address.")
@click.option("--allow-tenant", "allowed_tenants", multiple=True, type=ADDRESS, help="Refuse it no longer.")
@click.option(
    "--tenant-broken-max",
    type=FiniteRange(0, 100),
    metavar="PERCENT",
    help="Decline renters who withdrew, or closed before the start, a larger share of their orders.  [default: nobody]",
)
@click.option("--gpus", type=click.IntRange(0, 1024), help="How many GPUs leases may have.  [default: all]")
@click.option("--cpus", type=FiniteRange(0, 1e6), help="How many processors.  [default: all]")
@click.option("--memory-gb", type=FiniteRange(0, 1e6), help="How much memory.  [default: three quarters]")
@click.option("--disk-gb", type=FiniteRange(0, 1e6), help="How much disk.  [default: three quarters of the free]")
@click.option("--egress/--no-egress", default=None, help="Whether leased programs may reach the internet.")
@click.option("--reclaim", type=DURATION, help="The notice you give before you take the machine back.  [default: 1h]")
@click.option(
    "--free-command",
    metavar="COMMAND",
    help="Frees the GPUs of your model server before a lease gets them, as 'systemctl --user stop vllm'; run without a "
    "shell, for two minutes at most. 'none' forgets it.",
)
@click.option("--restore-command", metavar="COMMAND", help="Brings your model server back after the lease.")
@click.option(
    "--follow-pay/--no-follow-pay",
    default=None,
    help="Whether leases cost no less than what inference earned per hour.  [default: no]",
)
@click.option("--reset", is_flag=True, help="First forget all rules that were set.")
@data_option
@json_option
@examples(
    "sparewatt node leases offer --price 1=0.40 --price 4=1.50 --discount 7d=10 on",
    "sparewatt node leases offer --cpus 4 --memory-gb 16 --longest 2d --refuse-image '*/xmrig*'",
    "sparewatt node leases offer --free-command 'docker stop vllm' --restore-command 'docker start vllm'",
    "sparewatt node leases offer off",
)
def offer(*, state: str | None, reset: bool, data_dir: Path | None, as_json: bool, **given: Any) -> None:
    """Set prices and rules of leases. What is not named stays as it is; without 'off', leases are offered."""
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "status"})
    rules = changed_rules({} if reset else _report(folder, status)["rules"], given)
    leases_on = state != "off"
    checked = checked_rules(rules)
    if status is not None:
        status = _ask_for_rules(folder, {"leases": leases_on, "lease_rules": rules})
    else:
        _save_rules(folder, checked)
        _save_for_next_start(folder, {"leases": leases_on})
    report = _report(folder, status)
    if as_json:
        output.print_json(report)
        return
    print_leases(report)
    text = OFF if not leases_on else REGISTERED if report.get("provider") else ON
    output.note(text if status is not None else f"{text} {NOT_RUNNING}")
    _warn_of_short_notice(checked.reclaim_s)


def _ask_for_rules(folder: Path, change: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return ask_agent(folder, {"do": "lease_offer", **change})
    except CliError as error:
        error.exit_code = ExitCode.USAGE
        raise


def _warn_of_short_notice(reclaim_s: int) -> None:
    from sparewatt.leasing.orders.terms import RECLAIM_S

    if reclaim_s < RECLAIM_S:
        asked = plain_duration(RECLAIM_S)
        output.note(f"WARNING orders ask for a notice of {asked}: with less this node declines all of them.")


def _report(folder: Path, status: dict[str, Any] | None) -> dict[str, Any]:
    """What `node leases` shows: from the running agent, else what is saved."""
    from sparewatt.node.leases.rules_file import read_lease_rules
    from sparewatt.node.settings import read_saved_settings

    if status is not None:
        market = status.get("lease_market") or {"rules": {}}
        shown = {"leases": bool(status.get("leases")), "lease_wallet": status.get("lease_wallet")}
        return {"running": True} | shown | market
    saved = read_saved_settings(folder)
    rules = msgspec.to_builtins(read_lease_rules(folder))
    return {"running": False, "leases": bool(saved.leases), "lease_wallet": saved.lease_wallet, "rules": rules}


def _set_leases(data_dir: Path | None, change: dict[str, Any], *, as_json: bool) -> None:
    folder = node_dir(data_dir)
    status = ask_agent(folder, {"do": "leases", **change})
    if status is None:
        _save_for_next_start(folder, change)
    if as_json:
        output.print_json({"running": status is not None, **change})
        return
    text = ON if change["leases"] else OFF
    output.note(text if status is not None else f"{text} {NOT_RUNNING}")


def _save_rules(folder: Path, rules: Any) -> None:
    from sparewatt.node.leases.rules_file import write_lease_rules

    write_lease_rules(folder, rules)


def _save_for_next_start(folder: Path, change: dict[str, Any]) -> None:
    from sparewatt.machine.data_dir import make_private_dir, write_private
    from sparewatt.node.settings import SAVED_SETTINGS_FILE, read_saved_settings

    make_private_dir(folder)
    saved = msgspec.structs.replace(read_saved_settings(folder), **change)
    write_private(folder / SAVED_SETTINGS_FILE, msgspec.json.encode(saved))
