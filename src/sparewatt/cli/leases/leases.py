"""`sparewatt lease`: quote an order, send it, follow it to its provider, and end the lease.

Exit codes: 0 all orders have a provider (or were sent, with --no-wait), 5 nobody could or would serve one.
"""

from __future__ import annotations

import secrets
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import network_options, quiet_option
from sparewatt.cli.errors import ApiError, CliError, ExitCode
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.leases.access.commands import connect_port, publish_port, run_command, show_logs
from sparewatt.cli.leases.lease_view import ENDED, print_lease, print_leases
from sparewatt.cli.leases.order_options import OrderDraft, order_options, read_draft
from sparewatt.cli.leases.ordering import follow_orders, send_order
from sparewatt.cli.leases.quote_view import print_offers, print_quote
from sparewatt.cli.leases.running import CHANGE_COMMANDS
from sparewatt.cli.leases.secret_sender import SecretSender, chain_url_option, secrets_of
from sparewatt.cli.leases.secret_values import read_values
from sparewatt.cli.leases.serving import TOKEN_SECRET, JoinTokenMaker, find_served, make_image
from sparewatt.cli.money.credits import id_option
from sparewatt.protocol.api.lease_match import LeaseMatch
from sparewatt.protocol.api.leases import Lease, LeaseChanged, LeaseDetails, LeaseList, LeaseQuote

CHOSEN_MAX = 8
all_option = click.option("--all", "acts_on_all", is_flag=True, help="Every lease of this name that has not ended.")


@click.group(cls=DefaultGroup, default="list")
@examples(
    "sparewatt lease create -f gpu.yaml --dry-run",
    "sparewatt lease create --image docker.io/library/nginx:1.27 --gpus 0 --duration 2h",
    "sparewatt lease list",
)
def lease() -> None:
    """Rent machines of the network by an auction that anybody can check.

    The winner's machine starts the container. 'lease logs', 'lease exec' and 'lease connect' reach what runs there;
    'sparewatt lease close ID' ends it and gives the rest of the deposit back.
    """


for _command in CHANGE_COMMANDS:
    lease.add_command(_command)


