"""`sparewatt accounts`: what operators of a network see and do, and how a user closes their own account."""

from __future__ import annotations

import sys
import time

import click

from sparewatt.cli import output
from sparewatt.cli.accounts.login import prompt_password
from sparewatt.cli.client import ApiClient, path_of, path_with_query, print_ids
from sparewatt.cli.context import network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left
from sparewatt.cli.param_types import ADDRESS
from sparewatt.protocol.api.accounts import AccountInfo, AccountList, OneTimeToken
from sparewatt.protocol.api.credits import CreditBalanceReply, OwnAddress

ROLES = ("user", "owner", "operator")

account_argument = click.argument("account", metavar="ID|EMAIL")


@click.group(cls=DefaultGroup, default="list")
@examples("sparewatt accounts", "sparewatt accounts role ann@example.org operator")
def accounts() -> None:
    """See and manage all accounts. For operators, but for 'close --me'."""


@accounts.command("list")
@click.option("--after", metavar="ID", help="List those after this account.")
@quiet_option
@network_options
@examples("sparewatt accounts list")
def list_accounts(client: ApiClient, *, after: str | None, as_json: bool, quiet: bool) -> None:
    """List the accounts, oldest first, up to a thousand at a time."""
    reply = client.get(path_with_query("/accounts", {"after": after}))
    reply.show(AccountList, print_ids if quiet else _print_accounts, as_json=as_json)


@accounts.command("show")
@account_argument
@network_options
@examples("sparewatt accounts show ann@example.org")
def show(client: ApiClient, *, account: str, as_json: bool) -> None:
    """Show one account."""
    client.get(path_of("accounts", account)).show(AccountInfo, _print_account, as_json=as_json)


@accounts.command("role")
@account_argument
@click.argument("role", type=click.Choice(ROLES))
@network_options
@examples("sparewatt accounts role ann@example.org operator")
def role(client: ApiClient, *, account: str, role: str, as_json: bool) -> None:
    """Give an account another role."""
    client.patch(path_of("accounts", account), {"role": role}).show(AccountInfo, _print_account, as_json=as_json)


@accounts.command("close")
@click.argument("account", metavar="[ID|EMAIL]", required=False)
@click.option("--me", is_flag=True, help="Your own. Its password is asked for, or read from stdin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed for others' accounts where there is no terminal.")
@network_options
@examples(
    "sparewatt accounts close --me", "sparewatt accounts close acc_5k0wq2", "sparewatt accounts close acc_5k0wq2 --yes"
)
def close(client: ApiClient, *, account: str | None, me: bool, yes: bool, as_json: bool) -> None:
    """Close an account for good: its keys, browsers and nodes stop within seconds.

    Your own with --me; any other, if you are an operator.
    """
    if me == (account is not None):
        raise click.UsageError("Name an account, or pass --me for your own.")
    credit = client.get(path_with_query("/credits", {"account": account})).parse(CreditBalanceReply).data
    balance = output.format_usd(credit.balance_usd)
    output.note(f"{account or 'Your account'} has {balance} left, which cannot be spent once it is closed.")
    if not yes and account is not None and not sys.stdin.isatty():
        raise click.UsageError(f"{account} would be closed for good. There is no terminal to confirm it: pass --yes.")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Close {account or 'your account'} for good?", abort=True, err=True)
    if account is not None:
        reply = client.post(path_of("accounts", account, "close"), {})
    else:
        reply = client.post("/me/close", {"password": prompt_password()})
    reply.show(AccountInfo, _print_account, as_json=as_json)


@accounts.command("address")
@click.argument("own", metavar="[ADDRESS]", type=ADDRESS, required=False)
@click.option("--signature", metavar="0x…", help="By that address, of the text that this command shows without it.")
@network_options
@examples("sparewatt accounts address", "sparewatt accounts address 0x4b31f0… --signature 0x9c…")
def address(client: ApiClient, *, own: str | None, signature: str | None, as_json: bool) -> None:
    """Show your account's address on the chain, or replace the one that the network keeps for you by your own.

    With an address and no signature, it shows the text to sign with your wallet.
    """
    if signature is not None and own is None:
        raise click.UsageError("A signature is of an address: name it too.")
    if own is not None and signature is not None:
        reply = client.post("/me/address", {"address": own, "signature": signature})
    else:
        reply = client.get(path_with_query("/me/address", {"address": own}))
    reply.show(OwnAddress, _print_address, as_json=as_json)


def _print_address(own: OwnAddress) -> None:
    keeper = "the network keeps its key" if own.is_held else "your own"
    output.print_facts([("Address", f"{own.address or 'none'} ({keeper})")])
    if own.to_sign is not None:
        output.note("Sign this text with your wallet, then pass the address and --signature:")
        output.print_lines([own.to_sign])


@accounts.command("reset-password")
@account_argument
@network_options
@examples("sparewatt accounts reset-password ann@example.org")
def reset_password(client: ApiClient, *, account: str, as_json: bool) -> None:
    """Print a token with which this person can set a new password, once, within the hour."""
    reply = client.post(path_of("accounts", account, "reset-password"), {})
    use = "Hand it over safely. It is used with 'sparewatt password reset'."
    reply.show(OneTimeToken, lambda token: _print_token(token, use), as_json=as_json)


@accounts.command("invite")
@network_options
@examples("sparewatt accounts invite")
def invite(client: ApiClient, *, as_json: bool) -> None:
    """Print an invitation, with which one person can sign up within a week."""
    use = "It is used with 'sparewatt signup --invite'."
    client.post("/invites", {}).show(OneTimeToken, lambda token: _print_token(token, use), as_json=as_json)


def _print_token(token: OneTimeToken, use: str) -> None:
    print(token.token)
    output.note(f"This token is shown only this once. {use}")


def _print_account(account: AccountInfo) -> None:
    output.print_facts(
        [
            ("ID", account.id),
            ("Name", account.name),
            ("E-mail", account.email or output.UNKNOWN),
            ("Role", account.role),
            ("Chain", account.chain_address or output.UNKNOWN),
            ("State", _state(account, now_s=time.time())),
        ]
    )


def _print_accounts(listed: AccountList) -> None:
    now_s = time.time()
    columns: list[Column[AccountInfo]] = [
        left("ID", lambda account: account.id),
        left("EMAIL", lambda account: account.email or output.UNKNOWN),
        left("NAME", lambda account: account.name),
        left("ROLE", lambda account: account.role),
        left("CREATED", lambda account: output.ago(account.created_at, now_s=now_s)),
        left("STATE", lambda account: _state(account, now_s=now_s)),
    ]
    output.print_table(columns, listed.data, may_drop=("CREATED", "NAME", "STATE"))


def _state(account: AccountInfo, *, now_s: float) -> str:
    return "active" if account.closed_at is None else f"closed {output.ago(account.closed_at, now_s=now_s)}"
