"""`sparewatt keys`: create, list, limit and revoke API keys. Limits are options: `--budget 5/day --expires 30d`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import Raw

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of, print_ids
from sparewatt.cli.context import SCOPES, network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left
from sparewatt.cli.param_types import DURATION
from sparewatt.cli.routing import read_policy_option
from sparewatt.protocol.api.accounts import ApiKey, ApiKeyList, CreatedKey, RevokedKey

R = TypeVar("R")

PERIODS = ("day", "week", "month")
NONE = "none"
"""Removes a limit."""
_TERMS = ("budget", "expires_in_s", "policy", "requests_per_min", "tokens_per_min")
_NO_POLICY = Raw(b"null")


def _or_none(read: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: NONE if text.lower() == NONE else read(text)


def read_budget(text: str) -> dict[str, str]:
    """`5/day` is five dollars a day. The gateway checks the amount."""
    usd, _, period = text.strip().partition("/")
    if period not in PERIODS or not usd:
        raise click.BadParameter(f"{text!r} is no budget. Write dollars per day, week or month, e.g. 5/day.")
    return {"usd": usd.removeprefix("$"), "period": period}


def read_count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no whole number.") from None


def term_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options for a key's limits, and the fields of its request's body as `terms`."""

    @click.option(
        "--budget",
        type=_or_none(read_budget),
        metavar="USD/PERIOD",
        help="The most it may spend, e.g. 5/day; day, week or month.",
    )
    @click.option(
        "--expires",
        "expires_in_s",
        type=_or_none(lambda text: DURATION.convert(text, None, None)),
        metavar="DURATION",
        help="When it expires, e.g. 12h, 30d or 1y.",
    )
    @click.option(
        "--policy",
        type=_or_none(read_policy_option),
        metavar="FILE|QUERY",
        help="Which nodes it may use: a YAML or JSON file, or a query.",
    )
    @click.option("--requests-per-min", type=_or_none(read_count), metavar="N", help="The most requests in a minute.")
    @click.option("--tokens-per-min", type=_or_none(read_count), metavar="N", help="The most tokens in a minute.")
    @functools.wraps(command)
    def with_terms(*args: Any, **rest: Any) -> R:
        given = {name: rest.pop(name) for name in _TERMS}
        terms = {name: None if value == NONE else value for name, value in given.items() if value is not None}
        return command(*args, terms=terms, **rest)

    return with_terms


@click.group(cls=DefaultGroup, default="list")
@examples("sparewatt keys create my-app --budget 5/day", "sparewatt keys")
def keys() -> None:
    """Create, list, limit and revoke API keys."""


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
@network_options
@examples(
    "sparewatt keys create my-app --budget 5/day --expires 30d",
    "sparewatt keys create my-app --policy policy.yaml",
    "export SPAREWATT_API_KEY=$(sparewatt keys create my-app)",
)
def create_key(
    client: ApiClient, *, name: str, scopes: tuple[str, ...], terms: dict[str, object], as_json: bool
) -> None:
    """Create a key. Only the key goes to stdout, so a script can take it."""
    reply = client.post("/keys", {"name": name, "scopes": list(scopes), **terms})
    reply.show(CreatedKey, _print_created, as_json=as_json)


def _print_created(created: CreatedKey) -> None:
    output.note(f"Created {created.id} ({created.name}) for {', '.join(created.scopes)}:")
    print(created.key)
    output.note("This key is shown only this once. Keep it where your app reads it; it cannot be shown again.")


@keys.command("list")
@quiet_option
@network_options
@examples("sparewatt keys list")
def list_keys(client: ApiClient, *, as_json: bool, quiet: bool) -> None:
    """List the keys by id and prefix; the keys themselves are not stored."""
    client.get("/keys").show(ApiKeyList, print_ids if quiet else _print_keys, as_json=as_json)


@keys.command("limit")
@click.argument("key_id", metavar="ID")
@click.option("--name", metavar="NAME", help="A new name for it.")
@term_options
@network_options
@examples("sparewatt keys limit key_5k0wq2 --budget 20/month --expires none")
def limit_key(client: ApiClient, *, key_id: str, name: str | None, terms: dict[str, object], as_json: bool) -> None:
    """Change what a key may use. Limits that are not named stay; 'none' removes one."""
    changes = terms | ({"name": name} if name is not None else {})
    if not changes:
        raise click.UsageError("Name what to change, e.g. --budget 5/day.")

    def show(key: ApiKey) -> None:
        output.print_lines([f"{key_id}: {describe_limits(key, now_s=time.time())}."])

    client.patch(path_of("keys", key_id), changes).show(ApiKey, show, as_json=as_json)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@network_options
@examples("sparewatt keys revoke key_5k0wq2")
def revoke_key(client: ApiClient, *, key_id: str, as_json: bool) -> None:
    """Revoke a key for good."""
    text = f"Revoked {output.clean(key_id)}. Requests with this key are refused from now on."
    client.delete(path_of("keys", key_id)).show(RevokedKey, lambda _: print(text), as_json=as_json)


def _print_keys(listed: ApiKeyList) -> None:
    if not listed.data:
        output.note("There is no key yet. Create one with 'sparewatt keys create NAME'.")
        return
    now_s = time.time()
    columns: list[Column[ApiKey]] = [
        left("ID", lambda key: key.id),
        left("NAME", lambda key: key.name),
        left("PREFIX", lambda key: key.prefix),
        left("SCOPES", lambda key: ", ".join(key.scopes)),
        left("LIMITS", lambda key: describe_limits(key, now_s=now_s)),
        left("CREATED", lambda key: output.ago(key.created_at, now_s=now_s)),
        left("USED", lambda key: output.ago(key.last_used_at, now_s=now_s)),
        left("STATE", lambda key: _state(key, now_s=now_s)),
    ]
    may_drop = ("CREATED", "USED", "PREFIX", "SCOPES", "LIMITS", "STATE")
    output.print_table(columns, listed.data, may_drop=may_drop)


def _state(key: ApiKey, *, now_s: float) -> str:
    if key.revoked_at is not None:
        return f"revoked {output.ago(key.revoked_at, now_s=now_s)}"
    return "expired" if key.expires_at is not None and key.expires_at <= now_s else "active"


def describe_limits(key: ApiKey, *, now_s: float) -> str:
    limits = []
    if key.budget is not None:
        limits.append(f"{output.format_usd(key.budget.usd)}/{key.budget.period}")
    if key.requests_per_min is not None:
        limits.append(f"{key.requests_per_min:,} requests/min")
    if key.tokens_per_min is not None:
        limits.append(f"{key.tokens_per_min:,} tokens/min")
    if key.policy != _NO_POLICY:
        limits.append("policy")
    if key.expires_at is not None:
        limits.append(f"expires {_until(key.expires_at, now_s=now_s)}")
    return ", ".join(limits) or "none"


def _until(unix_s: float, *, now_s: float) -> str:
    left_s = unix_s - now_s
    if left_s <= 0:
        return output.ago(unix_s, now_s=now_s)
    return f"in {left_s / 86_400:.0f} d" if left_s >= 2 * 86_400 else f"in {left_s / 3600:.0f} h"
