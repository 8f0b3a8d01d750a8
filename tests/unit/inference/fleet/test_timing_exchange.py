"""Gateways share what they have timed, and nothing is lost when the store is away."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import NodeId
from sparewatt.inference.fleet import timing_exchange
from sparewatt.inference.fleet.timing_exchange import TimingExchange
from sparewatt.inference.matcher.newcomers import TIMED_JOBS
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.node_timings import StoredTiming
from tests.unit.inference.nodes import MODEL, NOW_S, SPEED, a_job, node_id, some_specs


class MemoryTimings:
    """Implements TimingStore."""

    def __init__(self) -> None:
        self.rows: dict[tuple[NodeId, str], StoredTiming] = {}
        self.asked: list[list[NodeId]] = []
        self.is_away = False

    async def put(self, timings: Sequence[StoredTiming]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        self.rows |= {(each.node_id, each.model): each for each in timings}

    async def of(self, node_ids: Collection[NodeId]) -> Sequence[StoredTiming]:
        self.asked.append(list(node_ids))
        return [row for row in self.rows.values() if row.node_id in node_ids]


def newcomers(count: int) -> NodeTable:
    table = NodeTable()
    for number in range(1, count + 1):
        table.connect(node_id(number), some_specs(), now_s=NOW_S)
    return table


def time_jobs(table: NodeTable, node: NodeId, *, slower: float, count: int = TIMED_JOBS) -> None:
    now_s = NOW_S
    for _ in range(count):
        held = table.reserve(node, a_job(), now_s=now_s)
        now_s += SPEED.prefill_s(a_job().prompt_tokens)
        table.note_first_token(held, now_s=now_s)
        now_s += slower * 200 / SPEED.decode_tps
        table.note_answer(held, steps=200, now_s=now_s)
        table.release(held, now_s=now_s)


async def test_what_one_gateway_has_timed_the_other_knows() -> None:
    store, one, other = MemoryTimings(), newcomers(2), newcomers(2)
    time_jobs(one, node_id(1), slower=4.0)
    await TimingExchange(one, store).exchange()
    await TimingExchange(other, store).exchange()
    assert other.newcomers.everyone() == [node_id(2)]
    row = other.get(node_id(1))
    assert row is not None
    assert row.positions[MODEL].writing_factor == pytest.approx(4.0, rel=0.1)


async def test_what_cannot_be_stored_is_stored_the_next_time() -> None:
    store, table = MemoryTimings(), newcomers(1)
    time_jobs(table, node_id(1), slower=1.0)
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        await TimingExchange(table, store).exchange()
    assert table.newly_timed == {node_id(1)}
    store.is_away = False
    await TimingExchange(table, store).exchange()
    assert table.newly_timed == set()
    assert [row.jobs for row in store.rows.values()] == [TIMED_JOBS]


async def test_a_node_with_too_few_jobs_goes_on_counting_elsewhere() -> None:
    store, one, other = MemoryTimings(), newcomers(1), newcomers(1)
    time_jobs(one, node_id(1), slower=1.0, count=TIMED_JOBS - 1)
    await TimingExchange(one, store).exchange()
    await TimingExchange(other, store).exchange()
    assert other.newcomers.everyone() == [node_id(1)]
    time_jobs(other, node_id(1), slower=1.0, count=1)
    assert other.newcomers.everyone() == []


async def test_many_newcomers_are_asked_for_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_exchange, "NODES_AT_ONCE", 2)
    store, table = MemoryTimings(), newcomers(5)
    for number in range(1, 6):
        time_jobs(table, node_id(number), slower=1.0, count=1)
    await TimingExchange(table, store).exchange()
    assert [len(asked) for asked in store.asked] == [2, 2, 1]
    assert len(store.rows) == 5
