"""The leases of this node: a worker for each, from what gateways say, from disk after a restart, and from containers
that are found.

A container whose lease the chain no longer has with this provider is removed only after a gateway has said so twice, at
different blocks, or for a while if the chain has no new ones: a gateway that has just started, or follows its chain
from behind, does not know yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.clock import sleep_until
from sparewatt.core.log import Logger
from sparewatt.node.leases.chain_check import ChainDiffers
from sparewatt.node.leases.placed.lease_worker import LeaseTools, LeaseWorker
from sparewatt.node.leases.placed.task_check import CheckedTask, FalseTask, check_task
from sparewatt.node.leases.reservations import RESERVATIONS_MAX
from sparewatt.node.leases.runtime.model import LeaseContainer, LeaseRuntimeError
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask, TaskState

_log = Logger("sparewatt.node")
RECONCILE_S = 30.0
QUIET_CHAIN_S = 45.0
"""A chain without transactions makes no blocks; a gateway that follows from behind sees new ones all the time."""
WAITING_MAX = 256
"""Tasks that were not looked at yet. More are dropped: gateways repeat them."""


class FirstSaid(NamedTuple):
    """When a gateway first said that a lease is not with this provider."""

    block_number: int
    now_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseRunner:
    tools: LeaseTools
    facts: Callable[[], MarketFacts | None]
    workers: dict[str, LeaseWorker] = field(default_factory=dict, init=False)
    """By order."""
    _tasks: asyncio.Queue[LeaseTask] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX), init=False)
    _unknown: dict[str, FirstSaid] = field(default_factory=dict, init=False)
    """Containers by order without a lease, and when a gateway first said so."""
    _missing: dict[str, FirstSaid] = field(default_factory=dict, init=False)
    """Leases that are carried out here and that the chain does not have with this provider, by order, likewise."""

    def on_task(self, task: LeaseTask) -> None:
        try:
            self._tasks.put_nowait(task)
        except asyncio.QueueFull:
            _log.warning("lease_task_dropped", order=task.order_id)

    def held(self) -> list[tuple[bytes, int]]:
        """Leases whose resources this node keeps, and their terms."""
        placed = (TaskState.PENDING, TaskState.ACTIVE, TaskState.PAUSED)
        found = (worker.task for worker in self.workers.values() if not worker.is_done)
        return [(bytes.fromhex(task.order_id[2:]), task.term) for task in found if task.state in placed]

    def stored_facts(self) -> MarketFacts | None:
        """The newest of those that came with what is held here."""
        found = [worker.facts for worker in self.workers.values() if worker.is_placed and not worker.is_done]
        return max(found, key=lambda facts: facts.block_number, default=None)

    async def restore(self) -> None:
        """What was held before a restart is held again, before a bid is made."""
        for stored in await asyncio.to_thread(self.tools.files.read_all):
            provider = stored.facts.provider
            try:
                checked = check_task(stored.task, stored.facts)
            except FalseTask as error:
                _log.warning("lease_not_read", order=stored.task.order_id, why=str(error))
                continue
            if provider is None:
                continue
            self.tools.room.restore(checked.key, checked.capacity, term=stored.task.term, gpu_ids=stored.gpu_ids)
            worker = self._worker(checked, stored.facts, provider, is_told=False)
            worker.gpu_ids = stored.gpu_ids
            self.workers[stored.task.order_id] = worker

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.tools.runtime.run())
                tasks.create_task(self._keep_reconciling())
                for worker in list(self.workers.values()):
                    tasks.create_task(self._carry(worker))
                while True:
                    await self._take(await self._tasks.get(), tasks)
        finally:
            await self.tools.proxies.close()

    async def _take(self, task: LeaseTask, tasks: asyncio.TaskGroup) -> None:
        facts, worker = self.facts(), self.workers.get(task.order_id)
        if facts is None or facts.provider is None:
            return
        try:
            checked = check_task(task, facts)
        except FalseTask as error:
            _log.warning("lease_task_is_false", order=task.order_id, why=str(error))
            return
        if worker is not None:
            worker.tell(checked, facts)
        elif task.state is not TaskState.OVER and len(self.workers) < RESERVATIONS_MAX:
            worker = self._worker(checked, facts, facts.provider, is_told=True)
            self.workers[task.order_id] = worker
            tasks.create_task(self._carry(worker))

    def _worker(self, checked: CheckedTask, facts: MarketFacts, provider: str, *, is_told: bool) -> LeaseWorker:
        return LeaseWorker(tools=self.tools, checked=checked, facts=facts, provider=provider, is_told=is_told)

    async def _carry(self, worker: LeaseWorker) -> None:
        await worker.run()
        if self.workers.get(worker.task.order_id) is worker:
            del self.workers[worker.task.order_id]

    # containers that nobody spoke of

    async def _keep_reconciling(self) -> None:
        clock = self.tools.clock
        while True:
            try:
                await self.reconcile()
            except LeaseRuntimeError as error:
                _log.warning("containers_not_compared", why=str(error)[:200])
            await sleep_until(clock, clock.now_s() + RECONCILE_S)

    async def reconcile(self) -> None:
        """Compare this node's containers with the leases that the chain has with it."""
        facts = self.facts()
        if facts is None or facts.held is None:
            return
        self._compare_workers(facts, {each.order_id for each in facts.held})
        held = {each.order_id for each in facts.held} | set(self.workers)
        strange = [each for each in await self._own_containers() if each.label.lease_id not in held]
        now = FirstSaid(facts.block_number, self.tools.clock.now_s())
        self._unknown = {each.label.lease_id: self._unknown.get(each.label.lease_id, now) for each in strange}
        for each in strange:
            if _is_said_again(self._unknown[each.label.lease_id], now) and await self._is_nobodys(each, facts):
                _log.info("container_without_lease_removed", order=each.label.lease_id, term=each.label.term)
                await self.tools.runtime.remove(each.label)

    def _compare_workers(self, facts: MarketFacts, held: set[str]) -> None:
        """A lease may have moved while this agent was away, and the gateway that knew of it may be another now."""
        gone = [
            worker
            for order_id, worker in self.workers.items()
            if order_id not in held and worker.is_placed and worker.task.block_number < facts.block_number
        ]
        now = FirstSaid(facts.block_number, self.tools.clock.now_s())
        self._missing = {each.task.order_id: self._missing.get(each.task.order_id, now) for each in gone}
        for worker in gone:
            if _is_said_again(self._missing[worker.task.order_id], now):
                _log.info("lease_is_elsewhere", order=worker.task.order_id, term=worker.task.term)
                worker.end(facts)

    async def _is_nobodys(self, container: LeaseContainer, facts: MarketFacts) -> bool:
        """Also by a chain of the owner's choice, if there is one."""
        if self.tools.placed_term is None:
            return True
        try:
            return await self.tools.placed_term(bytes.fromhex(container.label.lease_id[2:]), facts) is None
        except ChainDiffers as differs:
            _log.warning("container_not_judged", order=container.label.lease_id, why=str(differs)[:200])
            return False

    async def _own_containers(self) -> Sequence[LeaseContainer]:
        found = await self.tools.runtime.containers()
        return [each for each in found if each.label.node == self.tools.key.address]


def _is_said_again(first: FirstSaid, now: FirstSaid) -> bool:
    return first.block_number < now.block_number or now.now_s - first.now_s >= QUIET_CHAIN_S
