"""`sparewatt signup`, `login` and `logout`: an account on this machine, by a key made for it.

Passwords are asked for, or read from stdin; never taken from the command line, where every process can read them.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import SCOPES, NetworkContext, address_options, json_option, resolve_network
from sparewatt.cli.credentials import Login, forget_login, read_logins, save_login
from sparewatt.cli.errors import ApiError, CliError, ExitCode

KEY_LIFE_S = 90 * 24 * 3600
"""A machine that is lost or sold should not stay logged in for ever."""

email_option = click.option("--email", metavar="ADDRESS", help="Your e-mail; asked for if not given.")


class Account(msgspec.Struct):
    id: str
    name: str | None = None
    email: str | None = None
    role: str | None = None


class _LoggedIn(msgspec.Struct):
    account: Account
    csrf_token: str
    notice: str | None = None
    """What a new account should know."""


class _MadeKey(msgspec.Struct):
    id: str
    key: str


@click.command()
@email_option
@click.option("--name", metavar="NAME", help="How the network calls you.")
@click.option("--invite", metavar="TOKEN", help="An invitation, where the network wants one.")
@json_option
@address_options
def signup(client: ApiClient, *, email: str | None, name: str | None, invite: str | None, as_json: bool) -> None:
    """Make an account and log in on this machine. The password is asked for, or read from stdin.

    \b
    Example:
      sparewatt signup --email ann@example.org
    """
    body: dict[str, object] = {"email": prompt_email(email), "password": prompt_password(confirm=True)}
    body |= {key: value for key, value in (("name", name), ("invite", invite)) if value}
    _save_and_report(client, *_log_in(client, "/signup", body), as_json=as_json)


@click.command()
@email_option
@json_option
@address_options
def login(client: ApiClient, *, email: str | None, as_json: bool) -> None:
    """Log in on this machine: later commands use a key made for it. The password is asked for, or read from stdin.

    \b
    Example:
      sparewatt login --base-url https://gateway.example/v1 --email ann@example.org
    """
    body = {"email": prompt_email(email), "password": prompt_password()}
    _save_and_report(client, *_log_in(client, "/login", body), as_json=as_json)


@click.command()
@json_option
@address_options
def logout(client: ApiClient, *, as_json: bool) -> None:
    """Log out: revoke this machine's key and forget it.

    \b
    Example:
      sparewatt logout
    """
    known = next((login for login in read_logins() if login.base_url == client.base_url), None)
    if known is None:
        raise CliError(f"You are not logged in at {client.base_url}.", exit_code=ExitCode.NOT_FOUND)
    revoked = _revoke_key(known)
    forget_login(known.base_url)
    if as_json:
        output.print_json({"base_url": known.base_url, "key_id": known.key_id, "revoked": revoked})
    else:
        output.print_lines([f"Logged out of {known.base_url}."])
        output.note(_remaining_key())


def _remaining_key() -> str:
    """What commands use from here on: without a login they may find another key, with other powers."""
    try:
        network = resolve_network(insecure=True)
    except CliError:
        return "No key is left on this machine. 'sparewatt login' makes one."
    if os.environ.get("SPAREWATT_API_KEY"):
        return "Commands now use the key in SPAREWATT_API_KEY."
    login = next((login for login in read_logins() if login.api_key == network.api_key), None)
    whose = "the start-up key of the network, an operator's," if login is None else f"your login as {login.email}"
    return f"Commands now use {whose} at {network.base_url}."


def _revoke_key(known: Login) -> bool:
    """False where the network did not know the key any more."""
    try:
        ApiClient(NetworkContext(known.base_url, known.api_key)).delete(path_of("keys", known.key_id))
    except ApiError as error:
        if error.http_status in {401, 404}:
            return False
        raise
    return True


def prompt_email(given: str | None) -> str:
    if given:
        return given
    if not sys.stdin.isatty():
        raise CliError("There is no terminal to ask for the e-mail.", next_step="Pass --email.")
    return str(click.prompt("E-mail", err=True))


def prompt_password(label: str = "Password", *, confirm: bool = False) -> str:
    """Typed twice for a new one; in a pipe, the next line of stdin."""
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, confirmation_prompt=confirm, err=True))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise CliError(f"No {label.lower()} came from stdin.", next_step="Type it, or pipe it in as one line.")
    return line


def _log_in(client: ApiClient, path: str, body: Mapping[str, object]) -> tuple[Login, str | None]:
    """In through the door, then a key for this machine, then the door is closed again. Also what was said there."""
    reply = client.post(path, body)
    entered = reply.parse(_LoggedIn)
    cookie = (reply.headers.get("Set-Cookie") or "").partition(";")[0]
    headers = {"Cookie": cookie, "x-sparewatt-csrf": entered.csrf_token}
    wanted = {"name": f"login on {_machine_name()}", "scopes": list(SCOPES), "expires_in_s": KEY_LIFE_S}
    made = client.post("/keys", wanted, headers=headers).parse(_MadeKey)
    client.post("/logout", {}, headers=headers)
    email = entered.account.email or str(body["email"])
    return Login(client.base_url, made.key, made.id, entered.account.id, email), entered.notice


def _machine_name() -> str:
    return "".join(c for c in platform.node() if c.isprintable())[:80] or "this machine"


def _save_and_report(client: ApiClient, made: Login, notice: str | None, *, as_json: bool) -> None:
    save_login(made)
    told = {"base_url": made.base_url, "account_id": made.account_id, "email": made.email, "key_id": made.key_id}
    if as_json:
        output.print_json(told if notice is None else told | {"notice": notice})
        return
    output.print_lines([f"Logged in at {client.base_url} as {made.email} ({made.account_id})."])
    output.note("Commands on this machine use its own key for 90 days, or until 'sparewatt logout'.")
    if notice is not None:
        output.note(notice)
