"""What commands about money share: statements page by page, as lines or as CSV, and the options that choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply

F = TypeVar("F", bound=Callable[..., Any])
PAGES_MAX = 1_000
"""A million lines. Whoever has more asks for a shorter time."""
PAGE_LINES = 1_000
NEXT_HEADER = "x-sparewatt-next"

NEGATIVE_IS_NO_OPTION = {"ignore_unknown_options": True}
"""So that an amount like -1 is refused for what it is."""

csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print a statement as CSV.")


def span_options(command: F) -> F:
    """Give a command `--from` and `--to`."""
    command = click.option("--to", "to_", metavar="DAY", help="Last day (UTC).  [default: today]")(command)
    return click.option("--from", "from_", metavar="DAY", help="First day (UTC).  [default: 30 days back]")(command)


def path_with_query(path: str, query: Mapping[str, object]) -> str:
    """What is None was not asked for."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def fetch_pages(client: ApiClient, path: str, query: Mapping[str, object]) -> Iterator[ApiReply]:
    """Every page of a statement."""
    after: str | None = None
    for _ in range(PAGES_MAX):
        reply = client.get(path_with_query(path, {**query, "limit": PAGE_LINES, "after": after}))
        yield reply
        after = unquote(reply.headers.get(NEXT_HEADER, ""))
        if not after:
            return
    output.note(f"Only the first {PAGES_MAX * PAGE_LINES:,} lines. Ask for a shorter time with --from and --to.")


def fetch_lines(client: ApiClient, path: str, query: Mapping[str, object]) -> list[dict[str, Any]]:
    return [line for reply in fetch_pages(client, path, query) for line in reply.json()["data"]]


def print_csv(client: ApiClient, path: str, query: Mapping[str, object]) -> None:
    """As the network wrote it; the names of the columns once."""
    for number, reply in enumerate(fetch_pages(client, path, {**query, "format": "csv"})):
        text = reply.body.decode()
        if number:
            text = text.partition("\r\n")[2]
        click.echo(text, nl=False)


def amount_body(usd: str, *, reference: str | None) -> dict[str, object]:
    body: dict[str, object] = {"usd": usd}
    return body | {"id": reference} if reference else body
