"""Rows that have changed since their numbers were written into the entries. Whoever reads numbers has them written.

A job changes its node's row four times or more between two decisions, and only the next decision looks: so a change is
marked at once and written once. The entries ask for it themselves before they are read, so nobody sees old numbers.
"""

from __future__ import annotations

from sparewatt.inference.matcher.figures import load_values, record_values
from sparewatt.inference.matcher.model import NodeRow

ROWS_MAX = 64
"""More are not left behind: writing them, a tenth of a millisecond, is what a decision may find to do at most."""


class Unwritten:
    def __init__(self, *, unseen_weight: float) -> None:
        self._rows: list[NodeRow] = []
        self._unseen_weight = unseen_weight
        """Jobs that other gateways may have sent a node, for each that this one sent since its last report."""

    def add(self, row: NodeRow) -> None:
        """A row that is not among them yet (`row.is_unwritten`)."""
        row.is_unwritten = True
        self._rows.append(row)
        if len(self._rows) >= ROWS_MAX:
            self.write()

    def write(self) -> None:
        """All of them, into the places of all their models."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        for row in rows:
            row.is_unwritten = False
            unseen = self._unseen_weight * row.own_since_report
            for seat in row.seats.values():
                seat.entries.write_moving(seat.place, load_values(row, seat, unseen) + record_values(row, seat))
