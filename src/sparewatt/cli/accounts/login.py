"""`sparewatt signup`, `login`, `logout`, `whoami`, `password`: an account on this machine, by an API key made for it.

Passwords are prompted for or read from stdin, never taken from the command line, where every process can read them.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping

import click

from sparewatt.cli import output
from sparewatt.cli.accounts.keys import describe_limits
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import (
    OPERATOR,
    SCOPES,
    NetworkContext,
    address_options,
    known_contexts,
    network_options,
    resolve_network,
)
from sparewatt.cli.credentials import Login, forget_login, read_logins, save_login
from sparewatt.cli.errors import ApiError, CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.protocol.api.accounts import (
    CreatedKey,
    NewSession,
    PasswordChangeResult,
    PasswordResetRequestResult,
    PrincipalInfo,
)

KEY_LIFE_S = 90 * 24 * 3600
"""A machine that is lost or sold should not stay logged in for ever."""

email_option = click.option("--email", metavar="ADDRESS", help="Your e-mail; asked for if not given.")


@click.command()
@email_option
@click.option("--name", metavar="NAME", help="Your display name.")
@click.option("--invite", metavar="TOKEN", help="An invitation, where the network wants one.")
@address_options
@examples("sparewatt signup --email ann@example.org")
def signup(client: ApiClient, *, email: str | None, name: str | None, invite: str | None, as_json: bool) -> None:
    """Make an account and log in on this machine. The password is asked for, or read from stdin."""
    body: dict[str, object] = {"email": prompt_email(email), "password": prompt_password(confirm=True)}
    body |= {key: value for key, value in (("name", name), ("invite", invite)) if value}
    _log_in(client, "/signup", body, as_json=as_json)


@click.command()
@email_option
@address_options
@examples("sparewatt login --base-url https://gateway.example/v1 --email ann@example.org")
def login(client: ApiClient, *, email: str | None, as_json: bool) -> None:
    """Log in on this machine: later commands use a key made for it. The password is asked for, or read from stdin."""
    body = {"email": prompt_email(email), "password": prompt_password()}
    _log_in(client, "/login", body, as_json=as_json)


@click.command()
@address_options
@examples("sparewatt logout")
def logout(client: ApiClient, *, as_json: bool) -> None:
    """Log out: revoke this machine's key and forget it."""
    saved = _login_in_use(client.base_url)
    if saved is None:
        raise CliError(f"You are not logged in at {client.base_url}.", exit_code=ExitCode.NOT_FOUND)
    revoked = _revoke_key(saved)
    forget_login(saved)
    if as_json:
        output.print_json({"base_url": saved.base_url, "key_id": saved.key_id, "revoked": revoked})
    else:
        output.print_lines([f"Logged out of {saved.base_url}."])
        output.note(_describe_remaining_key())


def _login_in_use(base_url: str) -> Login | None:
    """The one that was chosen, or made last, of those at this network."""
    logins = {login.api_key: login for login in read_logins() if login.base_url == base_url}
    return next((logins[each.api_key] for each in known_contexts() if each.api_key in logins), None)


def _describe_remaining_key() -> str:
    """Which key later commands use. Without a login it may be another one, with other scopes."""
    try:
        network = resolve_network(insecure=True)
    except CliError:
        return "No key is left on this machine. 'sparewatt login' makes one."
    if os.environ.get("SPAREWATT_API_KEY"):
        return "Commands now use the key in SPAREWATT_API_KEY."
    started_here = "the start-up key of the network, an operator's,"
    key = started_here if network.name.startswith(OPERATOR) else f"your login as {network.name}"
    return f"Commands now use {key} at {network.base_url}."


def _revoke_key(saved: Login) -> bool:
    """False if the network did not know the key any more."""
    try:
        ApiClient(NetworkContext(saved.base_url, saved.api_key)).delete(path_of("keys", saved.key_id))
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
    """A new password is typed twice. Without a terminal, it is the next line of stdin."""
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, confirmation_prompt=confirm, err=True))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise CliError(f"No {label.lower()} came from stdin.", next_step="Type it, or pipe it in as one line.")
    return line


