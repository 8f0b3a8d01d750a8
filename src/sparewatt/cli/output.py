"""How results look: rich tables on a terminal, plain aligned text in a pipe, and how numbers are written.

A terminal that is too narrow for a table gets fewer columns, never shortened ones; a pipe always gets them all.

Names and texts come from other people's machines, so control characters are taken out before they reach a terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

UNKNOWN = "-"

_GAP = 2
_PROSE_CHARS_MIN = 16
"""Below this, wrapped words are harder to read than a column that was left out."""

_STATES = {
    "online": ("●", "#2DD4BF"),
    "busy": ("◐", "#60A5FA"),
    "suspect": ("◔", "#F59E0B"),
    "offline": ("✕", "#F87171"),
    "no_server": ("✕", "#F87171"),
    "draining": ("‖", "#8B98A5"),
    "paused": ("‖", "#8B98A5"),
}
CHOSEN_STYLE = "bold #F2B705"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a rich style, which a pipe leaves out."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Only prose wraps. Ids, names and numbers stay whole, so that they can be copied."""

    header: str
    right: bool = False
    prose: bool = False


Row = Sequence[Cell | str]


def left(*headers: str) -> list[Column]:
    return [Column(header) for header in headers]


def right(*headers: str) -> list[Column]:
    return [Column(header, right=True) for header in headers]


def prose(*headers: str) -> list[Column]:
    return [Column(header, prose=True) for header in headers]


def on_terminal() -> bool:
    return sys.stdout.isatty()


def no_colour() -> bool:
    """As https://no-color.org has it: any text but the empty one."""
    return bool(os.environ.get("NO_COLOR"))


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(clean(line))


def print_title(text: str) -> None:
    """A line above a table."""
    print()
    _print_styled(clean(text), style="bold")


def print_table(columns: Sequence[Column], rows: Sequence[Row], *, may_drop: Sequence[str] = ()) -> None:
    """`may_drop` names the columns that a narrow terminal leaves out, the least important first."""
    cells = [[_cell(value) for value in row] for row in rows]
    if on_terminal():
        _print_fitting(columns, cells, may_drop=may_drop)
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
    dim = sys.stderr.isatty() and not no_colour()
    text = clean(text)
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr)


def _cell(value: Cell | str) -> Cell:
    return Cell(clean(value), "") if isinstance(value, str) else Cell(clean(value.text), value.style)


def _print_styled(text: str, *, style: str) -> None:
    if not on_terminal():
        print(text)
        return
    console = _console(width=_terminal_chars())
    console.print(text, style=style or None, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _console(*, width: int) -> Console:
    from rich.console import Console

    return Console(force_terminal=True, color_system=None if no_colour() else "auto", width=width)


def _terminal_chars() -> int:
    return shutil.get_terminal_size().columns


def _print_fitting(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, may_drop: Sequence[str]) -> None:
    room = _terminal_chars()
    widths = [_least_chars(column, [row[i].text for row in rows]) for i, column in enumerate(columns)]
    least = {column.header: width for column, width in zip(columns, widths, strict=True)}
    dropped = columns_to_drop(least, may_drop=may_drop, room=room)
    kept = [i for i, column in enumerate(columns) if column.header not in dropped]
    needed = sum(widths[i] + _GAP for i in kept) - _GAP
    _print_rich([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], width=max(room, needed))
    if named := ", ".join(header for header in dropped if header):
        note(f"{room} columns: left out {named}; --json shows all")


def _least_chars(column: Column, texts: Sequence[str]) -> int:
    """The width below which a column would lose something."""
    from rich.cells import cell_len

    widest = max((cell_len(text) for text in texts), default=0)
    return max(cell_len(column.header), min(widest, _PROSE_CHARS_MIN) if column.prose else widest)


def columns_to_drop(least_chars: Mapping[str, int], *, may_drop: Sequence[str], room: int) -> list[str]:
    """The headers to leave out, in the order of `may_drop`, until the others fit; all of them if they never do."""
    needed = sum(chars + _GAP for chars in least_chars.values()) - _GAP
    dropped: list[str] = []
    for header in may_drop:
        if needed <= room:
            break
        needed -= least_chars[header] + _GAP
        dropped.append(header)
    return dropped


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, width: int) -> None:
    """A `width` beyond the terminal's lets the terminal break the lines, which copies as one."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.header), justify=justify, no_wrap=not column.prose, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    _console(width=width).print(table)


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
    return Cell(f"{shape} {state.replace('_', ' ')}", colour)


def node_label(node: str, name: str | None = None) -> str:
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
    """Tokens per second or TFLOPS: three digits are all that is known of them, and a small one keeps its own."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{Decimal(f'{value:.3g}'):f}"


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
