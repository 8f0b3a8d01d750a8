"""`sparewatt lease pause | resume | top-up | extend | update | scale | events | secrets | reopen`: a lease that runs.

Each sends one request under an id, so that the same command with the same --id is done once.
"""

from __future__ import annotations

import secrets as random_bytes
import sys
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import network_options
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.leases.lease_view import print_lease, print_leases
from sparewatt.cli.leases.money_view import at_text, print_events
from sparewatt.cli.leases.secret_sender import SecretSender, chain_url_option
from sparewatt.cli.leases.secret_values import read_values, secret_names
from sparewatt.cli.leases.serving import TOKEN_SECRET, JoinTokenMaker
from sparewatt.cli.money.credits import id_option
from sparewatt.core.plural import pluralize
from sparewatt.protocol.api.lease_changes import LeaseChangePlan, LeaseEventList
from sparewatt.protocol.api.leases import LeaseChanged, LeaseDetails, LeaseScaled, LeaseUpdated

CHANGE_S = 90.0
"""A change waits for up to two requests on the chain and for its provider's answer."""
lease_argument = click.argument("wanted", metavar="ID_OR_NAME")
max_spend_option = click.option("--max-spend", metavar="USD", help="Raise what this lease may cost at most.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask before it is sent.")


@click.command("pause")
@lease_argument
@id_option
@network_options
@examples("sparewatt lease pause trainer")
def pause(client: ApiClient, *, wanted: str, reference: str | None, as_json: bool) -> None:
    """Stop the program and the meter. Memory and disk are kept until the grace ends; then the provider may go."""
    _act(client, wanted, "pause", "Paused. Nothing is paid from now on.", reference=reference, as_json=as_json)


@click.command("resume")
@lease_argument
@id_option
@network_options
@examples("sparewatt lease resume trainer")
def resume(client: ApiClient, *, wanted: str, reference: str | None, as_json: bool) -> None:
    """Have a paused lease go on. The meter runs again from its provider's confirmation."""
    done = "Resumed: its provider has to confirm that it runs."
    _act(client, wanted, "resume", done, reference=reference, as_json=as_json)


@click.command("reopen")
@lease_argument
@id_option
@network_options
@examples("sparewatt lease reopen trainer")
def reopen(client: ApiClient, *, wanted: str, reference: str | None, as_json: bool) -> None:
    """Hold a new auction for an order that found no provider, or lost its last one.

    Secrets have to be sealed to the new candidates: 'sparewatt lease secrets' does.
    """
    done = "A new auction is open. 'sparewatt lease follow' shows it."
    _act(client, wanted, "reopen", done, reference=reference, as_json=as_json)


@click.command("top-up")
@lease_argument
@click.argument("usd", metavar="USD")
@max_spend_option
@id_option
@network_options
@examples("sparewatt lease top-up trainer 2.50", "sparewatt lease top-up trainer 10 --max-spend 25")
def top_up(
    client: ApiClient, *, wanted: str, usd: str, max_spend: str | None, reference: str | None, as_json: bool
) -> None:
    """Add credits to a lease's deposit. One that was paused for want of it goes on by itself."""
    body = _body(reference, usd=usd, max_spend=max_spend)
    done = f"${usd} added to the deposit."
    _send(client, wanted, "top-up", body, done, as_json=as_json)


@click.command("extend")
@lease_argument
@click.argument("duration", metavar="DURATION")
@max_spend_option
@click.option("--dry-run", is_flag=True, help="Only show what it would cost.")
@yes_option
@id_option
@network_options
@examples("sparewatt lease extend trainer 2h", "sparewatt lease extend trainer 7d --max-spend 40")
def extend(
    client: ApiClient,
    *,
    wanted: str,
    duration: str,
    max_spend: str | None,
    dry_run: bool,
    yes: bool,
    reference: str | None,
    as_json: bool,
) -> None:
    """Let a lease go on for longer, at the same price. Its provider accepts it by its own rules.

    What it costs is added to the deposit first. Beyond the lease's max_spend it is refused, unless --max-spend raises
    that.
    """
    body = _body(reference, duration=duration, max_spend=max_spend)
    shows_plan = dry_run or (reference is None and not as_json)
    _change(client, wanted, "extend", body, shows_plan=shows_plan, dry_run=dry_run, yes=yes, as_json=as_json)


