"""`sparewatt keys`: create, list, limit and revoke API keys."""

from __future__ import annotations

import time

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.accounts.key_terms import term_options
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.context import SCOPES, json_option, network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup


class Budget(msgspec.Struct):
    usd: str
    period: str


class Key(msgspec.Struct):
    """A key as the network lists it: without the key itself."""

    id: str
    name: str | None = None
    prefix: str | None = None
    scopes: list[str] = []
    created_at: float | None = None
    revoked_at: float | None = None
    expires_at: float | None = None
    last_used_at: float | None = None
    budget: Budget | None = None
    policy: object = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None


class NewKey(Key):
    key: str = ""

    def __repr__(self) -> str:
        return f"NewKey({self.id})"


class KeyList(msgspec.Struct):
    data: list[Key]


@click.group(cls=DefaultGroup, default="list")
def keys() -> None:
    """Create, list, limit and revoke API keys.

    \b
    Example:
      sparewatt keys create my-app --budget 5/day
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
    help="What the key may do: inference asks models, lease rents GPUs, node lends machines, admin manages the "
    "account and its keys. May be repeated.",
)
@term_options
@json_option
@network_options
def create_key(
    client: ApiClient, *, name: str, scopes: tuple[str, ...], terms: dict[str, object], as_json: bool
) -> None:
    """Create a key. Only the key goes to stdout, so a script can take it.

    \b
    Example:
      sparewatt keys create my-app --budget 5/day --expires 30d
      export SPAREWATT_API_KEY=$(sparewatt keys create my-app)
    """
    reply = client.post("/keys", {"name": name, "scopes": list(scopes), **terms})
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
def list_keys(client: ApiClient, *, as_json: bool, quiet: bool) -> None:
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


@keys.command("limit")
@click.argument("key_id", metavar="ID")
@click.option("--name", metavar="NAME", help="Call it something else.")
@term_options
@json_option
@network_options
def limit_key(client: ApiClient, *, key_id: str, name: str | None, terms: dict[str, object], as_json: bool) -> None:
    """Change what a key may use. What is not named stays; 'none' takes a limit away.

    \b
    Example:
      sparewatt keys limit key_5k0wq2 --budget 20/month --expires none
    """
    changes = terms | ({"name": name} if name is not None else {})
    if not changes:
        raise click.UsageError("Name what to change, e.g. --budget 5/day.")
    reply = client.patch(path_of("keys", key_id), changes)
    if as_json:
        output.print_json(reply.json())
    else:
        output.print_lines([f"{key_id}: {describe_limits(reply.parse(Key), now_s=time.time())}."])


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@network_options
def revoke_key(client: ApiClient, *, key_id: str, as_json: bool) -> None:
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
    columns = output.left("ID", "NAME", "PREFIX", "SCOPES", "LIMITS", "CREATED", "USED", "STATE")
    may_drop = ("CREATED", "USED", "PREFIX", "SCOPES", "LIMITS", "STATE")
    output.print_table(columns, [_row(key, now_s=now_s) for key in found], may_drop=may_drop)


def _row(key: Key, *, now_s: float) -> list[str]:
    return [
        key.id,
        key.name or output.UNKNOWN,
        key.prefix or output.UNKNOWN,
        ", ".join(key.scopes),
        describe_limits(key, now_s=now_s),
        output.ago(key.created_at, now_s=now_s) if key.created_at else output.UNKNOWN,
        output.ago(key.last_used_at, now_s=now_s),
        _state(key, now_s=now_s),
    ]


def _state(key: Key, *, now_s: float) -> str:
    if key.revoked_at is not None:
        return f"revoked {output.ago(key.revoked_at, now_s=now_s)}"
    return "expired" if key.expires_at is not None and key.expires_at <= now_s else "active"


def describe_limits(key: Key, *, now_s: float) -> str:
    parts = []
    if key.budget is not None:
        parts.append(f"{output.format_usd(key.budget.usd)}/{key.budget.period}")
    if key.requests_per_min is not None:
        parts.append(f"{key.requests_per_min:,} requests/min")
    if key.tokens_per_min is not None:
        parts.append(f"{key.tokens_per_min:,} tokens/min")
    if key.policy is not None:
        parts.append("policy")
    if key.expires_at is not None:
        parts.append(f"expires {_until(key.expires_at, now_s=now_s)}")
    return ", ".join(parts) or "none"


def _until(unix_s: float, *, now_s: float) -> str:
    left_s = unix_s - now_s
    if left_s <= 0:
        return output.ago(unix_s, now_s=now_s)
    return f"in {left_s / 86_400:.0f} d" if left_s >= 2 * 86_400 else f"in {left_s / 3600:.0f} h"
