"""`sparewatt providers`: your nodes as providers of leases, each with an address and a bond of its own on the chain."""

from __future__ import annotations

import time

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_of, path_with_query
from sparewatt.cli.context import network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.money.credits import format_time_left, id_option
from sparewatt.cli.money.statements import NEGATIVE_IS_NO_OPTION, account_option, amount_body
from sparewatt.cli.output import Column, left, right
from sparewatt.cli.param_types import ADDRESS
from sparewatt.protocol.api.providers import Provider, ProviderChanged, ProviderList, WalletTransactionReply

NOT_OFFERED = "not offered: the node is offline, or needs 'sparewatt node leases on'"
CHOSEN_STATUSES = ("active", "maintenance", "left")


@click.group(cls=DefaultGroup, default="list")
@examples(
    "sparewatt providers",
    "sparewatt providers register berlin-4090",
    "sparewatt providers bond berlin-4090 10",
)
def providers() -> None:
    """Offer your nodes for leases: register each as a provider, and bond it.

    A provider is one node. First allow leases at the machine itself: sparewatt node leases on.
    """


@providers.command("list")
@account_option
@quiet_option
@network_options
@examples("sparewatt providers list")
def list_providers(client: ApiClient, *, account: str | None, as_json: bool, quiet: bool) -> None:
    """List your providers with their bonds."""

    def show(listed: ProviderList) -> None:
        if quiet:
            output.print_lines(provider.id for provider in listed.data)
        else:
            _print_providers(listed.data)

    client.get(path_with_query("/providers", {"account": account})).show(ProviderList, show, as_json=as_json)


@providers.command("show")
@click.argument("wanted", metavar="NODE_OR_ADDRESS")
@network_options
@examples("sparewatt providers show berlin-4090")
def show_provider(client: ApiClient, *, wanted: str, as_json: bool) -> None:
    """Show one provider, by its node's name or address, or by its own address."""
    client.get(path_of("providers", wanted)).show(Provider, _print_provider, as_json=as_json)


@providers.command("register")
@click.argument("node", metavar="NODE")
@click.option("--wallet", type=ADDRESS, help="Print the transaction by which this wallet registers it, instead.")
@network_options
@examples(
    "sparewatt providers register berlin-4090",
    "sparewatt providers register berlin-4090 --wallet 0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
)
def register(client: ApiClient, *, node: str, wallet: str | None, as_json: bool) -> None:
    """Register a node of yours as a provider, under an address whose key the network keeps for your account.

    With --wallet nothing is sent: your wallet sends the printed transaction, and then owns bond and pay. The node's key
    serves one provider for ever.
    """
    if wallet is not None:
        reply = client.post("/providers/wallet", {"node": node, "wallet": wallet})
        reply.show(WalletTransactionReply, _print_transaction, as_json=as_json)
        return
    _announce("Registering on the chain …", as_json=as_json)
    _report(client.post("/providers", {"node": node}), "Registered.", as_json=as_json)


