"""Tables as CSV, for `?format=csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_reply(
    lines: Sequence[msgspec.Struct], columns: Sequence[str], *, filename: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """With a header line, as a file to download."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=columns)
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in msgspec.structs.asdict(line).items()})
    disposition = {"content-disposition": f'attachment; filename="{filename}"'}
    return web.Response(text=out.getvalue(), content_type="text/csv", headers={**(headers or {}), **disposition})


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula is quoted: node owners name models as they like."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
