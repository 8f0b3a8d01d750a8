"""What statements have in common: which account, span of time and page a request names, and replies in JSON or CSV.

Usage, earnings and payouts come in pages. A page names the cursor of the next one; CSV and JSON hold the same lines.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal, require_operator
from sparewatt.api.csv import csv_reply
from sparewatt.api.endpoint import Reply
from sparewatt.api.query import choice
from sparewatt.core.errors import InvalidField, NotFound
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import format_usd
from sparewatt.edge.bodies import whole_number
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.accounts import AccountRow
from sparewatt.store.statements import StatementCursor, TimeRange

SPAN_QUERY = ("from", "to")
STATEMENT_QUERY = (*SPAN_QUERY, "limit", "after", "format")
"""What `read_page` reads."""
STATEMENT_LINES_MAX = 1_000
"""Lines of a statement per page, some 300 kB; further ones follow by cursor."""
STATEMENT_DAYS_MAX = 400
"""The longest time that one statement covers: a year, and a month to compare with."""
STATEMENT_DAYS = 30
"""What a statement covers by default."""
PAGE_LINES = 100
NEXT_HEADER = "x-sparewatt-next"
"""The cursor of the next page, also for clients of the CSV."""
_DAY_S = 86_400.0
_CURSOR = re.compile(r"(\d{1,17})\.([0-9a-zA-Z_]{1,80})\.(\d{1,4})")
_BAD_AFTER = "'after' is the value of 'next' in the page before."
_ADDRESS_CHARS = 42

_Row = TypeVar("_Row")


# which account and node


class AccountFinder(Protocol):
    """Implemented by `AccountService`."""

    async def get(self, id_or_email: str, /) -> AccountRow:
        """Raises AccountNotFound."""
        ...


async def select_account(request: web.Request, principal: Principal, accounts: AccountFinder) -> AccountId:
    """The account of `?account=`, which must be the principal's own unless it is an operator; by default its own."""
    name = request.query.get("account")
    if name is None or name == principal.account_id:
        return principal.account_id
    require_operator(principal)
    return (await accounts.get(name)).id


def select_node(request: web.Request, nodes: NodeTable) -> NodeId | None:
    """The node of `?node=`: a name or address of a known node, or the address of one that has left."""
    name = request.query.get("node")
    if name is None:
        return None
    try:
        return find_node(nodes, name).id
    except NotFound:
        if name.startswith("0x") and len(name) == _ADDRESS_CHARS and name.isascii():
            return NodeId(name.lower())
        raise


# times and amounts


def read_span(request: web.Request, *, now_unix_s: float) -> TimeRange:
    """Days (UTC, the last one included) or Unix seconds. By default the last 30 days. Raises InvalidField."""
    start, end = request.query.get("from"), request.query.get("to")
    to_s = now_unix_s + 1 if end is None else _moment(end, param="to", last=True)
    from_s = to_s - STATEMENT_DAYS * _DAY_S if start is None else _moment(start, param="from")
    if not from_s < to_s:
        raise InvalidField("A statement begins before it ends: 'from' is not before 'to'.", param="from")
    if to_s - from_s > STATEMENT_DAYS_MAX * _DAY_S:
        raise InvalidField(f"A statement covers at most {STATEMENT_DAYS_MAX} days.", param="from")
    return TimeRange(from_s, to_s)


def _moment(text: str, *, param: str, last: bool = False) -> float:
    try:
        if re.fullmatch(r"\d{1,11}(\.\d{1,6})?", text):
            return float(text)
        day = dt.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=dt.UTC)
    except ValueError:
        raise InvalidField(f"{text[:40]!r} is neither a day like 2026-11-15 nor Unix seconds.", param=param) from None
    return day.timestamp() + (_DAY_S if last else 0.0)


def utc_iso(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat()


def amounts(**nano: int) -> dict[str, Any]:
    """Amounts come twice: `…_usd` is dollars as an exact decimal string, `…_nano` the same in integer nano-dollars."""
    usd = {f"{name}_usd": format_usd(amount) for name, amount in nano.items()}
    return usd | {f"{name}_nano": amount for name, amount in nano.items()}


# pages


@dataclass(frozen=True, slots=True)
class Page:
    """Which lines a request asks for, and in which format."""

    span: TimeRange
    after: str
    limit: int
    format: Literal["json", "csv"]

    @property
    def cursor(self) -> StatementCursor | None:
        """`after`, where lines are jobs. Raises InvalidField."""
        if not self.after:
            return None
        match = _CURSOR.fullmatch(self.after)
        if match is None:
            raise InvalidField(_BAD_AFTER, param="after")
        return StatementCursor(int(match[1]) / 1e6, match[2], min(int(match[3]), 2**15 - 1))

    def next(self, rows: Sequence[_Row], cursor: Callable[[_Row], object]) -> str | None:
        """The cursor behind the last row of a full page; None where nothing follows."""
        return str(cursor(rows[-1])) if len(rows) == self.limit else None


def read_page(request: web.Request, *, now_unix_s: float) -> Page:
    """Raises InvalidField."""
    after = request.query.get("after", "")
    if len(after) > 300 or "\0" in after:
        raise InvalidField(_BAD_AFTER, param="after")
    format_: Literal["json", "csv"] = choice(request, "format", ("json", "csv"))
    span = read_span(request, now_unix_s=now_unix_s)
    return Page(span, after, whole_number(request, "limit", default=PAGE_LINES, most=STATEMENT_LINES_MAX), format_)


def cursor_of(opened_at: dt.datetime, job_id: str, position: int = 0) -> str:
    """`next` of a page that ends with this job, or with this attempt of it."""
    micro = (opened_at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return f"{micro}.{job_id}.{position}"


class StatementPage(Protocol):
    """A list of lines as `protocol/api/` has it."""

    @property
    def data(self) -> Sequence[msgspec.Struct]: ...

    @property
    def next(self) -> str | None: ...


_Statement = TypeVar("_Statement", bound=StatementPage)


def statement_reply(
    page: Page, statement: _Statement, line: type[msgspec.Struct], *, name: str
) -> Reply[_Statement] | web.Response:
    """In the format of `page`. `line`: the type of its lines; `name`: of the CSV file."""
    headers = {NEXT_HEADER: quote(statement.next)} if statement.next else {}
    if page.format == "json":
        return Reply(statement, headers)
    return csv_reply(statement.data, line.__struct_fields__, filename=f"{name}.csv", headers=headers)
