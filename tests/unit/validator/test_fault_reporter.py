"""A validator sends proofs of what it saw: late, once, bounded, and never against itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ContractCall
from sparewatt.market.chain_records import MarketState
from sparewatt.market.evidence import evidence_of
from sparewatt.market.faults import MarketFault
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.snapshots.model import SnapshotDoubleSign
from sparewatt.protocol.contracts.match import ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator import fault_reporter
from sparewatt.validator.fault_reporter import FIRST_S, LOCAL_RANK_S, FaultReporter
from tests.market_network.by_hand import USD, HandMatch
from tests.unit.market.test_evidence import accept, state_of

CONTRACTS = Contracts(shipped_abis(), {"dispute": "0x" + "d1" * 20, "dispute_book": "0x" + "d2" * 20})


@dataclass
class ReporterScene:
    own: int = 1
    """Which of the validators reports."""
    match: HandMatch = field(default_factory=lambda: HandMatch.of({0: 2 * USD, 1: USD}))
    clock: ManualClock = field(default_factory=ManualClock)
    sent: dict[str, ContractCall] = field(default_factory=dict)
    others: list[AuctionRecord] = field(default_factory=list)
    """What the other validators recorded."""

    def __post_init__(self) -> None:
        self.state: MarketState = state_of(self.match)
        keys = self.match.cast.vote_keys
        self.reporter = FaultReporter(
            keys[self.own].address,
            self.match.cast.context.domain,
            CONTRACTS,
            lambda: self.state,
            self.sent.__setitem__,
            self._fetch,
            self.clock,
        )
        self.rank = sorted(key.address.lower() for key in keys).index(keys[self.own].address.lower())

    async def _fetch(self, order_id: str, attempt: int) -> list[AuctionRecord]:
        return self.others

    async def pass_s(self, seconds: float) -> None:
        """Time goes by, and what became due has run."""
        self.clock.advance(seconds)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def due_s(self) -> float:
        return FIRST_S + LOCAL_RANK_S * self.rank

    def two_lists(self, liar: int = 0) -> AuctionRecord:
        lists = tuple(self.match.commit_list(i) for i in range(4))
        return self.match.record(commit_lists=(*lists, self.match.commit_list(liar, [1])))


async def test_a_fault_is_sent_when_the_match_is_over_and_the_rank_has_come() -> None:
    scene = ReporterScene()
    scene.reporter.on_match_ended(scene.two_lists())
    scene.reporter.on_match_ended(scene.two_lists())
    await scene.pass_s(scene.due_s - 0.1)
    assert scene.sent == {}
    await scene.pass_s(0.2)
    (name,) = scene.sent
    assert name.endswith(":DOUBLE_SIGN")
    assert scene.sent[name].to == "0x" + "d1" * 20


def test_every_validator_has_another_time() -> None:
    assert len({ReporterScene(own=number).due_s for number in range(4)}) == 4


async def test_two_stories_for_two_halves_of_the_peers_are_found_in_their_records() -> None:
    """No record alone holds both lists."""
    scene = ReporterScene()
    honest, told = scene.match.record(), scene.match.commit_list(0, [1])
    scene.others = [replace(honest, commit_lists=(told, *honest.commit_lists[1:]))]
    scene.reporter.on_match_ended(honest)
    await scene.pass_s(60)
    assert [name.rsplit(":", 1)[1] for name in scene.sent] == ["DOUBLE_SIGN"]


async def test_a_record_that_a_peer_invented_accuses_nobody() -> None:
    scene = ReporterScene()
    honest = scene.match.record()
    forged = tuple(replace(each, signature=bytes(65)) for each in scene.two_lists().commit_lists)
    scene.others = [replace(honest, commit_lists=forged)]
    scene.reporter.on_match_ended(honest)
    await scene.pass_s(60)
    assert scene.sent == {}


async def test_an_honest_match_sends_nothing() -> None:
    scene = ReporterScene()
    scene.reporter.on_match_ended(scene.match.record())
    await scene.pass_s(60)
    assert scene.sent == {}


async def test_it_does_not_accuse_itself() -> None:
    scene = ReporterScene(own=0)
    scene.reporter.on_match_ended(scene.two_lists(liar=0))
    await scene.pass_s(60)
    assert scene.sent == {}


async def test_a_bidder_that_did_not_reveal_is_left_to_those_it_harmed() -> None:
    """The commit of provider 2 is listed by all, and its bid is nowhere."""
    scene = ReporterScene(match=HandMatch.of({0: 2 * USD, 1: USD, 2: USD}))
    match = scene.match
    told = match.proposal(0, match.book([0, 1]))
    record = match.record(
        reveals=(match.bid(0), match.bid(1)),
        reveal_lists=tuple(match.reveal_list(i, [0, 1]) for i in range(4)),
        proposals=(told,),
        votes=tuple(match.vote(i, told.task) for i in range(3)),
    )
    accept(scene.state, told.task)
    proven = evidence_of(
        scene.state,
        "0x" + told.task.order_id.hex(),
        told.task.attempt,
        domain=match.cast.context.domain,
        version=told.task.stake_version,
        records=[record],
    )
    assert [each.fault for each in proven] == [MarketFault.UNREVEALED]
    scene.reporter.on_match_ended(record)
    await scene.pass_s(60)
    assert scene.sent == {}


async def test_what_waits_is_bounded_and_dropped_at_the_end() -> None:
    scene = ReporterScene()
    record = scene.two_lists()
    for attempt in range(fault_reporter.WAITING_MAX + 9):
        scene.reporter.on_match_ended(replace(record, context=replace(record.context, attempt=attempt)))
    await scene.reporter.close()
    await scene.pass_s(60)
    assert scene.sent == {}


def test_two_snapshots_in_one_round_are_reported_once() -> None:
    scene = ReporterScene()
    signer = scene.match.cast.vote_keys[2].address.lower()
    first, second = (SignedSnapshot(ReputationSnapshot(3, 1, bytes([n]) * 32, 2, bytes(32)), bytes(65)) for n in (1, 2))
    for _ in range(2):
        scene.reporter.on_double_snapshot(SnapshotDoubleSign(signer, first, second))
    assert list(scene.sent) == ["proof:snapshot:3:1:DOUBLE_SIGN"]
    scene.reporter.on_double_snapshot(SnapshotDoubleSign("0x" + "77" * 20, first, second))
    assert len(scene.sent) == 1, "a key without weight has nothing to lose"
