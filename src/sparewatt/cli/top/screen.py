"""The picture that `sparewatt top` draws: lines of cells, for a terminal of any size. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sparewatt.cli import output
from sparewatt.cli.output import Cell, Column
from sparewatt.cli.top.view import TopModelRow, TopNodeRow, TopView

ScreenLine = list[Cell]
GAP = "  "
NAME_CHARS_MAX = 36
STATES = ("online", "busy", "suspect", "draining", "paused", "offline")
MODEL_COLUMNS = [
    *output.left("MODEL"),
    *output.right("NODES", "WARM", "RUN", "WAIT", "REQ/S", "TOK/S", "TTFT P50", "P95", "FAILED/MIN"),
]
NODE_COLUMNS = [
    *output.left("STATE", "NODE", "GPU"),
    *output.right("LOAD", "QUEUE", "TOK/S", "DONE", "FAILED", "BUSY", "TEMP", "POWER"),
]
MODELS_MAY_DROP = ("WARM", "FAILED/MIN", "NODES", "P95", "WAIT", "TTFT P50", "TOK/S", "REQ/S", "RUN")
NODES_MAY_DROP = ("GPU", "DONE", "QUEUE", "BUSY", "FAILED", "POWER", "TEMP", "TOK/S", "LOAD")


def render(look: TopView, *, width: int, height: int | None, note: str = "") -> list[ScreenLine]:
    """At most `height` lines of at most `width` characters. The nodes get what is left, the troubled ones first."""
    lines = [_title(look, note), [], *_head(look), []]
    lines += _table(MODEL_COLUMNS, [_model_row(model) for model in look.models], MODELS_MAY_DROP, width)[
        : None if height is None else max(2, (height - len(lines)) // 2)
    ]
    nodes = [*look.troubled, *look.busiest]
    if nodes:
        lines += [[], *_table(NODE_COLUMNS, [_node_row(node) for node in nodes], NODES_MAY_DROP, width)]
    return [_cut(line, width) for line in lines[:height]]


def as_text(lines: Sequence[ScreenLine]) -> str:
    return "\n".join("".join(cell.text for cell in line).rstrip() for line in lines)


def _title(look: TopView, note: str) -> ScreenLine:
    at = dt.datetime.fromtimestamp(look.at, tz=dt.UTC).astimezone()
    whose = "" if look.is_operator else "  (what everybody sees; an operator's key shows more)"
    told = [Cell(f"  {output.clean(note)}", "bold #F87171")] if note else []
    return [Cell("Sparewatt", output.CHOSEN_STYLE), Cell(f"  {look.gateway}  {at:%H:%M:%S}{whose}"), *told]


def _head(look: TopView) -> list[ScreenLine]:
    first = look.first_token_ms
    waiting = "" if look.waiting is None else f"   waiting {look.waiting}"
    p95 = "" if first.p95 is None else f"   p95 {output.format_ms(first.p95)}"
    rate = "" if not look.is_operator else f"requests {output.format_rate(look.requests_per_s)}/s   "
    nodes = GAP.join(f"{look.nodes[state]} {state}" for state in STATES if look.nodes.get(state)) or "none"
    lines: list[ScreenLine] = [
        [Cell(f"{rate}tokens {output.format_rate(look.tokens_per_s)}/s   running {look.running}{waiting}", "bold")],
        [Cell(f"first token p50 {output.format_ms(first.p50)}{p95}")],
        [Cell(f"nodes {nodes}   {look.gpus} GPUs   {look.vram_gb:,} GB")],
    ]
    if look.errors:
        told = GAP.join(f"{output.clean(error.code)} {error.count}" for error in look.errors)
        lines.append([Cell("errors in the last minute: "), Cell(told, "#F59E0B")])
    return lines


def _model_row(model: TopModelRow) -> list[Cell]:
    first = model.first_token_ms
    texts = [
        str(model.nodes),
        str(model.warm),
        output.format_count(model.running),
        output.format_count(model.waiting),
        output.format_rate(model.requests_per_s),
        output.format_rate(model.tokens_per_s),
        output.format_ms(first.p50),
        output.format_ms(first.p95),
    ]
    failed = Cell(output.format_count(model.failed), "#F87171" if model.failed else "")
    return [_name(model.id), *map(Cell, texts), failed]


def _node_row(node: TopNodeRow) -> list[Cell]:
    def told(value: float | None, text: str) -> Cell:
        return Cell(output.UNKNOWN if value is None else text.format(value))

    return [
        output.state_cell(node.state),
        _name(output.node_label(node.id, node.name)),
        _name(node.gpu),
        Cell(f"{node.running}/{node.slots}"),
        Cell(str(node.queued)),
        Cell(output.format_rate(node.tokens_per_s)),
        Cell(output.format_count(node.jobs_done)),
        Cell(output.format_count(node.jobs_failed), "#F59E0B" if node.jobs_failed else ""),
        told(node.utilisation, "{:.0%}"),
        told(node.temperature_c, "{:.0f} °C"),
        told(node.power_watts, "{:.0f} W"),
    ]


def _name(text: str) -> Cell:
    """Other people's words: without what could steer a terminal, and no longer than a column may be."""
    text = output.clean(text)
    return Cell(text if len(text) <= NAME_CHARS_MAX else f"{text[: NAME_CHARS_MAX - 1]}…")


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], may_drop: Sequence[str], width: int
) -> list[ScreenLine]:
    widths = [
        max([len(column.header), *(len(row[at].text) for row in rows)], default=0) for at, column in enumerate(columns)
    ]
    least = {column.header: chars for column, chars in zip(columns, widths, strict=True)}
    dropped = output.columns_to_drop(least, may_drop=may_drop, room=width)
    kept = [at for at, column in enumerate(columns) if column.header not in dropped]
    header = [Cell(columns[at].header, "dim") for at in kept]
    shown = [header, *([row[at] for at in kept] for row in rows)]
    return [_padded(line, [columns[at] for at in kept], [widths[at] for at in kept]) for line in shown]


def _padded(line: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> ScreenLine:
    cells: ScreenLine = []
    for cell, column, chars in zip(line, columns, widths, strict=True):
        text = cell.text.rjust(chars) if column.right else cell.text.ljust(chars)
        cells += [Cell(GAP)] if cells else []
        cells.append(Cell(text, cell.style))
    return cells


def _cut(line: ScreenLine, width: int) -> ScreenLine:
    left, kept = width, []
    for cell in line:
        kept.append(Cell(cell.text[:left], cell.style))
        left -= len(kept[-1].text)
    return kept
