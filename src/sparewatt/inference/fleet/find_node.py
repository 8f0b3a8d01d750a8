"""Finds a node by its address, by the start of its address, or by its name."""

from __future__ import annotations

from sparewatt.core.errors import NotFound
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable

ADDRESS_START_CHARS_MIN = 6
"""With `0x`. A shorter start would fit too many nodes."""


def find_node(table: NodeTable, wanted: str) -> NodeRow:
    """Raises NotFound if no node matches, or if several do."""
    row = table.get(NodeId(wanted.lower()))
    if row is not None:
        return row
    rows = [row for row in table if row.specs.name == wanted] or _rows_by_address_start(wanted.lower(), table)
    if len(rows) > 1:
        raise NotFound(f"{len(rows)} nodes are called {wanted[:60]!r}. Ask by the whole address.")
    if not rows:
        raise NotFound(f"There is no node {wanted[:60]!r}. 'sparewatt nodes' shows them.")
    return rows[0]


def _rows_by_address_start(start: str, table: NodeTable) -> list[NodeRow]:
    """By a shortened address, as lists of nodes print it."""
    if not start.startswith("0x") or len(start) < ADDRESS_START_CHARS_MIN:
        return []
    return [row for row in table if row.id.startswith(start)]
