"""Takes what nodes say about their leases: signed acts are checked and stored for the chain, reports are kept to show.

A signature is checked here so that nobody fills the table in another's name; whether the act is due, the contracts
judge. A report is a node's word about a lease that the chain has with it, and nothing more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import NodeId
from sparewatt.core.log import Logger
from sparewatt.leasing.running.tasks import roles_of
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.contracts.lease_acts import NONCE_KINDS, ActContracts, details_hash_of, is_signed_by
from sparewatt.protocol.link.lease_tasks import (
    ActKind,
    LeaseAct,
    LeaseDetailsDocument,
    LeaseReport,
    ProposedUpdate,
    TaskState,
)

_log = Logger("sparewatt.leasing")
WAITING_MAX = 1_024
"""Acts that are not stored yet. More are dropped: a node sends them again."""
REPORTS_KEPT = 10_000


class ActStore(Protocol):
    """Implemented by LeaseActStore."""

    async def save(self, account: str, act: LeaseAct) -> bool: ...

    async def save_details(self, order_id: str, details_hash: str, document: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ReportedProgram:
    node_id: NodeId
    report: LeaseReport


@dataclass(slots=True, kw_only=True, eq=False)
class ActIntake:
    store: ActStore
    state: Callable[[], MarketState | None]
    """The market as far as it is known; None before there is any."""
    contracts: Callable[[], ActContracts | None]
    update_of: Callable[[str, str], ProposedUpdate | None] = lambda _order, _node: None
    """What a node was told that its renter proposes."""
    on_numbered: Callable[[str], None] = lambda _order: None
    """Hears of an order for which a node has signed with a number: it may have to sign again with another."""
    reports: OrderedDict[str, ReportedProgram] = field(init=False, default_factory=OrderedDict)
    """By order: the last one of the node that has its lease."""
    _waiting: asyncio.Queue[tuple[NodeId, LeaseAct]] = field(
        init=False, default_factory=lambda: asyncio.Queue(WAITING_MAX)
    )

    def receive(self, node_id: NodeId, said: LeaseAct | LeaseReport) -> None:
        if isinstance(said, LeaseReport):
            self._take_report(node_id, said)
            return
        try:
            self._waiting.put_nowait((node_id, said))
        except asyncio.QueueFull:
            _log.warning("lease_act_dropped", node=node_id, order=said.order_id)

    async def run(self) -> None:
        while True:
            node_id, act = await self._waiting.get()
            try:
                await self.take(node_id, act)
            except StoreUnavailable as error:
                _log.warning("lease_act_not_stored", node=node_id, order=act.order_id, why=str(error)[:200])

    async def take(self, node_id: NodeId, act: LeaseAct) -> bool:
        """Whether it was stored, now or before."""
        why = self._fault(node_id, act)
        if why is not None:
            _log.warning("lease_act_refused", node=node_id, order=act.order_id, kind=act.kind.value, why=why)
            return False
        if act.kind is ActKind.CONFIRM:
            await self.store.save_details(act.order_id, "0x" + details_hash_of(act.details).hex(), act.details)
        if act.kind in NONCE_KINDS:
            self.on_numbered(act.order_id)
        if await self.store.save(node_id, act):
            _log.info("lease_act_stored", node=node_id, order=act.order_id, kind=act.kind.value, term=act.term)
        return True

    def _fault(self, node_id: NodeId, act: LeaseAct) -> str | None:
        state, contracts = self.state(), self.contracts()
        if state is None or contracts is None:
            return "the market is not known here yet"
        if not _has_part(state, node_id, act):
            return "the chain has no such term of a lease with this node"
        if act.kind is ActKind.CONFIRM and not is_details(act.details):
            return "its details are no document"
        update = self.update_of(act.order_id, node_id) if act.kind is ActKind.ACCEPT_UPDATE else None
        if not is_signed_by(node_id, act, contracts=contracts, update=update):
            return "the signature is not the node's"
        return None

    def _take_report(self, node_id: NodeId, report: LeaseReport) -> None:
        state = self.state()
        lease = state.leases.get(report.order_id) if state is not None else None
        if state is None or lease is None or lease.term != report.term:
            return
        provider = state.providers.get(lease.provider or "")
        if provider is None or provider.node_key != node_id:
            return
        self.reports[report.order_id] = ReportedProgram(node_id, report)
        self.reports.move_to_end(report.order_id)
        if len(self.reports) > REPORTS_KEPT:
            self.reports.popitem(last=False)


def _has_part(state: MarketState, node_id: NodeId, act: LeaseAct) -> bool:
    lease = state.leases.get(act.order_id)
    if lease is None:
        return False
    wanted = TaskState.VACANT if act.kind is ActKind.ACCEPT else None
    term = lease.term + 1 if act.kind is ActKind.ACCEPT else lease.term
    for role in roles_of(state, act.order_id):
        provider = state.providers.get(role.provider)
        is_meant = role.state is wanted if wanted is not None else role.state is not TaskState.VACANT
        if provider is not None and provider.node_key == node_id and is_meant:
            return act.term == term
    return False


def is_details(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=LeaseDetailsDocument)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
