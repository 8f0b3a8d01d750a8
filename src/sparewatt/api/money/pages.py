"""Pages of a statement: which span of time, which page, and the reply in JSON or CSV. Both hold the same lines."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from sparewatt.api.csv import as_csv
from sparewatt.api.endpoint import Reply
from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import STATEMENT_DAYS, STATEMENT_DAYS_MAX, STATEMENT_LINES_MAX
from sparewatt.store.statements import StatementCursor, TimeRange

SPAN_QUERY = ("from", "to")
STATEMENT_QUERY = (*SPAN_QUERY, "limit", "after", "format")
"""What `read_page` reads."""
PAGE_LINES = 100
NEXT_HEADER = "x-sparewatt-next"
"""The cursor of the next page, also for clients of the CSV."""
_DAY_S = 86_400.0
_CURSOR = re.compile(r"(\d{1,17})\.([0-9a-zA-Z_]{1,80})\.(\d{1,4})")


class StatementPage(Protocol):
    """A list of lines as `protocol/api/` has it."""

    @property
    def data(self) -> Sequence[msgspec.Struct]: ...

    @property
    def next(self) -> str | None: ...


_Statement = TypeVar("_Statement", bound=StatementPage)


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
            raise InvalidField("'after' is what 'next' of the page before said.", param="after")
        return StatementCursor(int(match[1]) / 1e6, match[2], min(int(match[3]), 2**15 - 1))


def read_page(request: web.Request, *, now_unix_s: float) -> Page:
    """Raises InvalidField."""
    query = request.query
    after = query.get("after", "")
    if len(after) > 300 or "\0" in after:
        raise InvalidField("'after' is what 'next' of the page before said.", param="after")
    format_ = query.get("format", "json")
    if format_ not in ("json", "csv"):
        raise InvalidField("A statement comes as format=json or format=csv.", param="format")
    span = read_span(request, now_unix_s=now_unix_s)
    return Page(span, after, _limit(query.get("limit")), "csv" if format_ == "csv" else "json")


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


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE_LINES
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= STATEMENT_LINES_MAX:
        raise InvalidField(f"A page has 1 to {STATEMENT_LINES_MAX} lines.", param="limit")
    return int(text)


def cursor_of(opened_at: dt.datetime, job_id: str, position: int = 0) -> str:
    """`next` of a page that ends with this line."""
    micro = (opened_at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return f"{micro}.{job_id}.{position}"


def statement_reply(
    page: Page, statement: _Statement, line: type[msgspec.Struct], *, name: str
) -> Reply[_Statement] | web.Response:
    """In the format of `page`. `line`: the type of its lines; `name`: of the CSV file."""
    headers = {NEXT_HEADER: quote(statement.next)} if statement.next else {}
    if page.format == "json":
        return Reply(statement, headers)
    headers["content-disposition"] = f'attachment; filename="{name}.csv"'
    text = as_csv([msgspec.structs.asdict(each) for each in statement.data], line.__struct_fields__)
    return web.Response(text=text, content_type="text/csv", headers=headers)
