"""Four validators in memory that vote on snapshots, with a chain that takes them: for tests of whole epochs.

Time is virtual. Messages go through JSON, take some milliseconds, and can be dropped or changed on the way. What a
validator stores survives its restart, as on disk.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.market.match.model import MatchTiming
from sparewatt.market.quorum import is_quorum
from sparewatt.market.snapshots.model import (
    ChainFacts,
    ProviderFacts,
    SnapshotCertificate,
    SnapshotDoubleSign,
    SnapshotEntry,
    SnapshotNote,
    SnapshotOutput,
    VotingFacts,
)
from sparewatt.market.snapshots.snapshot_match import SnapshotMatch
from sparewatt.protocol.contracts.match import Observation, ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedSnapshot,
    SnapshotBook,
    SnapshotMessage,
    decode_snapshot_message,
    encode_snapshot_message,
)
from sparewatt.protocol.signing import Domain, SigningKey, recover_address
from sparewatt.protocol.typed_message import contract_domain, message_digest

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "aa" * 20)
SPACING_S = 10
START_S = 1_800_000_000
LATENCY_MS = 5
TIMING = MatchTiming()
KEYS = [SigningKey(bytes([7] * 31 + [number])) for number in range(1, 6)]
ALICE, BOB, CAROL = ("0x" + digit * 40 for digit in "abc")


def provider_facts(provider: str = ALICE, **changes: Any) -> ProviderFacts:
    usual = ProviderFacts(
        provider=provider, country=1, zone=2, tier=1, gpu_model=3, gpu_class=20, vram_gb=24, gpu_units=1
    )
    return replace(usual, **changes)


def seen(provider: str = ALICE, *, uptime_ppm: int = 990_000, reputation_ppm: int = 500_000) -> Observation:
    return Observation(provider, uptime_ppm, reputation_ppm, 255)


@dataclass
class Member:
    """One validator with its disk."""

    key: SigningKey
    rows: Sequence[Observation] = (seen(),)
    match: SnapshotMatch | None = None
    entries: list[SnapshotEntry] = field(default_factory=list)
    books: list[SnapshotBook] = field(default_factory=list)
    notes: list[SnapshotNote] = field(default_factory=list)
    faults: list[SnapshotDoubleSign] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    posts: int = 0

    @property
    def address(self) -> str:
        return self.key.address.lower()

    def votes(self) -> list[SignedSnapshot]:
        signed = [(entry.message, entry.signature) for entry in self.entries]
        return [SignedSnapshot(message, by) for message, by in signed if isinstance(message, ReputationSnapshot)]


Filter = Callable[[Member, Member, SnapshotMessage], SnapshotMessage | None]
"""What becomes of a message from one to another; None: it is lost."""


class SnapshotNetwork:
    def __init__(
        self,
        weights: Sequence[int] = (1, 1, 1, 1),
        *,
        providers: Sequence[ProviderFacts] = (),
        domain: Domain = DOMAIN,
        keys: Sequence[SigningKey] = KEYS,
    ) -> None:
        self.domain = domain
        self.members = [Member(key) for key in keys[: len(weights)]]
        self.weights = {member.address: weight for member, weight in zip(self.members, weights, strict=True)}
        self.providers = tuple(providers) or (provider_facts(),)
        self.now_ms = 0
        self.height = 1
        self.posted: list[SnapshotRecord] = []
        self.certificates: list[SnapshotCertificate] = []
        self.refused_posts: list[str] = []
        self.filter: Filter = lambda _sender, _receiver, message: message
        self.crash_after: Callable[[Member, SnapshotOutput], bool] = lambda _member, _output: False
        """Whether a validator dies when this output is stored, before anything of it is sent."""
        self.sent = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order: Iterator[int] = count()

    # Members

    def start(self, *members: Member) -> None:
        for member in members or self.members:
            member.match = SnapshotMatch(
                domain=self.domain,
                key=member.key,
                timing=TIMING,
                spacing_s=SPACING_S,
                observe=lambda _now_ms, member=member: member.rows,  # type: ignore[misc]
                stored=member.entries,
                books=member.books,
            )
            self._do(member, member.match.start(self.facts(), self.voting(), self.now_ms))

    def start_stopped(self) -> None:
        for member in self.members:
            if member.match is None:
                self.start(member)

    def stop(self, member: Member) -> None:
        member.match = None

    def restart(self, member: Member) -> None:
        self.stop(member)
        self.start(member)

    # The chain

    def facts(self) -> ChainFacts:
        return ChainFacts(
            height=self.height, unix_s=self.unix_s(), weights=dict(self.weights), providers=self.providers
        )

    def voting(self) -> VotingFacts:
        latest = self.posted[-1] if self.posted else None
        return VotingFacts(weights=dict(self.weights), latest=latest, unix_s=self.unix_s())

    def unix_s(self) -> int:
        return START_S + self.now_ms // 1_000

    def mine(self, *, providers: Sequence[ProviderFacts] | None = None) -> None:
        """One more block, which everyone sees."""
        self.height += 1
        if providers is not None:
            self.providers = tuple(providers)
        facts, voting = self.facts(), self.voting()
        for member in self.members:
            self._later(LATENCY_MS, lambda member=member: self._follow(member, facts, voting))  # type: ignore[misc]

    def _follow(self, member: Member, facts: ChainFacts, voting: VotingFacts) -> None:
        if member.match is not None:
            self._do(member, member.match.follow(facts, voting, self.now_ms))

    def post(self, certificate: SnapshotCertificate) -> None:
        """As `task_manager.post_snapshot` judges it."""
        snapshot, last = certificate.snapshot, self.posted[-1] if self.posted else None
        signers = [
            recover_address(message_digest(self.domain, vote.snapshot), vote.signature) for vote in certificate.votes
        ]
        assert signers == sorted(set(signers)), "votes ascend by signer"
        assert tuple(signers) == certificate.signers
        assert all(vote.snapshot == snapshot for vote in certificate.votes)
        if snapshot.epoch != (last.epoch if last else 0) + 1:
            self.refused_posts.append("WRONG_EPOCH")
        elif last is not None and self.unix_s() < last.posted_at + SPACING_S:
            self.refused_posts.append("TOO_EARLY")
        elif not is_quorum(sum(self.weights.get(signer, 0) for signer in signers), total=sum(self.weights.values())):
            self.refused_posts.append("NO_QUORUM")
        else:
            root, inputs_hash = "0x" + snapshot.root.hex(), "0x" + snapshot.inputs_hash.hex()
            record = SnapshotRecord(snapshot.epoch, root, snapshot.count, inputs_hash, self.unix_s())
            self.posted.append(record)
            self.certificates.append(certificate)
            self.mine()

    # Time

    def run(self, ms: int) -> None:
        """That much time goes by."""
        self.run_until(lambda: False, ms=ms)

    def run_until(self, done: Callable[[], bool], *, ms: int = 60_000) -> bool:
        end_ms = self.now_ms + ms
        for _ in range(200_000):
            if done():
                return True
            ticks = [(member.match.next_tick_ms, member) for member in self.members if member.match is not None]
            first_ms, member = min(ticks, key=lambda each: each[0], default=(end_ms, None))
            queued_ms = self._queue[0][0] if self._queue else end_ms
            if min(first_ms, queued_ms) >= end_ms:
                self.now_ms = end_ms
                return done()
            self.now_ms = max(self.now_ms, min(first_ms, queued_ms))
            if queued_ms <= first_ms or member is None or member.match is None:
                heapq.heappop(self._queue)[2]()
            else:
                self._do(member, member.match.tick(self.now_ms))
        raise AssertionError("the validators tick without an end")

    def run_until_posted(self, epoch: int, *, ms: int = 60_000) -> bool:
        return self.run_until(lambda: bool(self.posted) and self.posted[-1].epoch >= epoch, ms=ms)

    def _later(self, ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + ms, next(self._order), action))

    def _do(self, member: Member, output: SnapshotOutput, *, sender: Member | None = None) -> None:
        member.entries += output.entries
        member.books += output.books
        member.notes += output.notes
        member.faults += output.faults
        if self.crash_after(member, output):
            self.stop(member)
            return
        for message in output.broadcast:
            for receiver in self.members:
                if receiver is not member:
                    self.send(member, receiver, message)
        for message in output.replies if sender else ():
            self.send(member, sender, message)  # type: ignore[arg-type]
        if output.certificate is not None:
            member.posts += 1
            self._later(LATENCY_MS, lambda: self.post(output.certificate))  # type: ignore[arg-type]

    def send(self, sender: Member, receiver: Member, message: SnapshotMessage) -> None:
        changed = self.filter(sender, receiver, message)
        if changed is None:
            return
        self.sent += 1
        body = encode_snapshot_message(changed)
        self._later(LATENCY_MS, lambda: self._arrive(sender, receiver, body))

    def _arrive(self, sender: Member, receiver: Member, body: bytes) -> None:
        if receiver.match is None:
            return
        output = receiver.match.receive(decode_snapshot_message(body), now_ms=self.now_ms)
        receiver.codes.append(output.code)
        self._do(receiver, output, sender=sender)