@click.command("update")
@lease_argument
@click.option("--hourly", metavar="USD", help="Another price per hour, up to the order's highest.")
@click.option("--duration", help="How long it shall go on from now, e.g. 90m, 12h, 7d.")
@click.option("--image", help="Another image.")
@click.option("--command", help="Another command, as one line; '' for the image's own.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable to set. Every bidder could read it.")
@click.option("--unset", multiple=True, metavar="NAME", help="A variable to take away.")
@max_spend_option
@click.option("--dry-run", is_flag=True, help="Only show what it would cost.")
@yes_option
@id_option
@network_options
@examples(
    "sparewatt lease update trainer --duration 30m",
    "sparewatt lease update trainer --hourly 0.75",
    "sparewatt lease update web --image ghcr.io/me/web:2 --env COLOR=green",
)
def update(
    client: ApiClient,
    *,
    wanted: str,
    hourly: str | None,
    duration: str | None,
    image: str | None,
    command: str | None,
    env: tuple[str, ...],
    unset: tuple[str, ...],
    max_spend: str | None,
    dry_run: bool,
    yes: bool,
    reference: str | None,
    as_json: bool,
) -> None:
    """Propose another price, end or program to a lease's provider. It takes effect when the provider accepts it.

    For another image, command or variable the container is replaced once its image is there. What was on its disk is
    gone then; ports, secrets, size and the meter stay.
    """
    program = {"image": image, "command": command, "env": list(env) or None, "unset": list(unset) or None}
    if hourly is None and duration is None and all(each is None for each in program.values()):
        raise CliError(
            "Say what shall change: --hourly, --duration, --image, --command, --env or --unset.",
            exit_code=ExitCode.USAGE,
        )
    if any(each is not None for each in program.values()):
        output.note("Its container is replaced when the provider accepts it: what is on its disk does not stay.")
    body = _body(reference, hourly_usd=hourly, duration=duration, max_spend=max_spend, **program)
    shows_plan = dry_run or (reference is None and not as_json)
    _change(client, wanted, "update", body, shows_plan=shows_plan, dry_run=dry_run, yes=yes, as_json=as_json)


@click.command("scale")
@click.argument("name")
@click.option("--count", type=int, required=True, help="So many leases of this name shall there be.")
@click.option("--max-spend", metavar="USD", help="What the new ones may cost together.")
@click.option("--dry-run", is_flag=True, help="Only say which end and what is ordered.")
@yes_option
@id_option
@network_options
@examples("sparewatt lease scale workers --count 4", "sparewatt lease scale workers --count 1 --dry-run")
def scale(
    client: ApiClient,
    *,
    name: str,
    count: int,
    max_spend: str | None,
    dry_run: bool,
    yes: bool,
    reference: str | None,
    as_json: bool,
) -> None:
    """Have more or fewer leases of one name. Which ones end is said before.

    More are ordered as the newest one was. Of a surplus those without a provider end first, then the newest.
    """
    path, body = path_of("leases", name, "scale"), _body(reference, count=count, max_spend=max_spend)
    plan = client.post(path, {**body, "dry_run": True}).parse(LeaseScaled)
    if not as_json:
        _print_scale(plan)
    if dry_run:
        if as_json:
            _print_json(plan)
        return
    if not as_json and (plan.ended or plan.to_order):
        _confirm("Do it?", yes=yes)
    made = client.post(path, {**body, "dry_run": False}, timeout_s=CHANGE_S).parse(LeaseScaled)
    if as_json:
        _print_json(made)
        return
    print_leases([*made.kept, *made.ordered])
    if any(each.secrets for each in made.ordered):
        output.note(f"The new ones wait for their secrets: 'sparewatt lease secrets {made.ordered[0].id}' sends them.")


@click.command("events")
@lease_argument
@network_options
@examples("sparewatt lease events trainer", "sparewatt lease events trainer --json")
def events(client: ApiClient, *, wanted: str, as_json: bool) -> None:
    """Show what happened to a lease: who did it, why, and what was paid, refunded or compensated."""
    client.get(path_of("leases", wanted, "events")).show(LeaseEventList, print_events, as_json=as_json)


