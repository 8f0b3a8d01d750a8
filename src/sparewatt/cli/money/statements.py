"""What commands about money share: statements page by page, as lines or as CSV, and their options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_with_query

R = TypeVar("R")
Query = Mapping[str, object]

PAGES_MAX = 1_000
"""A million lines. For more of them, a shorter time can be chosen."""
PAGE_LINES = 1_000
NEXT_HEADER = "x-sparewatt-next"

NEGATIVE_IS_NO_OPTION = {"ignore_unknown_options": True}
"""With this, an amount like -1 is refused by the network as an amount, not by click as an option."""

account_option = click.option("--account", metavar="ID_OR_EMAIL", help="Another account; for operators.")


def statement_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--account`, `--from` and `--to`, as query parameters in its argument `span`, and `--csv`."""

    @account_option
    @click.option("--from", "from_", metavar="DAY", help="First day (UTC).  [default: 30 days back]")
    @click.option("--to", "to_", metavar="DAY", help="Last day (UTC).  [default: today]")
    @click.option("--csv", "as_csv", is_flag=True, help="Print a statement as CSV.")
    @functools.wraps(command)
    def with_span(*args: Any, account: str | None, from_: str | None, to_: str | None, **rest: Any) -> R:
        return command(*args, span={"account": account, "from": from_, "to": to_}, **rest)

    return with_span


def fetch_pages(client: ApiClient, path: str, query: Query) -> Iterator[ApiReply]:
    """Every page of a statement."""
    after: str | None = None
    for _ in range(PAGES_MAX):
        reply = client.get(path_with_query(path, {**query, "limit": PAGE_LINES, "after": after}))
        yield reply
        after = unquote(reply.headers.get(NEXT_HEADER, ""))
        if not after:
            return
    output.note(f"Only the first {PAGES_MAX * PAGE_LINES:,} lines. Ask for a shorter time with --from and --to.")


def json_lines(pages: Iterable[ApiReply]) -> list[dict[str, Any]]:
    """The lines of all pages as the gateway wrote them, for `--json`."""
    return [line for page in pages for line in page.json()["data"]]


def print_csv(client: ApiClient, path: str, query: Query) -> None:
    """Print the gateway's CSV, with the names of the columns once."""
    for number, page in enumerate(fetch_pages(client, path, {**query, "format": "csv"})):
        text = page.body.decode()
        click.echo(text.partition("\r\n")[2] if number else text, nl=False)


def amount_body(usd: str, *, reference: str | None) -> dict[str, object]:
    return {"usd": usd, **({"id": reference} if reference else {})}
