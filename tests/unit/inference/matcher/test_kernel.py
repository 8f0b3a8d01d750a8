"""How the compiled scan is called: with the arguments that it expects, and not at all where there is none."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.columns import NO_POSITIONS, ColumnField, NodeColumns, Positions
from sparewatt.inference.matcher.formula import BALANCED, PARTS
from sparewatt.inference.matcher.kernel import CALL, CAPACITY_FIRST, QUERY, Kernel
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.scan import RANKED_WIDTH, MatchQuery
from tests.unit.inference.nodes import a_job, a_table, node_id, situation

QUESTION = MatchQuery(
    11.0, 12.0, 13.0, 14.0, tuple(float(n) for n in range(len(PARTS))), 15.0, 16.0, 17.0, 18.0, 2**64 - 1, 19.0
)


class RecordedEntry:
    """Stands in for the compiled function: keeps its arguments, and ranks nobody or as many as it is told."""

    def __init__(self, n_ranked: int = 0) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.queries: list[tuple[float, ...]] = []
        self.n_ranked = n_ranked

    def __call__(self, result_at: int, excinfo: int | None, call_at: int) -> int:
        assert excinfo is None
        self.calls.append(CALL.unpack(ctypes.string_at(call_at, CALL.size)))
        self.queries.append(QUERY.unpack(ctypes.string_at(self.calls[-1][11], QUERY.size)))
        ctypes.c_int64.from_address(result_at).value = self.n_ranked
        return 0


def some_columns(n: int) -> NodeColumns:
    columns = NodeColumns()
    for number in range(n):
        columns.add(node_id(number), number, number)
    for field in (ColumnField.HEARD_IF_OPEN_S, ColumnField.CONTEXT_TOKENS, ColumnField.FITS_TOKENS):
        columns.write_column(field, np.full(n, 1e9))
    return columns


def call_of(
    columns: NodeColumns, *, subset: Positions = NO_POSITIONS, tried: Positions = NO_POSITIONS, k: int = 8
) -> tuple[int, ...]:
    entry = RecordedEntry()
    Kernel(entry).rank(QUESTION, columns, subset, tried, k=k)
    return entry.calls[0]


def test_a_call_has_the_tables_addresses_and_its_size() -> None:
    columns = some_columns(5)
    rows, transposed, capacity, hashes, ids, n, *_ = call_of(columns)
    assert (rows, transposed, capacity, hashes, ids) == columns.addresses
    assert n == 5


def test_a_call_has_the_subset_and_the_nodes_that_were_tried() -> None:
    subset, tried = np.array([3, 1, 2], np.int64), np.array([1], np.int64)
    subset_at, n_subset, _, n_tried = call_of(some_columns(5), subset=subset, tried=tried)[6:10]
    assert n_subset == 3
    assert n_tried == 1
    assert subset_at == subset.ctypes.data


def test_without_a_subset_no_memory_is_named_for_it() -> None:
    assert call_of(some_columns(5))[6:10] == (0, 0, 0, 0)


def test_a_small_part_of_a_large_table_is_read_row_by_row() -> None:
    columns = some_columns(100)
    assert call_of(columns, subset=np.array([7], np.int64))[2] == 0
    assert call_of(columns, subset=np.arange(50))[2] == columns.addresses[2] > 0


def test_the_question_is_packed_seed_first_and_weights_last() -> None:
    entry = RecordedEntry()
    Kernel(entry).rank(QUESTION, some_columns(1), NO_POSITIONS, NO_POSITIONS, k=8)
    assert entry.queries[0] == (2**64 - 1, *(float(n) for n in range(11, 20)), *QUESTION.weights)


@pytest.mark.parametrize(("n_nodes", "k"), [(CAPACITY_FIRST + 1, 8), (3, 500)])
def test_memory_grows_with_the_table_and_with_k(n_nodes: int, k: int) -> None:
    entry = RecordedEntry()
    caller = Kernel(entry)
    small, large = some_columns(2), some_columns(n_nodes)
    caller.rank(QUESTION, small, NO_POSITIONS, NO_POSITIONS, k=8)
    caller.rank(QUESTION, large, NO_POSITIONS, NO_POSITIONS, k=k)
    caller.rank(QUESTION, small, NO_POSITIONS, NO_POSITIONS, k=8)
    first, second, third = (call[12:] for call in entry.calls)
    assert first != second
    assert second == third


def test_as_many_rows_are_returned_as_the_scan_ranked() -> None:
    result = Kernel(RecordedEntry(n_ranked=3)).rank(QUESTION, some_columns(5), NO_POSITIONS, NO_POSITIONS, k=8)
    assert result.n_ranked == 3
    assert len(result.rows) == 3 * RANKED_WIDTH * 8
    assert not result.rejected_counts


def test_without_a_library_numpy_gives_the_same_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    table, job = a_table(30), a_job()
    usual = match(job, table, situation(), ranking=BALANCED, seed=3)
    monkeypatch.setattr(kernel, "_kernel", None)
    assert not kernel.ready()
    assert match(job, table, situation(), ranking=BALANCED, seed=3) == usual


def test_a_scan_that_is_not_there_cannot_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_kernel", None)
    with pytest.raises(RuntimeError, match="no compiled scan"):
        kernel.rank(QUESTION, some_columns(1), NO_POSITIONS, NO_POSITIONS, k=8)
