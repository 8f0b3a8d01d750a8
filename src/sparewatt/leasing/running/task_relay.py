"""Tells nodes about their leases: when something changed, over each new link, and from time to time all the same.

The chain is the truth and a link is a hint: a node that missed a message is told again within `REPEAT_S`. As with
lookups, one process of a gateway speaks for each node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import LINK_CONTROL_BYTES_MAX
from sparewatt.core.log import Logger
from sparewatt.leasing.relay.lookups import MarketAddresses, OrderedContent
from sparewatt.leasing.running.tasks import TaskInputs, TaskRole, over_task, roles_of, task_of
from sparewatt.market.chain_records import MarketState, OrderRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.link.lease_tasks import LeaseTask, ProposedUpdate, TaskState

_log = Logger("sparewatt.leasing")
REPEAT_S = 30.0
REFRESH_S = 0.5
"""Between two looks for secrets, or another number to sign with, of a lease that waits for its start."""
LATE_SECRETS_S = 2.0
"""Between two looks for secrets of a lease whose start was confirmed without them."""
TASKS_MAX = 10_000
NUMBERED_S = 30.0
"""So long after a node has signed with a number, it is told which one the contract wants."""

ContentSource = Callable[[str, str], Awaitable[OrderedContent | None]]
NonceSource = Callable[[OrderRecord, MarketAddresses], Awaitable[int | None]]
"""The number of the renter's order."""


class TaskLink(Protocol):
    """A node's link. Implemented by NodeLink."""

    def send_task(self, task: LeaseTask) -> None: ...


class TaskStore(Protocol):
    """Implemented by LeaseActStore."""

    async def nonces_of(self, account: str) -> dict[str, int]: ...

    async def secrets_of(self, order_id: str, attempt: int, *, provider: str) -> dict[str, str]: ...


@dataclass(slots=True)
class RelayedTask:
    task: LeaseTask
    link: TaskLink | None = None
    """Over which the node was told. A new link is told again."""
    told_s: float = 0.0


TaskKey = tuple[str, str]
"""An order and a node's key."""


