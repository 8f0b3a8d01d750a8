"""`sparewatt whoami`: who a command speaks for, and what it may do."""

from __future__ import annotations

import time

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.accounts.keys import Key, describe_limits
from sparewatt.cli.accounts.login import Account
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import json_option, network_options


class Me(msgspec.Struct):
    account: Account
    role: str
    scopes: list[str]
    key: Key | None = None


@click.command()
@json_option
@network_options
def whoami(client: ApiClient, *, as_json: bool) -> None:
    """Show who you are at this network, and what the key in use may do.

    \b
    Example:
      sparewatt whoami
    """
    reply = client.get("/me")
    if as_json:
        output.print_json(reply.json())
        return
    me = reply.parse(Me)
    facts = [
        ("Network", client.base_url),
        ("Account", f"{me.account.name or output.UNKNOWN} ({me.account.id})"),
        ("E-mail", me.account.email or output.UNKNOWN),
        ("Role", me.role),
        ("May", ", ".join(me.scopes)),
    ]
    if me.key is not None:
        facts.append(("Key", f"{me.key.name} ({me.key.id})"))
        facts.append(("Limits", describe_limits(me.key, now_s=time.time())))
    output.print_facts(facts)