@providers.command("bond", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("wanted", metavar="NODE_OR_ADDRESS")
@click.argument("usd", metavar="USD")
@click.option("--from", "source", type=click.Choice(["credits", "earnings"]), default="credits", show_default=True)
@id_option
@network_options
@examples("sparewatt providers bond berlin-4090 10", "sparewatt providers bond berlin-4090 2.50 --from earnings")
def bond(client: ApiClient, *, wanted: str, usd: str, source: str, reference: str | None, as_json: bool) -> None:
    """Add to a provider's bond, out of credits or earnings. It answers for bids and leases that the node does not keep.

    A bid needs an hour of the order's highest price as free bond.
    """
    _announce("Bonding on the chain …", as_json=as_json)
    body = amount_body(usd, reference=reference) | {"source": source}
    _report(client.post(path_of("providers", wanted, "bond"), body), "Bonded.", as_json=as_json)


@providers.command("unbond", context_settings=NEGATIVE_IS_NO_OPTION)
@click.argument("wanted", metavar="NODE_OR_ADDRESS")
@click.argument("usd", metavar="USD")
@id_option
@network_options
@examples("sparewatt providers unbond berlin-4090 10")
def unbond(client: ApiClient, *, wanted: str, usd: str, reference: str | None, as_json: bool) -> None:
    """Take free bond out. It stays at risk for the network's unbonding time, then it becomes credits by itself."""
    _announce("Unbonding on the chain …", as_json=as_json)
    body = amount_body(usd, reference=reference)
    _report(client.post(path_of("providers", wanted, "unbond"), body), "Unbonding has begun.", as_json=as_json)


@providers.command("status")
@click.argument("wanted", metavar="NODE_OR_ADDRESS")
@click.argument("status", type=click.Choice(CHOSEN_STATUSES))
@network_options
@examples("sparewatt providers status berlin-4090 maintenance")
def set_status(client: ApiClient, *, wanted: str, status: str, as_json: bool) -> None:
    """Take leases, pause for maintenance, or leave the market. A bid that was made stays binding."""
    _announce("Changing the status on the chain …", as_json=as_json)
    _report(client.post(path_of("providers", wanted, "status"), {"status": status}), "Done.", as_json=as_json)


def _announce(text: str, *, as_json: bool) -> None:
    if not as_json:
        output.note(text)


def _report(reply: ApiReply, text: str, *, as_json: bool) -> None:
    def show(result: ProviderChanged) -> None:
        output.note(_outcome(result, text))
        _print_provider(result.provider)

    reply.show(ProviderChanged, show, as_json=as_json)


def _outcome(result: ProviderChanged, text: str) -> str:
    if not result.changed:
        return "Done before, nothing changed."
    if result.request is not None and result.request.kind == "bond" and result.request.state != "done":
        return "Asked for. Your credits become money on the chain with the next payout root, then they are bonded."
    return text


def _print_providers(listed: list[Provider]) -> None:
    if not listed:
        output.note("None of your nodes is a provider. 'sparewatt providers register NODE' makes it one.")
        return
    columns: list[Column[Provider]] = [
        left("STATUS", lambda provider: provider.status),
        left("NODE", lambda provider: provider.name),
        right("BOND", lambda provider: output.format_usd(provider.bond_usd)),
        right("FREE", lambda provider: output.format_usd(provider.free_usd)),
        right("LOCKED", lambda provider: output.format_usd(provider.locked_usd)),
        right("UNBONDING", lambda provider: output.format_usd(provider.unbonding_usd)),
        left("ADDRESS", lambda provider: provider.id),
    ]
    output.print_table(columns, listed, may_drop=("UNBONDING", "LOCKED", "ADDRESS"))


def _print_provider(provider: Provider) -> None:
    output.print_facts(
        [
            ("Provider", provider.id),
            ("Node", f"{provider.name} ({provider.node})"),
            ("Status", provider.status),
            ("Leases", "offered" if provider.offers_leases else NOT_OFFERED),
            ("Key", "kept by the network for your account" if provider.held else "in your wallet"),
            ("Bond", output.format_usd(provider.bond_usd)),
            ("Free", f"{output.format_usd(provider.free_usd)}, for bids"),
            ("Locked", f"{output.format_usd(provider.locked_usd)}, for leases"),
            ("Unbonding", _unbonding(provider, now_s=time.time())),
        ]
    )


def _unbonding(provider: Provider, *, now_s: float) -> str:
    amount = output.format_usd(provider.unbonding_usd)
    if provider.unbonded_at is None:
        return amount
    return f"{amount}, your credits {format_time_left(max(0.0, provider.unbonded_at - now_s))}"


def _print_transaction(made: WalletTransactionReply) -> None:
    output.note("Send this from your wallet. The network shows the provider once it is on the chain.")
    output.print_facts(
        [
            ("Chain", str(made.chain_id)),
            ("From", made.sender),
            ("To", made.to),
            ("Value", made.value),
            ("Data", made.data),
        ]
    )
