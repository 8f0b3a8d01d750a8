"""Proves the faults of a match, for a tenth of what the culprits lose.

It waits until a match is over, and then for its rank: the first proof punishes, so the others need not be sent. Then it
asks the other validators for their records: a signer that tells each half of its peers another story contradicts itself
in two records, and in no single one. It leaves bidders that did not reveal to those they have harmed: a crash is no
fraud, and a bid bond is small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.evidence_calls import evidence_calls
from sparewatt.evm.model import ContractCall
from sparewatt.market.chain_records import MarketState
from sparewatt.market.evidence import EvidenceUnavailable, evidence_of
from sparewatt.market.faults import MarketFault, ProvenFault, snapshot_double_sign
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.snapshots.model import SnapshotDoubleSign
from sparewatt.protocol.signing import Domain

_log = Logger("sparewatt.validator")
FIRST_S = 1.0
"""After a match: its own submissions go first."""
LOCAL_RANK_S, PUBLIC_RANK_S = 2.0, 30.0
"""Between two validators, in the order of their vote keys: a proof is in a block by then."""
WAITING_MAX = 64
PROOFS_PER_MATCH_MAX = 16
SNAPSHOT_FAULTS_MAX = 256
FetchRecords = Callable[[str, int], Awaitable[Sequence[AuctionRecord]]]
"""Of an order and attempt, as far as validators answer. Nothing in it is believed but what signatures prove."""


@dataclass(slots=True)
class FaultReporter:
    own: str
    """This validator's vote key: it sends nothing that accuses itself."""
    domain: Domain
    contracts: Contracts
    state: Callable[[], MarketState]
    """The newest one."""
    submit: Callable[[str, ContractCall], None]
    """A proof by its name; it may turn out to be punished already."""
    fetch: FetchRecords
    """What the other validators recorded."""
    clock: Clock
    rank_s: float = LOCAL_RANK_S
    _waiting: dict[tuple[bytes, int], Timer] = field(default_factory=dict, init=False)
    """By order and attempt."""
    _snapshots: set[tuple[str, int, int]] = field(default_factory=set, init=False)
    """Signer, epoch and round of those reported."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def on_match_ended(self, record: AuctionRecord) -> None:
        context = record.context
        key = (context.order_id, context.attempt)
        if key in self._waiting or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting[key] = self.clock.call_later(self._delay_s(context.weights), lambda: self._start(key, record))

    def on_double_snapshot(self, fault: SnapshotDoubleSign) -> None:
        snapshot, state = fault.first.snapshot, self.state()
        occasion = (fault.signer, snapshot.epoch, snapshot.round)
        weight = state.weight_of(fault.signer, state.stake_version)
        if occasion in self._snapshots or len(self._snapshots) >= SNAPSHOT_FAULTS_MAX or weight is None:
            return
        self._snapshots.add(occasion)
        proven = snapshot_double_sign(fault, version=state.stake_version, history_index=weight.history_index)
        self._send(f"snapshot:{snapshot.epoch}:{snapshot.round}", proven)

    async def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _delay_s(self, weights: Mapping[str, int]) -> float:
        rank = sum(key < self.own.lower() for key in weights)
        return FIRST_S + self.rank_s * rank

    def _start(self, key: tuple[bytes, int], record: AuctionRecord) -> None:
        del self._waiting[key]
        task = asyncio.get_running_loop().create_task(self._report(record), name="report faults")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, record: AuctionRecord) -> None:
        context = record.context
        order_id = "0x" + context.order_id.hex()
        others = await self.fetch(order_id, context.attempt)
        try:
            faults = evidence_of(
                self.state(),
                order_id,
                context.attempt,
                domain=self.domain,
                version=context.stake_version,
                records=[record, *others],
            )
        except EvidenceUnavailable as error:
            _log.info("evidence_not_judged", order_id=order_id, attempt=context.attempt, why=str(error))
            return
        wanted = [each for each in faults if each.fault is not MarketFault.UNREVEALED]
        for number, fault in enumerate(wanted[:PROOFS_PER_MATCH_MAX]):
            self._send(f"{order_id}:{context.attempt}:{number}", fault)

    def _send(self, name: str, fault: ProvenFault) -> None:
        if self.own.lower() in fault.culprits:
            _log.warning("own_fault_seen", what=name, fault=fault.fault.name)
            return
        _log.warning("fault_seen", what=name, fault=fault.fault.name, culprits=list(fault.culprits), why=fault.why)
        (call,) = evidence_calls(self.contracts, [fault])
        self.submit(f"proof:{name}:{fault.fault.name}", call)
