"""The record of earlier eras in the matcher: failures have a price at once, what is seen here outweighs them soon."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.ids import NodeId
from sparewatt.inference.fleet.record_loader import RECORD_JOBS_MAX, RecordLoader
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.node_row import failure_odds_of
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.eras import CompletionSum
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import a_job, a_table, node_id, situation

ONE, TWO = node_id(1), node_id(2)


class FixedSums:
    def __init__(self, *sums: CompletionSum) -> None:
        self.sums = sums

    async def completion_sums(self, *, now_unix_s: float) -> Sequence[CompletionSum]:
        assert now_unix_s > 0
        return self.sums


async def loaded(table: NodeTable, *sums: CompletionSum) -> None:
    await RecordLoader(table, FixedSums(*sums), ManualClock(now_s=0.0, unix_s=1.0)).load()


def odds(table: NodeTable, node: NodeId) -> float:
    row = table.get(node)
    assert row is not None
    return failure_odds_of(row)


async def test_a_node_that_failed_before_costs_more_and_one_that_did_not_costs_less() -> None:
    table = a_table(2)
    unknown = odds(table, ONE)
    await loaded(table, CompletionSum(ONE, 10.0, 10.0), CompletionSum(TWO, 40.0, 0.0))
    assert odds(table, TWO) < unknown < odds(table, ONE)


async def test_the_choice_follows_the_record() -> None:
    table = a_table(2)
    await loaded(table, CompletionSum(ONE, 5.0, 45.0))
    decisions = [match(a_job(), table, situation(), ranking=BALANCED, seed=seed) for seed in range(5)]
    assert [decision.ranked[0].node_id for decision in decisions] == [TWO] * 5


async def test_a_long_record_counts_as_so_many_jobs_and_no_more() -> None:
    table = a_table(1)
    await loaded(table, CompletionSum(ONE, 9_000.0, 1_000.0))
    row = table.get(ONE)
    assert row is not None
    assert (row.record_done, row.record_failed) == (RECORD_JOBS_MAX * 0.9, RECORD_JOBS_MAX * 0.1)


async def test_a_node_that_left_is_passed_over() -> None:
    table = a_table(1)
    await loaded(table, CompletionSum(node_id(9), 1.0, 1.0))
    assert table.get(node_id(9)) is None