@dataclass(slots=True, kw_only=True, eq=False)
class TaskRelay:
    link_of: Callable[[NodeId], TaskLink | None]
    """The link of a node for which this process speaks."""
    content_of: ContentSource
    renter_nonce: NonceSource
    store: TaskStore
    clock: Clock
    tasks: dict[TaskKey, RelayedTask] = field(default_factory=dict, init=False)
    _version: int = field(default=-1, init=False)
    _refresh_at_s: float = field(default=0.0, init=False)
    _late_secrets_at_s: float = field(default=0.0, init=False)
    _numbered: dict[str, float] = field(default_factory=dict, init=False)
    """Orders for which a node has signed with a number, and until when they are looked at."""

    def note_numbered(self, order_id: str) -> None:
        """A node has several leases and one number: what it signs for one makes the others' stale."""
        if order_id in self._numbered or len(self._numbered) < TASKS_MAX:
            self._numbered[order_id] = self.clock.now_s() + NUMBERED_S

    @property
    def has_pending(self) -> bool:
        """Whether a lease waits for its start, for a stand-in, or for what its node has signed."""
        return bool(self._numbered) or any(
            each.task.state in (TaskState.PENDING, TaskState.VACANT) for each in self.tasks.values()
        )

    async def follow(
        self, view: ChainView, changed: Collection[str] | None, addresses: MarketAddresses, *, version: int
    ) -> None:
        """Act on what changed. `changed`: orders that events spoke of; None: all may have."""
        state, block = view.latest, view.latest_block
        if version != self._version:
            self._version = version
            known = {order_id for order_id, _ in self.tasks}
            orders = {*state.leases, *known} if changed is None else {each for each in changed if each in state.leases}
            for order_id in sorted(orders):
                await self._take_in(state, order_id, addresses, block)
        elif self.clock.now_s() >= self._refresh_at_s:
            await self._refresh(state, addresses, block)
        self.tick()

    def proposed_update(self, order_id: str, node_key: str) -> ProposedUpdate | None:
        """What the node was told that its renter wants to change."""
        relayed = self.tasks.get((order_id, node_key))
        return relayed.task.proposed if relayed is not None else None

    def tick(self) -> None:
        """Tell whoever has not heard it, or not for a while."""
        now_s = self.clock.now_s()
        for (order_id, node_key), relayed in list(self.tasks.items()):
            link = self.link_of(NodeId(node_key))
            is_news = link is not relayed.link or now_s - relayed.told_s >= REPEAT_S
            if link is None or not is_news:
                continue
            relayed.link, relayed.told_s = link, now_s
            link.send_task(relayed.task)
            if relayed.task.state is TaskState.OVER:
                del self.tasks[order_id, node_key]

    # what is to be told

    async def _refresh(self, state: MarketState, addresses: MarketAddresses, block: int) -> None:
        """Secrets and numbers come without an event of the chain."""
        now_s = self.clock.now_s()
        self._refresh_at_s, looks_for_late = now_s + REFRESH_S, now_s >= self._late_secrets_at_s
        if looks_for_late:
            self._late_secrets_at_s = now_s + LATE_SECRETS_S
        waiting = {
            order_id
            for (order_id, _), each in self.tasks.items()
            if each.task.state in (TaskState.PENDING, TaskState.VACANT)
            or each.task.proposed is not None
            or (looks_for_late and _lacks_secrets(each.task))
        }
        self._numbered = {each: until_s for each, until_s in self._numbered.items() if until_s > self.clock.now_s()}
        waiting |= self._numbered.keys() & state.leases.keys()
        for order_id in sorted(waiting):
            await self._take_in(state, order_id, addresses, block)

    async def _take_in(self, state: MarketState, order_id: str, addresses: MarketAddresses, block: int) -> None:
        roles = {self._node_of(state, role): role for role in roles_of(state, order_id)}
        for key in [key for key in self.tasks if key[0] == order_id and key[1] not in roles]:
            self._end(key, state, block)
        for node_key, role in roles.items():
            if node_key is None or (len(self.tasks) >= TASKS_MAX and (order_id, node_key) not in self.tasks):
                continue
            inputs = await self._inputs(state.orders[order_id], role, node_key, state, addresses)
            if inputs is not None:
                self._put((order_id, node_key), task_of(state, order_id, role, inputs, addresses, block_number=block))

    def _put(self, key: TaskKey, task: LeaseTask) -> None:
        known = self.tasks.get(key)
        if len(msgspec.json.encode(task)) > LINK_CONTROL_BYTES_MAX:
            _log.warning("task_not_relayed", order=task.order_id, why="it does not fit into a frame")
        elif known is None or _differs(known.task, task):
            self.tasks[key] = RelayedTask(task)

    def _end(self, key: TaskKey, state: MarketState, block: int) -> None:
        """The node is told until it has heard it: the task goes with its last message."""
        relayed = self.tasks[key]
        if relayed.task.state is not TaskState.OVER:
            lease = state.leases.get(key[0])
            term = lease.term if lease is not None else relayed.task.term
            self.tasks[key] = RelayedTask(over_task(relayed.task, term=term, block_number=block))

    def _node_of(self, state: MarketState, role: TaskRole) -> str | None:
        provider = state.providers.get(role.provider)
        return provider.node_key if provider is not None else None

    async def _inputs(
        self, order: OrderRecord, role: TaskRole, node_key: str, state: MarketState, addresses: MarketAddresses
    ) -> TaskInputs | None:
        ordered = await self.content_of(order.ordered_spec_hash, order.renter)
        nonce = await self.renter_nonce(order, addresses)
        if ordered is None or nonce is None:
            _log.warning("task_not_relayed", order=order.order_id, why="what was ordered is not known here")
            return None
        lease, is_updated = state.leases[order.order_id], order.spec_hash != order.ordered_spec_hash
        proposed = lease.proposed
        has_secrets = ordered.specification.secrets > 0 and role.state is not TaskState.VACANT
        return TaskInputs(
            ordered=ordered,
            renter_nonce=nonce,
            running=await self.content_of(order.spec_hash, order.renter) if is_updated else None,
            proposed=await self.content_of(proposed.spec_hash, order.renter) if proposed is not None else None,
            nonces=await self.store.nonces_of(node_key),
            sealed=await self._sealed(order, role) if has_secrets else {},
        )

    async def _sealed(self, order: OrderRecord, role: TaskRole) -> Mapping[str, str]:
        return await self.store.secrets_of(order.order_id, order.attempt, provider=role.provider)


def _lacks_secrets(task: LeaseTask) -> bool:
    """Its renter may send them after the start was confirmed."""
    wanted = task.specification.get("secrets", 0)
    return task.state is not TaskState.OVER and isinstance(wanted, int) and len(task.sealed) < wanted


def _differs(before: LeaseTask, task: LeaseTask) -> bool:
    return msgspec.structs.replace(before, block_number=task.block_number) != task
