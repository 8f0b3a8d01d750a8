"""Output of commands: rich tables on a terminal, plain aligned text in a pipe, and the format of numbers.

A terminal that is too narrow for a table gets fewer columns, never truncated ones; a pipe always gets all of them.
Names and texts come from other machines, so control characters are removed before anything is printed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

UNKNOWN = "-"

GAP = "  "
"""Between two columns."""
_PROSE_CHARS_MIN = 16
"""Below this width, wrapped words are harder to read than a table without the column."""

_STATES = {
    "online": ("●", "#2DD4BF"),
    "busy": ("◐", "#60A5FA"),
    "suspect": ("◔", "#F59E0B"),
    "offline": ("✕", "#F87171"),
    "no_server": ("✕", "#F87171"),
    "draining": ("‖", "#8B98A5"),
    "paused": ("‖", "#8B98A5"),
    "leased": ("‖", "#8B98A5"),
}
CHOSEN_STYLE = "bold #F2B705"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a rich style, which a pipe leaves out."""

    text: str
    style: str = ""


Fact = tuple[str, Cell | str]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """The header of a column, and how its cells are made from the items of a table.

    Only prose wraps. Ids, names and numbers stay on one line, so that they can be copied.
    """

    header: str
    cell: Callable[[T], Cell | str]
    right: bool = False
    prose: bool = False


def left(header: str, cell: Callable[[T], Cell | str]) -> Column[T]:
    return Column(header, cell)


def right(header: str, cell: Callable[[T], Cell | str]) -> Column[T]:
    return Column(header, cell, right=True)


def prose(header: str, cell: Callable[[T], Cell | str]) -> Column[T]:
    return Column(header, cell, prose=True)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def no_colour() -> bool:
    """Whether NO_COLOR is set and not empty (https://no-color.org)."""
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


def print_table(
    columns: Sequence[Column[T]],
    items: Sequence[T],
    *,
    may_drop: Sequence[str] = (),
    is_marked: Callable[[T], bool] = lambda _: False,
) -> None:
    """`may_drop` names the columns that a narrow terminal leaves out, the least important first."""
    rows = [table_row(columns, item, style=CHOSEN_STYLE if is_marked(item) else "") for item in items]
    if on_terminal():
        _print_fitting(columns, rows, may_drop=may_drop)
        return
    for line in align(columns, rows):
        print(GAP.join(cell.text for cell in line).rstrip())


def print_facts(facts: Sequence[Fact]) -> None:
    """Names and values, one pair per line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        cell = _clean_cell(value)
        _print_styled(f"{name.ljust(width)}  {cell.text}", style=cell.style)


def note(text: str) -> None:
    """Print a remark to stderr, so that it does not mix with the result on stdout."""
    dim = sys.stderr.isatty() and not no_colour()
    text = clean(text)
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr)


def table_row(columns: Sequence[Column[T]], item: T, *, style: str = "") -> list[Cell]:
    """The cells of one item. `style` is that of cells without a style of their own."""
    return [_clean_cell(column.cell(item), style=style) for column in columns]


def _clean_cell(value: Cell | str, *, style: str = "") -> Cell:
    return Cell(clean(value), style) if isinstance(value, str) else Cell(clean(value.text), value.style)


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


def _print_fitting(columns: Sequence[Column[T]], rows: Sequence[Sequence[Cell]], *, may_drop: Sequence[str]) -> None:
    room = _terminal_chars()
    widths = least_chars(columns, rows)
    kept = fitting_columns(columns, widths, may_drop=may_drop, room=room)
    needed = sum(widths[i] + len(GAP) for i in kept) - len(GAP)
    _print_rich([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], width=max(room, needed))
    shown = {columns[i].header for i in kept}
    if dropped := ", ".join(header for header in may_drop if header and header not in shown):
        note(f"{room} columns: left out {dropped}; --json shows all")


def least_chars(columns: Sequence[Column[T]], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The least width of each column at which no text is cut."""
    from rich.cells import cell_len

    widths = []
    for i, column in enumerate(columns):
        widest = max((cell_len(row[i].text) for row in rows), default=0)
        widths.append(max(cell_len(column.header), min(widest, _PROSE_CHARS_MIN) if column.prose else widest))
    return widths


def fitting_columns(
    columns: Sequence[Column[T]], widths: Sequence[int], *, may_drop: Sequence[str], room: int
) -> list[int]:
    """The indices of the columns that are left after dropping, in the order of `may_drop`, until they fit."""
    kept = {column.header: i for i, column in enumerate(columns)}
    for header in may_drop:
        if sum(widths[i] + len(GAP) for i in kept.values()) - len(GAP) <= room:
            break
        del kept[header]
    return list(kept.values())


def _print_rich(columns: Sequence[Column[T]], rows: Sequence[Sequence[Cell]], *, width: int) -> None:
    """If `width` is beyond the terminal's, the terminal breaks the lines, and they are still copied as one."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, len(GAP), 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.header), justify=justify, no_wrap=not column.prose, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    _console(width=width).print(table)


def align(columns: Sequence[Column[T]], rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """The headers and the rows, each cell padded to the width of its column."""
    lines = [[Cell(column.header, "dim") for column in columns], *rows]
    widths = [max(len(line[i].text) for line in lines) for i in range(len(columns))]
    return [
        [
            Cell(cell.text.rjust(width) if column.right else cell.text.ljust(width), cell.style)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        for line in lines
    ]


def clean(text: str) -> str:
    """One line without control, direction or surrogate characters."""
    return "".join(char for char in text if unicodedata.category(char) not in {"Cc", "Cf", "Cs"})


def clean_text(text: str) -> str:
    """The same for running text, in which newlines, tabs and joiners stay. What is removed could control a terminal."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cs"})


def state_cell(state: str) -> Cell:
    """A node's state as shape and colour."""
    shape, colour = _STATES.get(state, ("?", ""))
    return Cell(f"{shape} {state.replace('_', ' ')}", colour)


def node_label(node: str, name: str | None = None) -> str:
    """A node's name, or the first digits of its address."""
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
    """Tokens per second or TFLOPS, to three digits: measurements are not more exact than that."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{Decimal(f'{value:.3g}'):f}"


def format_optional(value: float | None, text: str) -> str:
    """`text` has a place for the number, e.g. `{:.0f} W`."""
    return UNKNOWN if value is None else text.format(value)


def format_ms(ms: float | None) -> str:
    return UNKNOWN if ms is None else f"{plain_ms(ms)} ms"


def plain_ms(ms: float | None) -> str:
    """Milliseconds without the unit, for columns whose header has it."""
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