@lease.command("create")
@order_options
@click.option("--dry-run", is_flag=True, help="Show who could serve it and what it would cost. Exit code 5: nobody.")
@click.option("--choose", is_flag=True, help="List the offers, and order from those that you choose.")
@click.option("--anyway", is_flag=True, help="Order also if nobody could serve it now; needs a highest price.")
@click.option("--yes", is_flag=True, help="Do not ask before the order is sent.")
@click.option("--no-wait", is_flag=True, help="Do not follow the order.")
@chain_url_option
@click.option("--public", "public_port", type=int, metavar="PORT", help="Give this port a public address, too.")
@id_option
@network_options
@examples(
    "sparewatt lease create -f gpu.yaml",
    "sparewatt lease create --image ghcr.io/me/train:1 --gpu rtx-4090 --duration 8h --max-spend 5",
    "sparewatt lease create --serve smollm2-135m --duration 4h",
)
def create(
    client: ApiClient,
    *,
    dry_run: bool,
    choose: bool,
    anyway: bool,
    yes: bool,
    no_wait: bool,
    chain_url: str | None,
    public_port: int | None,
    reference: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Order a lease: an auction among the providers that fit, decided by the network's validators.

    Prices are per hour and all-in: no fee comes on top. The deposit is held from your credits and is the most that a
    lease can cost. Exit codes: 0 matched, 5 nobody could or would serve it, 1 other failures, 2 a bad order.
    """
    served = None if options["serve"] is None else find_served(options["serve"], options["image"])
    draft = read_draft(options if served is None else {**options, "image": served.image})
    values = {} if dry_run else read_values(options["secrets"], names=secrets_of(draft.fields))
    made = {}
    if served is not None:
        served.complete(draft)
        made = {TOKEN_SECRET: JoinTokenMaker(client)}
    draft.add_port(public_port)
    _tell_translation(draft)
    quote = _quote(client, draft)
    if dry_run:
        _show_quote(quote, as_json=as_json)
        raise SystemExit(ExitCode.OK if quote.able else ExitCode.NO_MATCH)
    if choose:
        draft.set_policy("only", _choose(quote, as_json=as_json))
        quote = _quote(client, draft)
    if not quote.able and not (anyway and quote.max_hourly_usd is not None):
        _show_quote(quote, as_json=as_json)
        raise SystemExit(ExitCode.NO_MATCH)
    if not as_json:
        print_quote(quote)
    if not yes and not as_json and sys.stdin.isatty():
        click.confirm(f"Order {quote.count} for {output.format_usd(quote.total_usd)} at most?", abort=True, err=True)
    reference = reference or secrets.token_hex(8)
    sealer = SecretSender(client, values, names=secrets_of(draft.fields), chain_url=chain_url, made=made)
    send_order(
        client,
        draft,
        quote,
        reference=reference,
        waits=not no_wait,
        as_json=as_json,
        on_matched=sealer.send_all,
        public_port=public_port,
    )
    if no_wait:
        sealer.tell_unsent(quote.name)
    sealer.require_sent()


@lease.command("list")
@quiet_option
@network_options
@examples("sparewatt lease list")
def list_leases(client: ApiClient, *, as_json: bool, quiet: bool) -> None:
    """List your leases and orders, the newest first."""

    def show(listed: LeaseList) -> None:
        if quiet:
            output.print_lines(each.id for each in listed.data)
        elif listed.data:
            print_leases(listed.data)
        else:
            output.note("You have no leases. 'sparewatt lease create --help' shows how to order one.")

    client.get_all("/leases").show(LeaseList, show, as_json=as_json)


@lease.command("show")
@click.argument("wanted", metavar="ID_OR_NAME")
@network_options
@examples("sparewatt lease show trainer")
def show_lease(client: ApiClient, *, wanted: str, as_json: bool) -> None:
    """Show a lease of yours, by its id, its order's id or its name."""
    client.get(path_of("leases", wanted)).show(
        LeaseDetails, lambda each: print_lease(each, why=_why(client, each)), as_json=as_json
    )


@lease.command("follow")
@click.argument("wanted", metavar="ID_OR_NAME")
@network_options
@examples("sparewatt lease follow trainer")
def follow_lease(client: ApiClient, *, wanted: str, as_json: bool) -> None:
    """Follow an order until it has a provider or has ended. Exit code 5: it has none."""
    found = client.get(path_of("leases", wanted)).parse(Lease)
    follow_orders(client, [found], as_json=as_json)


@lease.command("close")
@click.argument("wanted", metavar="ID_OR_NAME")
@all_option
@id_option
@network_options
@examples("sparewatt lease close trainer", "sparewatt lease close trainer --all")
def close_lease(client: ApiClient, *, wanted: str, acts_on_all: bool, reference: str | None, as_json: bool) -> None:
    """End a lease. You pay for the seconds that it ran; the rest of the deposit is yours again.

    A lease that is closed before its provider had to start it costs the provider's reservation: the time set for the
    start, at the agreed price. One that was not started in that time costs nothing.
    """
    done = "Closed. What is left of the deposit is yours."
    _act(client, wanted, "close", done, acts_on_all=acts_on_all, reference=reference, as_json=as_json)


@lease.command("cancel")
@click.argument("wanted", metavar="ID_OR_NAME")
@all_option
@id_option
@network_options
@examples("sparewatt lease cancel trainer", "sparewatt lease cancel trainer --all")
def cancel_lease(client: ApiClient, *, wanted: str, acts_on_all: bool, reference: str | None, as_json: bool) -> None:
    """Withdraw an order that has no provider yet. It costs nothing."""
    done = "Cancelled. The whole deposit is yours."
    _act(client, wanted, "cancel", done, acts_on_all=acts_on_all, reference=reference, as_json=as_json)


lease.add_command(make_image)
lease.add_command(show_logs)
lease.add_command(run_command)
lease.add_command(connect_port)
lease.add_command(publish_port)


def _quote(client: ApiClient, draft: OrderDraft) -> LeaseQuote:
    try:
        return client.post("/leases/dry-run", draft.fields).parse(LeaseQuote)
    except ApiError as error:
        raise draft.locate(error) from None


def _tell_translation(draft: OrderDraft) -> None:
    if draft.notes:
        output.note(f"{draft.path} is read as {draft.format}:")
    for each in draft.notes:
        output.note(f"  {each}")


def _show_quote(quote: LeaseQuote, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        output.print_json(msgspec.to_builtins(quote))
    else:
        print_quote(quote)


def _choose(quote: LeaseQuote, *, as_json: bool) -> list[str]:
    """The addresses of the chosen providers: at most eight, as many as an order can name."""
    if not quote.offers:
        _show_quote(quote, as_json=as_json)
        raise SystemExit(ExitCode.NO_MATCH)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        print_offers(quote.offers, numbered=True)
    text = click.prompt(f"Which ones? Numbers with commas, at most {CHOSEN_MAX}", err=True)
    try:
        numbers = sorted({int(word) for word in str(text).replace(",", " ").split()})
    except ValueError:
        numbers = []
    if not numbers or not (numbers[0] >= 1 and numbers[-1] <= len(quote.offers)) or len(numbers) > CHOSEN_MAX:
        raise CliError(f"Choose 1 to {CHOSEN_MAX} of the numbers 1 to {len(quote.offers)}.", exit_code=ExitCode.USAGE)
    return [quote.offers[number - 1].provider for number in numbers]


def _why(client: ApiClient, each: Lease) -> str | None:
    """Why an order found nobody; None for others, and where the gateway does not know."""
    if each.order_id is None or each.order is None or each.order.lease is not None:
        return None
    try:
        return client.get(path_of("leases", each.order_id, "match")).parse(LeaseMatch).why
    except ApiError:
        return None


def _act(
    client: ApiClient,
    wanted: str,
    act: str,
    done: str,
    *,
    acts_on_all: bool,
    reference: str | None,
    as_json: bool,
) -> None:
    def show(changed: LeaseChanged) -> None:
        output.note(done)
        print_lease(changed.lease)

    body = {} if reference is None else {"id": reference}
    if not acts_on_all:
        client.post(path_of("leases", wanted, act), body).show(LeaseChanged, show, as_json=as_json)
        return
    changed = [_act_on(client, each, act, body) for each in _running(client, wanted, act)]
    if as_json:
        import msgspec

        output.print_json({"leases": msgspec.to_builtins(changed)})
    else:
        output.note(done)
        print_leases(changed)


def _running(client: ApiClient, name: str, act: str) -> list[Lease]:
    """Those of a name that can be closed, or cancelled. Raises CliError if there is none."""
    listed = client.get_all("/leases").parse(LeaseList).data
    found = [each for each in listed if each.name == name and each.phase not in ENDED]
    found = [each for each in found if (each.phase == "matched") is (act == "close")]
    if not found:
        raise CliError(
            f"No lease called {name!r} can be {act}{'led' if act == 'cancel' else 'd'} now.",
            next_step="See yours with 'sparewatt lease list'.",
            exit_code=ExitCode.NOT_FOUND,
        )
    return found


def _act_on(client: ApiClient, each: Lease, act: str, body: dict[str, str]) -> Lease:
    """Each has an id of its own, so that a repetition is done once."""
    own = {"id": f"{body['id']}-{each.id}"} if body else {}
    return client.post(path_of("leases", each.id, act), own).parse(LeaseChanged).lease
