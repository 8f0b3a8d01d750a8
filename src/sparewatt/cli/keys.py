"""`sparewatt keys`: create, list and revoke API keys."""

from __future__ import annotations

import time

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import Client, path_of
from sparewatt.cli.context import SCOPES, json_option, network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup


class Key(msgspec.Struct):
    """A key as the network lists it: without the key itself."""

    id: str
    name: str | None = None
    prefix: str | None = None
    scopes: list[str] = []
    created_at: float | None = None
    revoked_at: float | None = None


class NewKey(Key):
    key: str = ""

    def __repr__(self) -> str:
        return f"NewKey({self.id})"


class KeyList(msgspec.Struct):
    data: list[Key]


@click.group(cls=DefaultGroup, default="list")
def keys() -> None:
    """Create, list and revoke API keys.

    \b
    Example:
      sparewatt keys create my-app
      sparewatt keys
    """


@keys.command("create")
@click.argument("name", default="cli")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("inference",),
    show_default=True,
    help="What the key may do: inference asks models, node lends machines, admin manages keys. May be repeated.",
)
@json_option
@network_options
def create_key(client: Client, *, name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Create a key. Only the key goes to stdout, so a script can take it.

    \b
    Example:
      sparewatt keys create my-app --scope inference
      export SPAREWATT_API_KEY=$(sparewatt keys create my-app)
    """
    reply = client.post("/keys", {"name": name, "scopes": list(scopes)})
    if as_json:
        output.print_json(reply.json())
        return
    made = reply.parse(NewKey)
    output.note(f"Created {made.id} ({made.name}) for {', '.join(made.scopes)}:")
    print(made.key)
    output.note("This key is shown only this once. Keep it where your app reads it; nobody can show it again.")


@keys.command("list")
@quiet_option
@json_option
@network_options
def list_keys(client: Client, *, as_json: bool, quiet: bool) -> None:
    """List the keys by id and prefix; the keys themselves are not kept.

    \b
    Example:
      sparewatt keys list
    """
    reply = client.get("/keys")
    if as_json:
        output.print_json(reply.json())
        return
    found = reply.parse(KeyList).data
    if quiet:
        output.print_lines(key.id for key in found)
    elif found:
        _print_keys(found)
    else:
        output.note("There is no key yet. Create one with 'sparewatt keys create NAME'.")


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@network_options
def revoke_key(client: Client, *, key_id: str, as_json: bool) -> None:
    """Revoke a key for good.

    \b
    Example:
      sparewatt keys revoke key_5k0wq2
    """
    reply = client.delete(path_of("keys", key_id))
    if as_json:
        output.print_json(reply.json())
    else:
        output.print_lines([f"Revoked {key_id}. Requests with this key are refused from now on."])


def _print_keys(found: list[Key]) -> None:
    now_s = time.time()
    columns = output.left("ID", "NAME", "PREFIX", "SCOPES", "CREATED", "STATE")
    may_drop = ("CREATED", "PREFIX", "SCOPES", "STATE")
    output.print_table(columns, [_row(key, now_s=now_s) for key in found], may_drop=may_drop)


def _row(key: Key, *, now_s: float) -> list[str]:
    state = "active" if key.revoked_at is None else f"revoked {output.ago(key.revoked_at, now_s=now_s)}"
    created = output.ago(key.created_at, now_s=now_s) if key.created_at else output.UNKNOWN
    prefix = key.prefix or output.UNKNOWN
    return [key.id, key.name or output.UNKNOWN, prefix, ", ".join(key.scopes), created, state]
