"""Tables as CSV, for `?format=csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(lines: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """With a header line. Text that a spreadsheet would run as a formula is quoted: strangers name models."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=columns)
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in line.items()} for line in lines)
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
