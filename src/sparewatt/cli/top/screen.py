"""The screen that `sparewatt top` draws: lines of cells, for a terminal of any size. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sparewatt.cli import output
from sparewatt.cli.output import GAP, Cell, Column, T, left, right
from sparewatt.cli.top.view import TopModelRow, TopNodeRow, TopView
from sparewatt.protocol.api.feed import NodeStateName

ScreenLine = list[Cell]
NAME_CHARS_MAX = 36
STATES: tuple[NodeStateName, ...] = ("online", "busy", "suspect", "draining", "paused", "offline")
MODEL_COLUMNS: list[Column[TopModelRow]] = [
    left("MODEL", lambda model: _name(model.id)),
    right("NODES", lambda model: str(model.nodes)),
    right("WARM", lambda model: str(model.warm)),
    right("RUN", lambda model: output.format_count(model.running)),
    right("WAIT", lambda model: output.format_count(model.waiting)),
    right("REQ/S", lambda model: output.format_rate(model.requests_per_s)),
    right("TOK/S", lambda model: output.format_rate(model.tokens_per_s)),
    right("TTFT P50", lambda model: output.format_ms(model.first_token_ms.p50)),
    right("P95", lambda model: output.format_ms(model.first_token_ms.p95)),
    right("FAILED/MIN", lambda model: Cell(output.format_count(model.failed), "#F87171" if model.failed else "")),
]
MODELS_MAY_DROP = ("WARM", "FAILED/MIN", "NODES", "P95", "WAIT", "TTFT P50", "TOK/S", "REQ/S", "RUN")
NODE_COLUMNS: list[Column[TopNodeRow]] = [
    left("STATE", lambda node: output.state_cell(node.state)),
    left("NODE", lambda node: _name(output.node_label(node.id, node.name))),
    left("GPU", lambda node: _name(node.gpu)),
    right("LOAD", lambda node: f"{node.running}/{node.slots}"),
    right("QUEUE", lambda node: str(node.queued)),
    right("TOK/S", lambda node: output.format_rate(node.tokens_per_s)),
    right("DONE", lambda node: output.format_count(node.jobs_done)),
    right("FAILED", lambda node: Cell(output.format_count(node.jobs_failed), "#F59E0B" if node.jobs_failed else "")),
    right("BUSY", lambda node: output.format_optional(node.utilisation, "{:.0%}")),
    right("TEMP", lambda node: output.format_optional(node.temperature_c, "{:.0f} °C")),
    right("POWER", lambda node: output.format_optional(node.power_watts, "{:.0f} W")),
]
NODES_MAY_DROP = ("GPU", "DONE", "QUEUE", "BUSY", "FAILED", "POWER", "TEMP", "TOK/S", "LOAD")


def render(view: TopView, *, width: int, height: int | None, note: str = "") -> list[ScreenLine]:
    """At most `height` lines of at most `width` characters. Nodes get the lines that are left, troubled ones first."""
    lines = [_title(view, note), [], *_head(view), []]
    lines += _table(MODEL_COLUMNS, view.models, MODELS_MAY_DROP, width)[
        : None if height is None else max(2, (height - len(lines)) // 2)
    ]
    if nodes := [*view.troubled, *view.busiest]:
        lines += [[], *_table(NODE_COLUMNS, nodes, NODES_MAY_DROP, width)]
    return [_cut(line, width) for line in lines[:height]]


def as_text(lines: Sequence[ScreenLine]) -> str:
    return "\n".join("".join(cell.text for cell in line).rstrip() for line in lines)


def _title(view: TopView, note: str) -> ScreenLine:
    at = dt.datetime.fromtimestamp(view.at, tz=dt.UTC).astimezone()
    limits = "" if view.is_operator else "  (what everybody sees; an operator's key shows more)"
    notes = [Cell(f"  {output.clean(note)}", "bold #F87171")] if note else []
    return [Cell("Sparewatt", output.CHOSEN_STYLE), Cell(f"  {view.gateway}  {at:%H:%M:%S}{limits}"), *notes]


def _head(view: TopView) -> list[ScreenLine]:
    first = view.first_token_ms
    waiting = "" if view.waiting is None else f"   waiting {view.waiting}"
    p95 = "" if first.p95 is None else f"   p95 {output.format_ms(first.p95)}"
    rate = "" if not view.is_operator else f"requests {output.format_rate(view.requests_per_s)}/s   "
    nodes = GAP.join(f"{view.nodes[state]} {state}" for state in STATES if view.nodes.get(state)) or "none"
    lines: list[ScreenLine] = [
        [Cell(f"{rate}tokens {output.format_rate(view.tokens_per_s)}/s   running {view.running}{waiting}", "bold")],
        [Cell(f"first token p50 {output.format_ms(first.p50)}{p95}")],
        [Cell(f"nodes {nodes}   {view.gpus} GPUs   {view.vram_gb:,} GB")],
    ]
    if view.errors:
        errors = GAP.join(f"{output.clean(error.code)} {error.count}" for error in view.errors)
        lines.append([Cell("errors in the last minute: "), Cell(errors, "#F59E0B")])
    return lines


def _name(text: str) -> str:
    """Cut to the width that a column may have."""
    text = output.clean(text)
    return text if len(text) <= NAME_CHARS_MAX else f"{text[: NAME_CHARS_MAX - 1]}…"


def _table(columns: Sequence[Column[T]], items: Sequence[T], may_drop: Sequence[str], width: int) -> list[ScreenLine]:
    rows = [output.table_row(columns, item) for item in items]
    kept = output.fitting_columns(columns, output.least_chars(columns, rows), may_drop=may_drop, room=width)
    aligned = output.align([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return [_join(line) for line in aligned]


def _join(cells: Sequence[Cell]) -> ScreenLine:
    first, *rest = cells
    return [first, *(cell for each in rest for cell in (Cell(GAP), each))]


def _cut(line: ScreenLine, width: int) -> ScreenLine:
    left_chars, kept = width, []
    for cell in line:
        kept.append(Cell(cell.text[:left_chars], cell.style))
        left_chars -= len(kept[-1].text)
    return kept
