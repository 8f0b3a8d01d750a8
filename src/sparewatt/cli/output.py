"""How results look: rich tables on a terminal, plain aligned text in a pipe, and how numbers are written.

Names and texts come from other people's machines, so control characters are taken out before they reach a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

UNKNOWN = "-"

_STATES = {
    "online": ("●", "#2DD4BF"),
    "busy": ("◐", "#60A5FA"),
    "suspect": ("◔", "#F59E0B"),
    "offline": ("✕", "#F87171"),
    "draining": ("‖", "#8B98A5"),
}
CHOSEN_STYLE = "bold #F2B705"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a rich style, which a pipe leaves out."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """On a narrow terminal, words wrap and `whole` cells do not: numbers and bars."""

    header: str
    right: bool = False
    whole: bool = False


Row = Sequence[Cell | str]


def left(*headers: str) -> list[Column]:
    return [Column(header) for header in headers]


def right(*headers: str) -> list[Column]:
    return [Column(header, right=True, whole=True) for header in headers]


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(clean(line))


def print_title(text: str) -> None:
    """A line above a table."""
    print()
    _print_styled(clean(text), style="bold")


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    cells = [[_cell(value) for value in row] for row in rows]
    if on_terminal():
        _print_rich(columns, cells)
    else:
        _print_plain(columns, cells)


def print_facts(facts: Sequence[tuple[str, Cell | str]]) -> None:
    """Names and values, one pair per line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        cell = _cell(value)
        _print_styled(f"{name.ljust(width)}  {cell.text}", style=cell.style)


def note(text: str) -> None:
    """A line beside the result: on stderr, so that it never mixes with what a pipe reads."""
    dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = clean(text)
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr)


def _cell(value: Cell | str) -> Cell:
    return Cell(clean(value), "") if isinstance(value, str) else Cell(clean(value.text), value.style)


def _print_styled(text: str, *, style: str) -> None:
    if not on_terminal():
        print(text)
        return
    from rich.console import Console

    Console(force_terminal=True).print(text, style=style or None, markup=False, highlight=False, emoji=False)


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.header), justify=justify, no_wrap=column.whole, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    Console(force_terminal=True).print(table)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    lines = [[column.header for column in columns], *([cell.text for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = (
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        print("  ".join(padded).rstrip())


def clean(text: str) -> str:
    """One line without control, direction or surrogate characters."""
    return "".join(char for char in text if unicodedata.category(char) not in {"Cc", "Cf", "Cs"})


def clean_text(text: str) -> str:
    """Running text: as `clean`, but lines, tabs and joiners stay. Takes away what could steer a terminal."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cs"})


def state_cell(state: str) -> Cell:
    """A node's state as shape and colour."""
    shape, colour = _STATES.get(state, ("?", ""))
    return Cell(f"{shape} {state}", colour)


def short_node(node: str, name: str | None = None) -> str:
    """A node as people call it: its name, else the start of its address."""
    return name or (node[:10] if node.startswith("0x") else node) or UNKNOWN


def format_bytes(n_bytes: float | None) -> str:
    if n_bytes is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def format_count(n: float | None) -> str:
    return UNKNOWN if n is None else f"{n:,.0f}"


def format_rate(value: float | None) -> str:
    """Tokens per second or TFLOPS: three digits are all that is known of them."""
    return UNKNOWN if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def format_ms(ms: float | None) -> str:
    return UNKNOWN if ms is None else f"{plain_ms(ms)} ms"


def plain_ms(ms: float | None) -> str:
    """Milliseconds where the header says so."""
    return UNKNOWN if ms is None else "0" if ms == 0 else f"{ms:,.0f}" if abs(ms) >= 10 else f"{ms:.1f}"


def format_usd(amount: str | float | Decimal | None) -> str:
    """Dollars with two decimals, or as many as show three digits of a small amount."""
    try:
        usd = Decimal(str(amount))
    except InvalidOperation:
        return UNKNOWN
    if not usd.is_finite():
        return UNKNOWN
    if usd == 0:
        return "$0"
    text = f"{round(usd, max(2, 2 - usd.adjusted())):f}"
    whole, _, decimals = text.partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def usd_per_mtok(usd_per_token: str | None) -> str:
    """Dollars per million tokens, from the dollars per token of the API."""
    try:
        return format_usd(Decimal(str(usd_per_token)) * 1_000_000)
    except InvalidOperation:
        return UNKNOWN


def ago(unix_s: float | None, *, now_s: float) -> str:
    """How long ago, in the largest unit that fits."""
    if unix_s is None:
        return "never"
    age_s = max(0.0, now_s - unix_s)
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if age_s >= unit_s:
            return f"{age_s // unit_s:.0f} {unit} ago"
    return "just now"
