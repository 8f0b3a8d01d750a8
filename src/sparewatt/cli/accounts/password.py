"""`sparewatt password`: change it, or set it anew with a token."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.accounts.login import email_option, prompt_email, prompt_password
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import address_options, json_option, network_options


@click.group()
def password() -> None:
    """Change or reset your password.

    \b
    Example:
      sparewatt password change
    """


@password.command("change")
@json_option
@network_options
def change(client: ApiClient, *, as_json: bool) -> None:
    """Change your password. Every browser is logged out; keys go on.

    \b
    Example:
      sparewatt password change
    """
    body = {
        "current_password": prompt_password("Current password"),
        "password": prompt_password("New password", confirm=True),
    }
    reply = client.post("/password", body)
    _print(reply.json(), "The password is changed.", as_json=as_json)


@password.command("request")
@email_option
@json_option
@address_options
def request(client: ApiClient, *, email: str | None, as_json: bool) -> None:
    """Have a reset token sent to your e-mail, if the network sends mail.

    \b
    Example:
      sparewatt password request --email ann@example.org
    """
    reply = client.post("/password/reset-request", {"email": prompt_email(email)})
    _print(reply.json(), "If the network knows this address, a mail is on its way.", as_json=as_json)


@password.command("reset")
@json_option
@address_options
def reset(client: ApiClient, *, as_json: bool) -> None:
    """Set a new password with a reset token. Token and password are asked for, or read from stdin, a line each.

    \b
    Example:
      sparewatt password reset
    """
    body = {"token": prompt_password("Reset token"), "password": prompt_password("New password", confirm=True)}
    reply = client.post("/password/reset", body)
    _print(reply.json(), "The password is set. Log in with 'sparewatt login'.", as_json=as_json)


def _print(told: object, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(told)
    else:
        output.print_lines([text])
