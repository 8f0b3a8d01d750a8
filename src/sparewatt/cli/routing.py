"""Options that say which nodes may serve a job and how they are ranked: `--policy`, `--route` and `--ranking`.

A policy is a file in YAML or JSON, or a query on the command line, both in the vocabulary of `policy/`. A file is
parsed here, so that an error names its line; a query is parsed by the gateway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparewatt.cli import output

if TYPE_CHECKING:
    from sparewatt.policy.policy_file import PolicyFile

R = TypeVar("R")

RANKINGS = ("fast", "balanced", "economy", "neuralgrid")
_FILE_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRouting:
    """Which nodes may serve a job, and how they are ranked."""

    ranking: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """The query of `--route`, as a header of the request."""
    body: Mapping[str, object] = field(default_factory=dict)
    """The fields of a policy file, as a field of the request's body."""


def routing_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--policy`, `--route` and `--ranking`, and a `JobRouting` as its argument `routing`."""

    @click.option("--policy", metavar="FILE", help="Which nodes may serve it: a policy file, in YAML or JSON.")
    @click.option("--route", metavar="QUERY", help="The same on one line, e.g. 'region=EU max_price<=0.3 sort=price'.")
    @click.option("--ranking", type=click.Choice(RANKINGS), help="How the network ranks those nodes.")
    @functools.wraps(command)
    def with_routing(*args: Any, policy: str | None, route: str | None, ranking: str | None, **rest: Any) -> R:
        return command(*args, routing=_read_routing(policy, route, ranking), **rest)

    return with_routing


def _read_routing(policy: str | None, route: str | None, ranking: str | None) -> JobRouting:
    if policy in RANKINGS:  # the older way to name a ranking
        if ranking is not None:
            raise click.UsageError(f"--policy {policy} and --ranking {ranking} are both rankings: give one of them.")
        policy, ranking = None, policy
    if policy is not None and route is not None:
        raise click.UsageError("--policy and --route both say which nodes may serve it: give one of them.")
    if policy is None:
        return JobRouting(ranking=ranking, headers=_route_header(route))
    fields = read_policy_option(policy)
    if isinstance(fields, str):
        rankings = ", ".join(RANKINGS)
        raise _bad_file(f"{policy!r} is neither a file nor a ranking ({rankings}). A query goes into --route.")
    return JobRouting(ranking=ranking, body={"provider": fields})


def _route_header(route: str | None) -> dict[str, str]:
    """A header holds printable ASCII, which is enough for every word of the vocabulary."""
    from sparewatt.policy.parser import HEADER

    if not route:
        return {}
    if not (route.isascii() and route.isprintable()):
        raise click.UsageError("--route holds a character that no name or number has. Write plain ASCII in one line.")
    return {HEADER: route}


def read_policy_option(text: str) -> str | dict[str, object]:
    """The fields of a policy file; a text that is no file is a query, and returned as it is."""
    path = Path(text)
    is_named_as_file = path.suffix.lower() in _FILE_SUFFIXES and not set(text) & set("=<>")
    return _read_policy_file(path).fields if is_named_as_file or _is_file(path) else text


def policy_file_query(file: str) -> str:
    """A policy file as a query on one line, for a path that has no body."""
    from sparewatt.policy.formatter import to_line

    return to_line(_read_policy_file(Path(file)).policy)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a query can be longer than a file's name may be
        return False


def _read_policy_file(path: Path) -> PolicyFile:
    from sparewatt.core.errors import BadRequest
    from sparewatt.policy.policy_file import error_line, read_policy_file

    try:
        content = path.read_text(encoding="utf-8")
        file = read_policy_file(content)
    except OSError as error:
        raise _bad_file(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _bad_file(f"{path} is no text in UTF-8.") from None
    except BadRequest as error:
        line = error_line(content, error)
        raise _bad_file(f"{path}{f':{line}' if line else ''}: {error.message}") from None
    if not file.fields:
        raise _bad_file(f"{path} has no field, so it would allow every node.")
    if file.ignored:
        output.note(f"{path}: without effect: {', '.join(file.ignored)}.")
    return file


def _bad_file(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="'--policy'")
