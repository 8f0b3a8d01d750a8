"""`sparewatt accounts`: what operators of a network see and do, and how anybody leaves."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.accounts.login import prompt_password
from sparewatt.cli.client import ApiClient, ApiReply, path_of
from sparewatt.cli.context import json_option, network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup
from sparewatt.cli.money.credits import Shown
from sparewatt.cli.money.statements import path_with_query

ROLES = ("user", "owner", "operator")


class Account(msgspec.Struct):
    id: str
    name: str | None = None
    email: str | None = None
    role: str | None = None
    chain_address: str | None = None
    created_at: float | None = None
    closed_at: float | None = None


class AccountList(msgspec.Struct):
    data: list[Account]


class Token(msgspec.Struct):
    token: str


account_argument = click.argument("account", metavar="ID|EMAIL")


@click.group(cls=DefaultGroup, default="list")
def accounts() -> None:
    """See and manage everybody's accounts. For operators, but for 'close --me'.

    \b
    Example:
      sparewatt accounts
      sparewatt accounts role ann@example.org operator
    """


@accounts.command("list")
@click.option("--after", metavar="ID", help="Go on behind this account.")
@quiet_option
@json_option
@network_options
def list_accounts(client: ApiClient, *, after: str | None, as_json: bool, quiet: bool) -> None:
    """List the accounts, oldest first, up to a thousand at a time.

    \b
    Example:
      sparewatt accounts list
    """
    reply = client.get("/accounts" if after is None else f"/accounts?after={path_of(after)[1:]}")
    if as_json:
        output.print_json(reply.json())
        return
    found = reply.parse(AccountList).data
    if quiet:
        output.print_lines(account.id for account in found)
    else:
        _print_accounts(found)


@accounts.command("show")
@account_argument
@json_option
@network_options
def show(client: ApiClient, *, account: str, as_json: bool) -> None:
    """Show one account.

    \b
    Example:
      sparewatt accounts show ann@example.org
    """
    _print_account(client.get(path_of("accounts", account)), as_json=as_json)


@accounts.command("role")
@account_argument
@click.argument("role", type=click.Choice(ROLES))
@json_option
@network_options
def role(client: ApiClient, *, account: str, role: str, as_json: bool) -> None:
    """Give an account another role.

    \b
    Example:
      sparewatt accounts role ann@example.org operator
    """
    _print_account(client.patch(path_of("accounts", account), {"role": role}), as_json=as_json)


@accounts.command("close")
@click.argument("account", metavar="[ID|EMAIL]", required=False)
@click.option("--me", is_flag=True, help="Your own. Its password is asked for, or read from stdin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed for others' accounts where there is no terminal.")
@json_option
@network_options
def close(client: ApiClient, *, account: str | None, me: bool, yes: bool, as_json: bool) -> None:
    """Close an account for good: its keys, browsers and nodes stop within seconds.

    Your own with --me; anybody's, if you are an operator.

    \b
    Example:
      sparewatt accounts close --me
      sparewatt accounts close acc_5k0wq2
      sparewatt accounts close acc_5k0wq2 --yes
    """
    if me == (account is not None):
        raise click.UsageError("Name an account, or say --me for your own.")
    whose = account or "Your account"
    left = client.get(path_with_query("/credits", {"account": account})).parse(Shown).data.balance_usd
    output.note(f"{whose} has {output.format_usd(left)} left, which nobody can spend once it is closed.")
    if not yes and account is not None and not sys.stdin.isatty():
        raise click.UsageError(f"{account} would be closed for good. Nobody can be asked here: say --yes.")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Close {account or 'your account'} for good?", abort=True, err=True)
    if account is not None:
        reply = client.post(path_of("accounts", account, "close"), {})
    else:
        reply = client.post("/me/close", {"password": prompt_password()})
    _print_account(reply, as_json=as_json)


@accounts.command("reset-password")
@account_argument
@json_option
@network_options
def reset_password(client: ApiClient, *, account: str, as_json: bool) -> None:
    """Print a token with which this person can set a new password, once, within the hour.

    \b
    Example:
      sparewatt accounts reset-password ann@example.org
    """
    reply = client.post(path_of("accounts", account, "reset-password"), {})
    _print_token(reply, "Hand it over safely. It is used with 'sparewatt password reset'.", as_json=as_json)


@accounts.command("invite")
@json_option
@network_options
def invite(client: ApiClient, *, as_json: bool) -> None:
    """Print an invitation, with which one person can sign up within a week.

    \b
    Example:
      sparewatt accounts invite
    """
    _print_token(client.post("/invites", {}), "It is used with 'sparewatt signup --invite'.", as_json=as_json)


def _print_token(reply: ApiReply, what: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(reply.json())
        return
    print(reply.parse(Token).token)
    output.note(f"This token is shown only this once. {what}")


def _print_account(reply: ApiReply, *, as_json: bool) -> None:
    if as_json:
        output.print_json(reply.json())
        return
    account = reply.parse(Account)
    output.print_facts(
        [
            ("ID", account.id),
            ("Name", account.name or output.UNKNOWN),
            ("E-mail", account.email or output.UNKNOWN),
            ("Role", account.role or output.UNKNOWN),
            ("Chain", account.chain_address or output.UNKNOWN),
            ("State", _state(account, now_s=time.time())),
        ]
    )


def _print_accounts(found: list[Account]) -> None:
    now_s = time.time()
    columns = output.left("ID", "EMAIL", "NAME", "ROLE", "CREATED", "STATE")
    rows = [
        [
            account.id,
            account.email or output.UNKNOWN,
            account.name or output.UNKNOWN,
            account.role or output.UNKNOWN,
            output.ago(account.created_at, now_s=now_s),
            _state(account, now_s=now_s),
        ]
        for account in found
    ]
    output.print_table(columns, rows, may_drop=("CREATED", "NAME", "STATE"))


def _state(account: Account, *, now_s: float) -> str:
    return "active" if account.closed_at is None else f"closed {output.ago(account.closed_at, now_s=now_s)}"
