"""`sparewatt dashboard`: the network's page, opened as the account that commands act as."""

from __future__ import annotations

import webbrowser

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import network_options
from sparewatt.cli.groups import examples
from sparewatt.protocol.api.accounts import LoginLink


@click.command()
@click.option("--open", "opens", is_flag=True, help="Open it in this machine's browser.")
@network_options
@examples("sparewatt dashboard", "sparewatt dashboard --as operator --open")
def dashboard(client: ApiClient, *, opens: bool, as_json: bool) -> None:
    """Print a link that opens the network's page as you, without a password. It works once, for ten minutes.

    Whoever has the link is you: do not pass it on.
    """

    def show(link: LoginLink) -> None:
        output.print_lines([link.url])
        output.note("It works once, within ten minutes.")

    reply = client.post("/login/links", {})
    reply.show(LoginLink, show, as_json=as_json)
    if opens:
        webbrowser.open(reply.parse(LoginLink).url)
