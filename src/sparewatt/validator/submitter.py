"""Submits certificates of matches, snapshots and outages, books that somebody demanded, and proofs of faults.

Whoever holds a certificate may submit it, so being second is normal: a contract that answers ALREADY_MATCHED, or a
chain that shows another's transaction, is no error. Votes get their history hints from the view when they are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainError, ChainReverted
from sparewatt.core.log import Logger
from sparewatt.evm.certificate_call import certificate_call
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.market.chain_records import LeaseState, MarketState, OrderState
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.outages.model import DownCertificate
from sparewatt.market.snapshots.model import SnapshotCertificate
from sparewatt.protocol.contracts.match import BidLeaf, CertificateRecord, Task
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.contracts.outage_messages import SignedDown
from sparewatt.protocol.contracts.reasons import HandOverReason
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot
from sparewatt.validator.transaction_sender import TransactionSender

_log = Logger("sparewatt.validator")
DONE_BY_ANOTHER = frozenset(
    {
        *("ALREADY_MATCHED", "NOT_OPEN", "WRONG_ATTEMPT", "ATTEMPT_OVER"),
        *("WRONG_EPOCH", "ALREADY_PUBLISHED", "NOT_DEMANDED", "TOO_LATE"),
        "ALREADY_PUNISHED",
    }
)
"""Reasons that mean: somebody was first, or it is too late. Nothing is wrong with the certificate."""
TRIES_MAX = 8
RETRY_S = 0.5
"""Before the second try; twice as long before each further one."""
NO_SIGNATURE = b""
SUBMISSIONS_MAX = 64
"""At once; a certificate beyond that is left to the other validators."""


@dataclass(slots=True)
class SubmissionCounts:
    accepted: int = 0
    """In a block by our transaction."""
    already_done: int = 0
    failed: int = 0


@dataclass(slots=True)
class CertificateSubmitter:
    sender: TransactionSender
    contracts: Contracts
    state: Callable[[], MarketState]
    """The newest one."""
    clock: Clock
    counts: SubmissionCounts = field(default_factory=SubmissionCounts)
    """Of everything but proofs."""
    proof_counts: SubmissionCounts = field(default_factory=SubmissionCounts)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    """By what is submitted, so that nothing is submitted twice at once."""

    def submit_match(self, certificate: QuorumCertificate) -> None:
        task = certificate.task
        name = f"match:{task.order_id.hex()}:{task.attempt}:{certificate.round}"
        self._start(name, lambda: self._match_call(certificate))

    def submit_snapshot(self, certificate: SnapshotCertificate) -> None:
        name = f"snapshot:{certificate.snapshot.epoch}:{certificate.snapshot.round}"
        self._start(name, lambda: self._snapshot_call(certificate))

    def submit_outage(self, certificate: DownCertificate) -> None:
        down = certificate.down
        name = f"outage:{down.lease_id.hex()}:{down.term}:{down.down_since}"
        self._start(name, lambda: self._outage_call(certificate))

    def submit_book(self, task: Task, record: CertificateRecord, leaves: Sequence[BidLeaf]) -> None:
        name = f"book:{task.order_id.hex()}:{task.attempt}"
        arguments = (task.values(), record.values(), [leaf.values() for leaf in leaves])
        self._start(name, lambda: self.contracts["dispute_book"].encode_call("publish_book", *arguments))

    def submit_proof(self, name: str, call: ContractCall) -> None:
        """The contract checks it; being second is normal here as well."""
        self._start(name, lambda: call, counts=self.proof_counts)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # the calls; None means that there is nothing left to do

    def _match_call(self, certificate: QuorumCertificate) -> ContractCall | None:
        task, state = certificate.task, self.state()
        order = state.orders.get("0x" + task.order_id.hex())
        if order is None or order.state is not OrderState.OPEN or order.attempt != task.attempt:
            return None
        votes = votes_with_hints(state, certificate.votes, certificate.signers, version=task.stake_version)
        return certificate_call(self.contracts["task_manager"], certificate, votes)

    def _snapshot_call(self, certificate: SnapshotCertificate) -> ContractCall | None:
        state, snapshot = self.state(), certificate.snapshot
        latest = state.latest_snapshot
        if latest is not None and latest.epoch >= snapshot.epoch:
            return None
        votes = votes_with_hints(state, certificate.votes, certificate.signers, version=state.stake_version)
        return self.contracts["task_manager"].encode_call("post_snapshot", *snapshot.values(), votes)

    def _outage_call(self, certificate: DownCertificate) -> ContractCall | None:
        state, down = self.state(), certificate.down
        lease_id = "0x" + down.lease_id.hex()
        lease, order = state.leases.get(lease_id), state.orders.get(lease_id)
        is_meant = lease is not None and lease.state is LeaseState.ACTIVE and lease.term == down.term
        if not is_meant or order is None or order.certificate is None:
            return None
        votes = votes_with_hints(state, certificate.votes, certificate.signers, version=state.stake_version)
        record = order.certificate.record.values()
        evidence = (int(HandOverReason.DOWN), down.down_since, votes, NO_SIGNATURE)
        return self.contracts["lease_moves"].encode_call("hand_over", down.lease_id, record, *evidence)

    # sending

    def _start(
        self, name: str, make_call: Callable[[], ContractCall | None], *, counts: SubmissionCounts | None = None
    ) -> None:
        if name in self._tasks or len(self._tasks) >= SUBMISSIONS_MAX:
            return
        task = asyncio.get_running_loop().create_task(
            self._submit(name, make_call, counts or self.counts), name=f"submit {name}"
        )
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _submit(self, name: str, make_call: Callable[[], ContractCall | None], counts: SubmissionCounts) -> None:
        for number in range(TRIES_MAX):
            call = make_call()
            if call is None:
                counts.already_done += 1
                return
            try:
                receipt = await self.sender.send(call)
            except ChainReverted as error:
                if error.reason in DONE_BY_ANOTHER:
                    counts.already_done += 1
                    return
                why = error.reason
            except ChainError as error:
                why = error.message
            else:
                counts.accepted += 1
                _log.info("certificate_accepted", what=name, block=receipt.block_number, gas=receipt.gas_used)
                return
            _log.info("certificate_not_taken_yet", what=name, why=why)
            await sleep_until(self.clock, self.clock.now_s() + RETRY_S * 2**number)
        counts.failed += 1
        _log.warning("certificate_not_submitted", what=name)


def votes_with_hints(
    state: MarketState,
    votes: Sequence[SignedVote | SignedSnapshot | SignedDown],
    signers: Sequence[str],
    *,
    version: int,
) -> list[tuple[bytes, int]]:
    """As contracts take them: ascending by signer, each with the place of its weight in its history.

    Votes whose signer has no weight at the version are left out: the contract would refuse all of them.
    """
    hinted = []
    for vote, signer in zip(votes, signers, strict=True):
        weight = state.weight_of(signer, version)
        if weight is not None and weight.weight > 0:
            hinted.append((vote.signature, weight.history_index))
    return hinted