@click.command("secrets")
@lease_argument
@click.option(
    "--secret",
    "given",
    multiple=True,
    metavar="NAME[=-|=@FILE]",
    help="From the environment, from stdin (NAME=-) or from a file.  [default: all, from the environment]",
)
@chain_url_option
@network_options
@examples("sparewatt lease secrets trainer", "sparewatt lease secrets trainer --secret HF_TOKEN=- < token.txt")
def send_lease_secrets(
    client: ApiClient, *, wanted: str, given: tuple[str, ...], chain_url: str | None, as_json: bool
) -> None:
    """Seal secrets to a lease's candidates and send them. The gateway sees names and sealed bytes only."""
    from sparewatt.cli.leases.sealing import SealingContext, chain_of, send_secrets

    secret_names(given)
    lease = client.get(path_of("leases", wanted)).parse(LeaseDetails)
    values = read_values(given, names=() if given else lease.secrets)
    made = {TOKEN_SECRET: JoinTokenMaker(client)} if TOKEN_SECRET in lease.secrets and not given else {}
    made = {name: make for name, make in made.items() if name not in values}
    if not values and not made:
        sender = SecretSender(client, {}, names=lease.secrets, chain_url=None)
        raise CliError(
            "There is nothing to send: " + ("the order names no secrets." if not lease.secrets else "set them first."),
            next_step=f"The order names {', '.join(sender.names)}." if sender.names else "",
            exit_code=ExitCode.USAGE,
        )
    sent = send_secrets(SealingContext(client, chain_of(client, chain_url)), lease, values, made=made)
    if as_json:
        _print_json(sent)
        return
    count = pluralize(len(values) + len(made), "secret")
    output.note(f"{count} sealed to {pluralize(len(sent.candidates), 'candidate')} and sent.")
    if sent.missing:
        output.note(f"It still waits for {', '.join(sent.missing)}.")


CHANGE_COMMANDS = (pause, resume, reopen, top_up, extend, update, scale, events, send_lease_secrets)


# how a change is sent


def _body(reference: str | None, **fields: Any) -> dict[str, Any]:
    given = {name: value for name, value in fields.items() if value is not None}
    return {"id": reference or random_bytes.token_hex(8), **given}


def _act(client: ApiClient, wanted: str, act: str, done: str, *, reference: str | None, as_json: bool) -> None:
    _send(client, wanted, act, _body(reference), done, as_json=as_json)


def _send(client: ApiClient, wanted: str, act: str, body: dict[str, Any], done: str, *, as_json: bool) -> None:
    def show(changed: LeaseChanged) -> None:
        output.note(done)
        print_lease(changed.lease)

    client.post(path_of("leases", wanted, act), body, timeout_s=CHANGE_S).show(LeaseChanged, show, as_json=as_json)


def _change(
    client: ApiClient,
    wanted: str,
    act: str,
    body: dict[str, Any],
    *,
    shows_plan: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """`shows_plan`: not of one with an id of the caller's own, which may have been done before."""
    path = path_of("leases", wanted, act)
    if shows_plan:
        planned = client.post(path, {**body, "dry_run": True})
        planned.show(LeaseUpdated, lambda plan: _print_plan(plan.plan), as_json=as_json)
    if dry_run:
        return
    if not as_json:
        _confirm("Send it?", yes=yes)
    client.post(path, body, timeout_s=CHANGE_S).show(LeaseUpdated, _show_updated, as_json=as_json)


def _show_updated(made: LeaseUpdated) -> None:
    output.note(
        "The provider has accepted it."
        if made.accepted
        else "The provider has not accepted it yet. 'sparewatt lease events' shows when it does; what was added to the "
        "deposit comes back at the end if it does not."
    )
    print_lease(made.lease)


def _print_plan(plan: LeaseChangePlan) -> None:
    output.print_facts(
        [
            ("Ends", at_text(plan.ends_at)),
            ("Price", f"{output.format_usd(plan.hourly_usd)} an hour"),
            ("Costs from now", f"{output.format_usd(plan.cost_usd)} at most"),
            ("Added to the deposit", output.format_usd(plan.top_up_usd)),
        ]
    )


def _print_scale(plan: LeaseScaled) -> None:
    if plan.ended:
        output.print_lines([f"These end: {', '.join(each.id for each in plan.ended)}"])
    if plan.to_order:
        each = output.format_usd(plan.deposit_usd)
        output.print_lines([f"{plan.to_order} more are ordered, each with a deposit of {each}."])
    if not plan.ended and not plan.to_order:
        output.print_lines([f"There are {len(plan.kept)} already."])


def _confirm(question: str, *, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def _print_json(value: object) -> None:
    import msgspec

    output.print_json(msgspec.to_builtins(value))
