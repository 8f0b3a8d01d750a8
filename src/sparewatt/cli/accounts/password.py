"""`sparewatt password`: change it, or set a new one with a reset token."""

from __future__ import annotations

import click

from sparewatt.cli.accounts.login import email_option, prompt_email, prompt_password
from sparewatt.cli.client import ApiClient
from sparewatt.cli.context import address_options, network_options
from sparewatt.protocol.api.accounts import PasswordChangeResult, PasswordResetRequestResult


@click.group()
def password() -> None:
    """Change or reset your password.

    \b
    Example:
      sparewatt password change
    """


@password.command("change")
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
    reply.show(PasswordChangeResult, lambda _: print("The password is changed."), as_json=as_json)


@password.command("request")
@email_option
@address_options
def request(client: ApiClient, *, email: str | None, as_json: bool) -> None:
    """Have a reset token sent to your e-mail, if the network sends mail.

    \b
    Example:
      sparewatt password request --email ann@example.org
    """
    reply = client.post("/password/reset-request", {"email": prompt_email(email)})
    text = "If the network knows this address, a mail is on its way."
    reply.show(PasswordResetRequestResult, lambda _: print(text), as_json=as_json)


@password.command("reset")
@address_options
def reset(client: ApiClient, *, as_json: bool) -> None:
    """Set a new password with a reset token. Token and password are asked for, or read from stdin, a line each.

    \b
    Example:
      sparewatt password reset
    """
    body = {"token": prompt_password("Reset token"), "password": prompt_password("New password", confirm=True)}
    reply = client.post("/password/reset", body)
    text = "The password is set. Log in with 'sparewatt login'."
    reply.show(PasswordChangeResult, lambda _: print(text), as_json=as_json)
