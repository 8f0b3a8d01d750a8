"""The limits of a key as they are written on the command line: `--budget 5/day --expires 30d --policy FILE`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

R = TypeVar("R")

PERIODS = ("day", "week", "month")
NONE = "none"
_DURATION = re.compile(r"(\d{1,6})([mhdwy])")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def read_budget(text: str) -> dict[str, str]:
    """`5/day` is five dollars a day; the network reads the amount."""
    usd, _, period = text.strip().partition("/")
    if period not in PERIODS or not usd:
        raise click.BadParameter(f"{text!r} is no budget. Write dollars per day, week or month, e.g. 5/day.")
    return {"usd": usd.removeprefix("$"), "period": period}


def read_duration_s(text: str) -> int:
    """`30d` is thirty days."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"{text!r} is no duration. Write e.g. 12h, 30d or 1y.")
    return int(found[1]) * _UNIT_S[found[2]]


def read_policy(text: str) -> object:
    """A file with JSON in it, or else a query as it stands."""
    path = Path(text)
    if not path.is_file():
        return text
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not valid JSON: {error}.") from None
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}.") from None


_READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "budget": ("budget", read_budget),
    "expires": ("expires_in_s", read_duration_s),
    "policy": ("policy", read_policy),
    "requests_per_min": ("requests_per_min", int),
    "tokens_per_min": ("tokens_per_min", int),
}


def read_terms(given: dict[str, str | None]) -> dict[str, object]:
    """The body of a request from the options that were given; `none` takes a limit away."""
    terms: dict[str, object] = {}
    for option, text in given.items():
        if text is None:
            continue
        field, read = _READERS[option]
        terms[field] = None if text.lower() == NONE else _read(option, read, text)
    return terms


def _read(option: str, read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no whole number.", param_hint=f"--{option.replace('_', '-')}") from None


def term_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options for a key's limits, and what was asked for as `terms`."""

    @click.option("--budget", metavar="USD/PERIOD", help="The most it may spend, e.g. 5/day; day, week or month.")
    @click.option("--expires", metavar="DURATION", help="When it stops by itself, e.g. 12h, 30d or 1y.")
    @click.option("--policy", metavar="FILE|QUERY", help="Which nodes it may use: a JSON file, or a query.")
    @click.option("--requests-per-min", metavar="N", help="The most requests in a minute.")
    @click.option("--tokens-per-min", metavar="N", help="The most tokens in a minute.")
    @functools.wraps(command)
    def with_terms(*args: Any, **rest: Any) -> R:
        given = {name: rest.pop(name) for name in _READERS}
        return command(*args, terms=read_terms(given), **rest)

    return with_terms