def _log_in(client: ApiClient, path: str, body: Mapping[str, object], *, as_json: bool) -> None:
    """Open a session, make a key for this machine, end the session, and save the key."""
    reply = client.post(path, body)
    session = reply.parse(NewSession)
    cookies = "; ".join(cookie.partition(";")[0] for cookie in reply.headers.get_all("Set-Cookie", []))
    headers = {"Cookie": cookies, "x-sparewatt-csrf": session.csrf_token}
    wanted = {"name": f"login on {_machine_name()}", "scopes": list(SCOPES), "expires_in_s": KEY_LIFE_S}
    key = client.post("/keys", wanted, headers=headers).parse(CreatedKey)
    client.post("/logout", {}, headers=headers)
    email, account_id = session.account.email or str(body["email"]), session.account.id
    save_login(Login(client.base_url, key.key, key.id, account_id, email, session.account.role))
    notice = {"notice": session.notice} if session.notice else {}
    if as_json:
        login = {"base_url": client.base_url, "account_id": account_id, "email": email, "key_id": key.id}
        output.print_json(login | notice)
        return
    output.print_lines([f"Logged in at {client.base_url} as {email} ({account_id})."])
    output.note("Commands on this machine use its own key for 90 days, or until 'sparewatt logout'.")
    others = [each.name for each in known_contexts() if each.base_url == client.base_url and each.api_key != key.key]
    if others:
        output.note(f"To act as {others[0]} again: 'sparewatt use {others[0]}', or '--as {others[0]}' for one command.")
    for text in notice.values():
        output.note(text)


def _machine_name() -> str:
    return "".join(c for c in platform.node() if c.isprintable())[:80] or "this machine"


@click.command()
@network_options
@examples("sparewatt whoami")
def whoami(client: ApiClient, *, as_json: bool) -> None:
    """Show who you are at this network, and what the key in use may do."""

    def show(me: PrincipalInfo) -> None:
        facts = [
            ("Network", client.base_url),
            ("Account", f"{me.account.name} ({me.account.id})"),
            ("E-mail", me.account.email or output.UNKNOWN),
            ("Role", me.role),
            ("May", ", ".join(me.scopes)),
        ]
        if me.key is not None:
            facts.append(("Key", f"{me.key.name} ({me.key.id})"))
            facts.append(("Limits", describe_limits(me.key, now_s=time.time())))
        output.print_facts(facts)

    client.get("/me").show(PrincipalInfo, show, as_json=as_json)


@click.group()
@examples("sparewatt password change")
def password() -> None:
    """Change or reset your password."""


@password.command("change")
@network_options
@examples("sparewatt password change")
def change(client: ApiClient, *, as_json: bool) -> None:
    """Change your password. Every browser is logged out; API keys stay valid."""
    body = {
        "current_password": prompt_password("Current password"),
        "password": prompt_password("New password", confirm=True),
    }
    reply = client.post("/password", body)
    reply.show(PasswordChangeResult, lambda _: print("The password is changed."), as_json=as_json)


@password.command("request")
@email_option
@address_options
@examples("sparewatt password request --email ann@example.org")
def request(client: ApiClient, *, email: str | None, as_json: bool) -> None:
    """Have a reset token sent to your e-mail, if the network sends mail."""
    reply = client.post("/password/reset-request", {"email": prompt_email(email)})
    text = "If the network knows this address, a mail is on its way."
    reply.show(PasswordResetRequestResult, lambda _: print(text), as_json=as_json)


@password.command("reset")
@address_options
@examples("sparewatt password reset")
def reset(client: ApiClient, *, as_json: bool) -> None:
    """Set a new password with a reset token. Token and password are asked for, or read from stdin, a line each."""
    body = {"token": prompt_password("Reset token"), "password": prompt_password("New password", confirm=True)}
    reply = client.post("/password/reset", body)
    text = "The password is set. Log in with 'sparewatt login'."
    reply.show(PasswordChangeResult, lambda _: print(text), as_json=as_json)
