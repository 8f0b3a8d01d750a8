"""Pages of a statement: which time, which page, in JSON or CSV. Both say the same."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from aiohttp import web

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import STATEMENT_DAYS, STATEMENT_DAYS_MAX, STATEMENT_LINES_MAX
from sparewatt.core.money import format_usd
from sparewatt.gateway.http import json_reply, listing
from sparewatt.gateway.money.amounts import shown
from sparewatt.store.statements import Cursor, Span

PAGE_LINES = 100
NEXT_HEADER = "x-sparewatt-next"
_DAY_S = 86_400.0
_CURSOR = re.compile(r"(\d{1,17})\.([0-9a-zA-Z_]{1,80})\.(\d{1,4})")
_PRICES = {"prompt_price": "prompt_usd_per_mtok", "completion_price": "completion_usd_per_mtok"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Page:
    """What was asked for."""

    span: Span
    after: str
    limit: int
    format: Literal["json", "csv"]

    @property
    def cursor(self) -> Cursor | None:
        """Of lines that are jobs. Raises InvalidField."""
        if not self.after:
            return None
        found = _CURSOR.fullmatch(self.after)
        if found is None:
            raise InvalidField("'after' is what 'next' of the page before said.", param="after")
        return Cursor(int(found[1]) / 1e6, found[2], min(int(found[3]), 2**15 - 1))


def read_page(request: web.Request, *, now_unix_s: float) -> Page:
    """Raises InvalidField."""
    query = request.query
    after = query.get("after", "")
    if len(after) > 300 or "\0" in after:
        raise InvalidField("'after' is what 'next' of the page before said.", param="after")
    wanted = query.get("format", "json")
    if wanted not in ("json", "csv"):
        raise InvalidField("A statement comes as format=json or format=csv.", param="format")
    span = read_span(query.get("from"), query.get("to"), now_unix_s=now_unix_s)
    return Page(span, after, _limit(query.get("limit")), "csv" if wanted == "csv" else "json")


def read_span(start: str | None, end: str | None, *, now_unix_s: float) -> Span:
    """Days (UTC, the last one included) or Unix seconds. By default the last 30 days."""
    to_s = now_unix_s + 1 if end is None else _moment(end, param="to", last=True)
    from_s = to_s - STATEMENT_DAYS * _DAY_S if start is None else _moment(start, param="from")
    if not from_s < to_s:
        raise InvalidField("A statement begins before it ends: 'from' is not before 'to'.", param="from")
    if to_s - from_s > STATEMENT_DAYS_MAX * _DAY_S:
        raise InvalidField(f"A statement covers at most {STATEMENT_DAYS_MAX} days.", param="from")
    return Span(from_s, to_s)


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


def choice(request: web.Request, name: str, known: Sequence[str]) -> str:
    """One of a few words, the first by default. Raises InvalidField."""
    wanted = request.query.get(name, known[0])
    if wanted not in known:
        raise InvalidField(f"{name} is one of {', '.join(known)}, not {wanted[:40]!r}.", param=name)
    return wanted


def line_of(row: Any) -> dict[str, Any]:
    """A row of the store as both formats show it: amounts in dollars and nano-dollars, prices in dollars."""
    line: dict[str, Any] = {}
    for field in fields(row):
        line |= _cells(field.name, getattr(row, field.name))
    return line


def columns_of(shape: type) -> list[str]:
    """The names in a line of this shape, also where there is no line."""
    return [name for field in fields(shape) for name in _cells(field.name, 0)]


def _cells(name: str, value: Any) -> dict[str, Any]:
    if name.endswith("_nano"):
        return shown(name.removesuffix("_nano"), value)
    if name in _PRICES:
        return {_PRICES[name]: format_usd(value)}
    return {name: value.astimezone(dt.UTC).isoformat() if isinstance(value, dt.datetime) else value}


def cursor_of(opened_at: dt.datetime, job_id: str, position: int = 0) -> str:
    micro = (opened_at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return f"{micro}.{job_id}.{position}"


def statement(page: Page, rows: Sequence[Any], shape: type, *, following: str | None, name: str) -> web.Response:
    """Rows of one `shape`. `following` is the cursor of the next page, if there may be one."""
    headers = {NEXT_HEADER: quote(following)} if following else {}
    lines = [line_of(row) for row in rows]
    if page.format == "json":
        return json_reply(listing(lines) | {"next": following}, headers=headers)
    headers["content-disposition"] = f'attachment; filename="{name}.csv"'
    return web.Response(text=as_csv(lines, columns_of(shape)), content_type="text/csv", headers=headers)


def as_csv(lines: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """With a line of names. What a spreadsheet would run as a formula is quoted: strangers name models."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=columns)
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in line.items()} for line in lines)
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
