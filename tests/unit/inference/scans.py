"""Random numbers of random nodes, with as many ties as can be, and both scans over them."""

from __future__ import annotations

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher import kernel, scan
from sparewatt.inference.matcher.columns import NO_POSITIONS, ColumnField, Floats, NodeColumns, Positions
from sparewatt.inference.matcher.formula import PARTS, UNIT_WEIGHTS
from sparewatt.inference.matcher.scan import MatchQuery

LARGE_SHARE = 0.02
PREFIXES = (0, 1 << 96, (1 << 160) - (1 << 20))
"""Ids that differ in their last bits only, and a few that differ in their first."""

_FLAGS = (ColumnField.CONNECTED, ColumnField.DRAINING, ColumnField.MEASURED, ColumnField.WARM)
_CEILINGS = {
    ColumnField.KV_BYTES_PER_TOKEN: 1e6,
    ColumnField.KV_FREE_BYTES: 1e9,
    ColumnField.CONTEXT_TOKENS: 2e4,
    ColumnField.FITS_TOKENS: 2e4,
    ColumnField.STEP_S: 0.1,
    ColumnField.STEP_TOKEN_S: 1e-6,
    ColumnField.KV_TOKEN_S: 1e-6,
    ColumnField.PREFILL_TOKEN_S: 1e-3,
    ColumnField.PREFILL_SQUARE_S: 1e-7,
    ColumnField.STALL_SHARE: 1.0,
    ColumnField.OWN_READ_END_S: 110.0,
    ColumnField.FOREIGN_READ_END_S: 110.0,
    ColumnField.PROMPT_USD: 1e-6,
    ColumnField.COMPLETION_USD: 1e-6,
    ColumnField.HEARD_IF_OPEN_S: 100.0,
    ColumnField.LAST_HEARD_S: 100.0,
    ColumnField.SUSPECT_UNTIL_S: 100.0,
}


def random_entries(chance: np.random.Generator) -> NodeColumns:
    n = int(chance.integers(600, 2500) if chance.random() < LARGE_SHARE else chance.integers(1, 40))
    entries = NodeColumns()
    for number in chance.permutation(n).tolist():
        prefix = PREFIXES[number % len(PREFIXES)]
        entries.add(NodeId(f"0x{prefix + number:040x}"), int(chance.integers(0, 1 << 63)), number)
    steps = int(chance.choice([1, 2, 1_000_000]))
    for field in ColumnField:
        column = chance.integers(0, steps, n) / steps * _CEILINGS.get(field, 2.0)
        numbers: Floats = np.ceil(column / 2.0) if field in _FLAGS else column
        entries.write_column(field, numbers)
    entries.write_column(ColumnField.READ_SLOWER, 1.0 + chance.integers(0, 2, n).astype(np.float64))
    entries.write_column(ColumnField.STANDING, chance.integers(0, 3, n).astype(np.float64))
    if chance.random() < 0.5:
        for field, value in (
            (ColumnField.HEARD_IF_OPEN_S, 99.0),
            (ColumnField.CONTEXT_TOKENS, 1e9),
            (ColumnField.FITS_TOKENS, np.inf),
        ):
            entries.write_column(field, np.full(n, value))
    return entries


def random_question(chance: np.random.Generator) -> MatchQuery:
    weights = tuple(chance.choice([0.0, 1.0, 2.5, 100.0], len(PARTS)).tolist())
    return MatchQuery(
        float(chance.integers(1, 10_000)),
        float(chance.integers(1, 10_000)),
        float(chance.integers(0, 10_000)),
        usd_weight=float(chance.choice([0.0, 1e4, 4e4])),
        weights=weights if chance.random() < 0.3 else UNIT_WEIGHTS,
        now_s=100.0,
        suspect_before_s=90.0,
        offline_before_s=float(chance.choice([-1.0, 50.0])),
        jitter=float(chance.choice([0.0, 0.2])),
        jitter_seed=2 * int(chance.integers(0, 1 << 63)),
        standing=float(chance.integers(0, 3)),
    )


def some_places(chance: np.random.Generator, n: int, *, share: float) -> Positions:
    if chance.random() < share:
        return NO_POSITIONS
    return chance.permutation(n)[: int(chance.integers(1, n + 1))]


def compare_scans(chance: np.random.Generator, *, rank: scan.ScanFunction = kernel.rank) -> int:
    """One random table, both scans: the same places, costs and parts to the bit, the same reasons. How many ranked."""
    entries, question = random_entries(chance), random_question(chance)
    named = some_places(chance, len(entries), share=0.7)
    tried = some_places(chance, len(entries), share=0.8)
    k = 64 if chance.random() < 0.1 else 8
    by_numpy = scan.rank(question, entries, named, tried, k=k)
    compiled = rank(question, entries, named, tried, k=k)
    assert compiled.positions.tolist() == by_numpy.positions.tolist()
    assert compiled.costs.tolist() == by_numpy.costs.tolist()
    assert compiled.rejected_counts == by_numpy.rejected_counts
    assert compiled.rejected_rows == by_numpy.rejected_rows
    return len(compiled.positions)
