from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sparewatt.core.errors import DiskFull, StoreUnavailable
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.gateway import chores
from sparewatt.gateway.chores import (
    Chore,
    MemoryRelease,
    exchange_delivered,
    forget_nodes,
    repeat,
    run_once,
    save_nodes,
)
from sparewatt.gateway.process import _drain
from sparewatt.gateway.services import Services
from sparewatt.inference.fleet.link_registry import FORGET_AFTER_S
from sparewatt.inference.metering.delivered_tokens import DeliveredTokens
from sparewatt.store.delivered_tokens import DailyDelivery, DeliveredSum, DeliveredTokenStore
from tests.unit.gateway.small_gateway import ListDatabase, make_services
from tests.unit.inference.nodes import NOW_S, a_table, node_id, some_specs
from tests.unit.ledger.samples import OWNER, closed, delivery

ONE = node_id(1)


def services_with_change() -> tuple[Services, ListDatabase]:
    services = make_services(a_table(1))
    services.links.changed.add(ONE)
    assert isinstance(services.database, ListDatabase)
    return services, services.database


async def test_what_changed_is_stored_once() -> None:
    services, database = services_with_change()
    await save_nodes(services)
    await save_nodes(services)
    assert [node_id for node_id, _, _ in database.saved] == [ONE]
    assert services.links.changed == set()


async def test_a_node_that_is_here_was_seen_now_and_one_that_left_when_it_left() -> None:
    services, database = services_with_change()
    services.table.disconnect(ONE, unix_s=5.0)
    await save_nodes(services)
    services.table.connect(ONE, some_specs(), now_s=NOW_S)
    services.links.changed.add(ONE)
    await save_nodes(services)
    assert [seen for _, _, seen in database.saved] == [5.0, services.clock.unix_s()]


async def test_a_change_while_storing_is_stored_the_next_time() -> None:
    services, database = services_with_change()
    database.on_save = lambda: services.links.changed.add(ONE)
    await save_nodes(services)
    assert services.links.changed == {ONE}


async def test_what_could_not_be_stored_is_stored_the_next_time() -> None:
    services, database = services_with_change()

    def fail() -> None:
        raise StoreUnavailable("the database is away")

    database.on_save = fail
    with pytest.raises(StoreUnavailable):
        await save_nodes(services)
    assert services.links.changed == {ONE}


async def test_a_gateway_stops_also_without_its_database() -> None:
    services, database = services_with_change()

    def fail() -> None:
        raise StoreUnavailable("the database is away")

    database.on_save = fail
    await _drain(services)
    assert services.drain.is_draining


async def test_a_chore_that_fails_ends_neither_the_gateway_nor_itself() -> None:
    runs = 0

    async def stumble() -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError("nobody foresaw this")

    await run_once(stumble, name="stumble")
    await run_once(stumble, name="stumble")
    assert runs == 2


async def test_nodes_that_the_database_has_forgotten_are_forgotten_here() -> None:
    services, database = services_with_change()
    services.links.remember(node_id(7), AccountId("acc_1"), some_specs(), last_seen_unix_s=1.0)
    services.links.remember(node_id(8), AccountId("acc_1"), some_specs(), last_seen_unix_s=1.0)
    services.counter.totals.node_tokens[node_id(7)] = 5
    database.forgotten = {node_id(7)}
    await forget_nodes(services)
    assert (services.table.get(node_id(7)), services.counter.totals.node_tokens) == (None, {})
    assert services.table.get(node_id(8)) is not None  # it has served at another gateway
    assert database.forgotten_after_s == FORGET_AFTER_S


async def test_memory_is_given_back_once_after_nodes_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(chores, "release_free_memory", lambda: calls.append(None))
    services, _ = services_with_change()
    release = MemoryRelease(services)
    await release.run()
    assert calls == []
    services.links.version += 1
    await release.run()
    await release.run()
    assert len(calls) == 1


class MemoryDeliveries(DeliveredTokenStore):
    """What gateways have stored, by model and owner."""

    def __init__(self) -> None:
        self.stored: dict[tuple[ModelId, AccountId], int] = {}
        self.is_away = False

    async def add(self, deliveries: Sequence[DailyDelivery]) -> None:
        if self.is_away:
            raise StoreUnavailable("the database is away")
        for each in deliveries:
            self.stored[each.model, each.owner] = self.stored.get((each.model, each.owner), 0) + each.tokens

    async def sums(self) -> list[DeliveredSum]:
        return [DeliveredSum(model, owner, tokens) for (model, owner), tokens in self.stored.items()]


async def test_processes_know_what_owners_delivered_through_each_other() -> None:
    store, one, other = MemoryDeliveries(), DeliveredTokens(), DeliveredTokens()
    one.add(closed("1", delivery(10, 20)))
    other.add(closed("2", delivery(1, 2)))
    for process in (one, other, one):
        await exchange_delivered(process, store)
    assert one.of(ModelId("stub")) == other.of(ModelId("stub")) == {OWNER: 33}


async def test_what_was_delivered_while_the_database_is_away_is_stored_once_it_is_back() -> None:
    store, process = MemoryDeliveries(), DeliveredTokens()
    process.add(closed("1", delivery(10, 20)))
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        await exchange_delivered(process, store)
    assert process.of(ModelId("stub")) == {OWNER: 30}
    store.is_away = False
    await exchange_delivered(process, store)
    assert store.stored == {(ModelId("stub"), OWNER): 30}
    assert process.of(ModelId("stub")) == {OWNER: 30}


async def test_work_that_is_postponed_is_logged_once_per_outage(caplog: pytest.LogCaptureFixture) -> None:
    results = [None, StoreUnavailable("away"), DiskFull("full"), None, StoreUnavailable("away"), None]
    ended = asyncio.Event()

    async def work() -> None:
        if not results:
            ended.set()
            return
        error = results.pop(0)
        if error is not None:
            raise error

    repeating = asyncio.create_task(repeat(Chore("books_post", 0, work)))
    await ended.wait()
    repeating.cancel()
    assert [record.message for record in caplog.records] == ["background_work_postponed"] * 2
    assert caplog.records[0].__dict__["fields"] == {"work": "books_post", "cause": "store_unavailable"}
