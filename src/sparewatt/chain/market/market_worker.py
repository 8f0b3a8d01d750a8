"""One round of the market's chores: what anyone may call, and nobody else did in time.

It follows the index's events like a gateway, decides by `decisions`, and puts calls into the outbox, each once under a
key of its own. The contracts judge again: a call that came too late, or that somebody else sent first, is refused
before it costs gas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from sparewatt.chain.client import ChainClient
from sparewatt.chain.market.certificates import GRACE_S, checked_certificate_call, is_wanted
from sparewatt.chain.market.decisions import ChainTime, DueAct, activations, next_act, soonest
from sparewatt.chain.market.lease_calls import act_call, act_due_at, contract_of, due_call, has_number
from sparewatt.chain.market.refunds import RefundChore
from sparewatt.chain.money.settlement_contract import call_view
from sparewatt.chain.outbox import enqueue
from sparewatt.chain.senders import SenderPool, choose_sender
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.market.certificate_json import read_certificate
from sparewatt.market.chain_records import MarketState
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.database import Database
from sparewatt.store.lease_acts import LeaseActStore, StoredAct
from sparewatt.store.lease_matches import LeaseMatchStore
from sparewatt.store.market_fold import MarketFold

_log = Logger("sparewatt.chain")
TASKS, STAKES = "task_manager", "stake_registry"
ACTS_PER_STEP = 32
TRIES_MAX = 5
"""How often an act is put into the outbox again after the contract refused it, while it still seems due."""
REFUND_S = 1.0
"""Between two looks at what the escrow owes."""
_FAILED = frozenset({OutboxState.REFUSED, OutboxState.REVERTED})


@dataclass(slots=True)
class MarketWorker:
    client: ChainClient
    store: ChainStore
    matches: LeaseMatchStore
    lease_acts: LeaseActStore
    fold: MarketFold
    contracts: Contracts
    senders: SenderPool
    refunds: RefundChore
    chain_id: int
    clock: Clock
    needs_block: bool = field(default=False, init=False)
    """Whether something is due at a time that no block of the chain has reached yet."""
    _acts: dict[str, DueAct] = field(default_factory=dict, init=False)
    """By order: what comes next for it."""
    _times: tuple[int, int] | None = field(default=None, init=False)
    """ATTEMPT_S and ACTIVATE_S of the contracts."""
    _time: ChainTime = field(default_factory=ChainTime, init=False)
    _refunds_at_s: float = field(default=0.0, init=False)
    _finished: dict[str, None] = field(default_factory=dict, init=False)
    """Keys that need no further look, the oldest first."""

    async def step(self) -> bool:
        """True if something was put into the outbox or asked."""
        attempt_s, activate_s = await self._read_times()
        await self.fold.follow()
        view = self.fold.built
        if view is None or not self.fold.is_complete:
            return False
        state = view.latest
        self._note_changes(state, attempt_s=attempt_s)
        sent = await self._submit(state) if self._acts else False
        acts = soonest(
            [*self._acts.values(), *activations(state.validators, activate_s=activate_s)], limit=ACTS_PER_STEP
        )
        sent |= await self._act(state, [each for each in acts if each.key not in self._finished])
        if state.leases:
            sent |= await self._move_leases(state)
        return await self._refund() or sent

    async def _read_times(self) -> tuple[int, int]:
        if self._times is None:
            stakes = self.contracts[STAKES]
            attempt_s = int(await call_view(self.client, stakes, "ATTEMPT_S"))
            activate_s = int(await call_view(self.client, stakes, "ACTIVATE_S"))
            await self.store.set_attempt_s(attempt_s)
            self._times = (attempt_s, activate_s)
        return self._times

    def _note_changes(self, state: MarketState, *, attempt_s: int) -> None:
        changed = self.fold.take_changed()
        if changed is None:
            self._acts, self._finished, changed = {}, {}, set(state.orders)
        for order_id in changed:
            act = next_act(state, order_id, attempt_s=attempt_s)
            if act is None:
                self._acts.pop(order_id, None)
            else:
                self._acts[order_id] = act

    # what time makes due

    async def _act(self, state: MarketState, acts: Sequence[DueAct]) -> bool:
        self.needs_block = False
        if not acts:
            return False
        head = await self.client.head()
        self._time.note(head.number, head.unix_s, now_s=self.clock.now_s())
        due = [each for each in acts if each.due_at <= self._time.now(self.clock.now_s())]
        self.needs_block = any(each.due_at > self._time.of_block for each in due)
        sent = False
        for each in due:
            call = due_call(self.contracts, state, each) if each.due_at <= self._time.of_block else None
            if call is not None:
                sent |= await self._send_once(each.key, call)
        return sent

    # what nodes' keys have signed

    async def _move_leases(self, state: MarketState) -> bool:
        """Confirmed starts, claims of stand-ins, notices, resignations, accepted updates."""
        sent = False
        for stored in await self.lease_acts.list_recent():
            due_at = act_due_at(state, stored)
            if due_at is not None:
                sent |= await self._send_act(state, stored, due_at)
        return sent

    async def _send_act(self, state: MarketState, stored: StoredAct, due_at: int) -> bool:
        act = stored.act
        key = f"act:{act.order_id}:{act.term}:{act.kind.value}:{stored.account}:{act.nonce}:{act.seq}"
        if key in self._finished:
            return False
        if due_at > self._time.of_block:
            self.needs_block |= due_at <= self._time.now(self.clock.now_s())
            return False
        if has_number(act) and not await self._is_next_number(stored):
            return False
        call = act_call(self.contracts, state, stored)
        return call is not None and await self._send_once(key, call)

    async def _is_next_number(self, stored: StoredAct) -> bool:
        """Whether the contract waits for this number. If not, gateways tell the node which one to sign with."""
        contract = self.contracts[contract_of(stored.act)]
        number = int(await call_view(self.client, contract, "nonces", stored.account))
        await self.lease_acts.save_nonce(stored.account, contract.address.lower(), number)
        return number == stored.act.nonce

    # certificates

    async def _submit(self, state: MarketState) -> bool:
        """Those that gateways collected and that the chain still waits for."""
        sent, domain = False, contract_domain(chain_id=self.chain_id, contract=self.contracts[TASKS].address)
        for stored in await self.matches.list_certificates():
            key = f"certificate:{stored.order_id}:{stored.attempt}"
            if key in self._finished or stored.age_s < GRACE_S:
                continue
            certificate = _read(stored.certificate)
            if certificate is None or not is_wanted(state, certificate):
                continue
            call = checked_certificate_call(self.contracts[TASKS], certificate, state, domain)
            if call is not None:
                sent |= await self._send_once(key, call)
        return sent

    # money

    async def _refund(self) -> bool:
        if self.clock.now_s() < self._refunds_at_s:
            return False
        self._refunds_at_s = self.clock.now_s() + REFUND_S
        return await self.refunds.step()

    # the outbox

    async def _send_once(self, key: str, call: ContractCall) -> bool:
        """Put it into the outbox, unless it is there. What the contract refused is tried again, a few times."""
        for number in range(TRIES_MAX):
            row = await self.store.find(f"{key}:{number}")
            if row is None:
                sender = choose_sender(await self.senders.loads(), stuck_s=self.senders.stuck_s)
                await enqueue(self.store, call, business_id=f"{key}:{number}", sender=sender)
                _log.info("market_call_sent", call=key.partition(":")[0], subject=key.split(":")[1])
                return True
            if row.state not in _FAILED:
                return False
        self._finish(key)
        return False

    def _finish(self, key: str) -> None:
        self._finished[key] = None
        if len(self._finished) > 1_000:
            del self._finished[next(iter(self._finished))]


def _read(text: str) -> QuorumCertificate | None:
    """None for one that is not of this release."""
    try:
        return read_certificate(msgspec.json.decode(text))
    except (InvalidField, msgspec.DecodeError):
        return None


def make_market_worker(
    client: ChainClient,
    database: Database,
    contracts: Contracts,
    *,
    chain_id: int,
    senders: SenderPool,
    clock: Clock,
) -> MarketWorker:
    return MarketWorker(
        client=client,
        store=database.chain,
        matches=database.lease_matches,
        lease_acts=database.lease_acts,
        fold=MarketFold(database.market_events),
        contracts=contracts,
        senders=senders,
        refunds=RefundChore(database.pockets, database.chain_requests),
        chain_id=chain_id,
        clock=clock,
    )
