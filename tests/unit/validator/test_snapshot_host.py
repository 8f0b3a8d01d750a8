"""Snapshots and heartbeats as one process drives them: durable first, tables kept, challenges answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.rng import seeded
from sparewatt.market.chain_records import MarketState, RegisteredClaims, SnapshotRecord
from sparewatt.market.match.model import MatchTiming
from sparewatt.market.snapshots.model import SnapshotCertificate
from sparewatt.protocol.contracts.match import Heartbeat, ReputationSnapshot, Vote
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedHeartbeat,
    SignedSnapshot,
    SnapshotStatus,
    decode_snapshot_message,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator.record_files import BookFiles
from sparewatt.validator.signed_file import FileBinding, SignedFile, SignedFileFailed, StoredRecord
from sparewatt.validator.snapshot_host import SnapshotHost
from tests.unit.market.match.match_scene import DOMAIN, NODE_KEYS, PROVIDERS, VOTE_KEYS, signed_by
from tests.unit.validator.host_scene import a_state, a_view

NOW_S = 20_000
BEAT_MS = 2_000
CLAIMS = RegisteredClaims(49, 1, 1, 2, 24, 1, 1_000_000, "0x" + "00" * 32)


@dataclass
class Times:
    head_unix_s: int = NOW_S
    final_unix_s: int = NOW_S

    def chain_unix_s(self) -> int:
        return self.head_unix_s


@dataclass
class SnapshotScene:
    """One validator; with `voters` of one it is a quorum by itself."""

    folder: Path
    voters: Sequence[SigningKey] = VOTE_KEYS[:1]
    clock: ManualClock = field(default_factory=ManualClock)
    times: Times = field(default_factory=Times)
    sent: list[Any] = field(default_factory=list)
    posted: list[SnapshotCertificate] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    tables_told: int = 0

    def __post_init__(self) -> None:
        self.state = a_state(voters=self.voters)
        self.state.snapshots.clear()
        for provider in PROVIDERS[2:]:
            del self.state.providers[provider]
        for provider in PROVIDERS[:2]:
            self.state.providers[provider] = replace(self.state.providers[provider], claims=CLAIMS)
        self.open()

    def open(self) -> None:
        binding = FileBinding(31_337, "0x00", str(DOMAIN.verifying_contract), VOTE_KEYS[0].address)
        self.signed = SignedFile(self.folder / "signed.wal", binding=binding)
        self.host = SnapshotHost(
            key=VOTE_KEYS[0],
            domain=DOMAIN,
            timing=MatchTiming(),
            spacing_s=10,
            evidence_s=660,
            beat_ms=BEAT_MS,
            signed=self.signed,
            books=BookFiles(self.folder / "snapshots"),
            heartbeats_path=self.folder / "heartbeats.json",
            send=self._send,
            submit=self.posted.append,
            fail=self.failures.append,
            on_tables=self._on_tables,
            times=self.times,
            clock=self.clock,
            rng=seeded(7),
        )

    def restart(self) -> None:
        self.host.close()
        self.signed.close()
        self.open()

    def follow(self, state: MarketState | None = None) -> None:
        self.host.on_chain(a_view(state or self.state), [], is_whole=False)

    def post(self) -> None:
        """The chain takes the newest certificate."""
        snapshot = self.posted[-1].snapshot
        root, inputs = "0x" + snapshot.root.hex(), "0x" + snapshot.inputs_hash.hex()
        self.state.snapshots[snapshot.epoch] = SnapshotRecord(snapshot.epoch, root, snapshot.count, inputs, NOW_S)
        self.follow()

    def _send(self, vote_keys: Sequence[str], path: str, body: bytes) -> None:
        assert path == "/v1/snapshots/messages"
        assert set(vote_keys) == {key.address for key in self.voters}
        self.sent.append(decode_snapshot_message(body))

    def _on_tables(self) -> None:
        self.tables_told += 1


@pytest.fixture
def scene(tmp_path: Path) -> SnapshotScene:
    return SnapshotScene(tmp_path)


def a_beat(number: int = 0, *, challenge: bytes = bytes(32), seq: int = 1) -> SignedHeartbeat:
    beat = Heartbeat(PROVIDERS[number], VOTE_KEYS[0].address, challenge, seq, 5, ())
    return SignedHeartbeat(beat, signed_by(NODE_KEYS[number], beat))


async def test_the_first_snapshot_is_made_as_soon_as_a_quorum_is_up(scene: SnapshotScene) -> None:
    scene.follow()
    scene.clock.advance(1.0)
    assert scene.posted
    assert scene.posted[0].snapshot.epoch == 1
    assert scene.posted[0].snapshot.count == 2
    kinds = {type(entry.message).__name__ for entry in scene.signed.of_snapshots()}
    assert kinds == {"Observations", "ReputationSnapshot"}


async def test_the_table_of_a_posted_epoch_is_there_for_matches_also_after_a_restart(scene: SnapshotScene) -> None:
    scene.follow()
    scene.clock.advance(1.0)
    assert scene.host.table_of(1) is None, "it is not on the chain yet"
    scene.post()
    for _ in range(2):
        table = scene.host.table_of(1)
        assert table is not None
        assert [profile.provider for profile in table] == sorted(PROVIDERS[:2])
        epoch_table = scene.host.epoch_table(1)
        assert epoch_table is not None
        assert (len(epoch_table.profiles), len(epoch_table.observations)) == (2, 1)
        assert epoch_table.root == scene.state.snapshots[1].root
        scene.restart()
        scene.follow()
    assert scene.tables_told >= 1
    assert (scene.host.epoch, scene.host.epoch_table(2), scene.host.table_of(2)) == (1, None, None)


async def test_a_table_that_is_not_the_posted_one_is_not_used(scene: SnapshotScene) -> None:
    scene.follow()
    scene.clock.advance(1.0)
    scene.post()
    scene.state.snapshots[1] = replace(scene.state.snapshots[1], root="0x" + "11" * 32)
    scene.follow()
    assert scene.host.table_of(1) is None


async def test_after_a_restart_nothing_is_signed_twice(scene: SnapshotScene) -> None:
    """The vote of a round is on disk: the same is sent again, never another."""
    scene.follow()
    scene.clock.advance(1.0)
    before = scene.signed.of_snapshots()
    scene.restart()
    scene.state.providers[PROVIDERS[0]] = replace(scene.state.providers[PROVIDERS[0]], claims=replace(CLAIMS, zone=3))
    scene.follow()
    scene.clock.advance(5.0)
    rounds = [
        (entry.message.epoch, entry.message.round)
        for entry in scene.signed.of_snapshots()
        if isinstance(entry.message, ReputationSnapshot)
    ]
    assert len(rounds) == len(set(rounds))
    assert scene.signed.of_snapshots()[: len(before)] == before


async def test_a_disk_that_fails_stops_the_validator_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SnapshotScene(tmp_path, voters=VOTE_KEYS)

    def fails(_file: SignedFile, records: Sequence[StoredRecord], *, at: int) -> None:
        if records:
            raise SignedFileFailed(f"full at {at}")

    monkeypatch.setattr(SignedFile, "append", fails)
    with pytest.raises(SignedFileFailed):
        scene.follow()
    assert (len(scene.failures), scene.sent) == (1, [])


async def test_a_file_that_has_grown_loses_what_nobody_can_dispute_any_more(scene: SnapshotScene) -> None:
    """Also where no order is ever made: an epoch a minute would fill the disk in a year."""
    old = SignedVote(Vote(b"\1" * 32, 0, 0, b"\2" * 32), b"\1" * 65)
    scene.signed.append([old], at=NOW_S - 661)
    scene.signed.append([replace(old, vote=replace(old.vote, round=1))], at=NOW_S - 600)
    scene.signed._compact_at = 0
    scene.follow()
    assert [record.vote.round for record in scene.signed.of_match(b"\1" * 32, 0) if isinstance(record, SignedVote)] == [
        1
    ]


async def test_messages_before_the_chain_is_known_are_refused(scene: SnapshotScene) -> None:
    assert scene.host.receive(SnapshotStatus(1, 0, 0, ())).code == MessageRefusal.BEHIND_CHAIN
    scene.follow()
    forged = SignedSnapshot(ReputationSnapshot(1, 0, b"\1" * 32, 1, b"\2" * 32), b"\1" * 64 + b"\x1b")
    assert scene.host.receive(forged).code != 0


async def test_nothing_starts_before_our_first_block_is_final(scene: SnapshotScene) -> None:
    scene.times.final_unix_s = 0
    scene.follow()
    scene.clock.advance(1.0)
    assert (scene.posted, scene.sent) == ([], [])
    scene.times.final_unix_s = NOW_S
    scene.follow()
    scene.clock.advance(1.0)
    assert scene.posted


async def test_a_heartbeat_is_answered_with_a_challenge_that_the_next_one_must_carry(scene: SnapshotScene) -> None:
    scene.follow()
    first = scene.host.hear(a_beat())
    assert (first.code, len(first.challenge)) == (0, 66)
    challenge = bytes.fromhex(first.challenge[2:])
    second = scene.host.hear(a_beat(challenge=challenge, seq=2))
    assert (second.code, second.reason, second.seq) == (0, None, 2)
    assert second.challenge != first.challenge
    replayed = scene.host.hear(a_beat(challenge=challenge, seq=3))
    assert (replayed.code, replayed.reason) == (MessageRefusal.STALE_CHALLENGE, "STALE_CHALLENGE")
    assert scene.host.heard_count() == 1


async def test_a_strangers_heartbeat_is_refused(scene: SnapshotScene) -> None:
    scene.follow()
    assert scene.host.hear(a_beat(3)).reason == "NOT_REGISTERED"
    forged = SignedHeartbeat(a_beat(0).heartbeat, a_beat(1).signature)
    assert scene.host.hear(forged).reason == "BAD_SIGNATURE"
    assert scene.host.heard_count() == 0


async def test_what_was_heard_is_on_disk_within_a_minute_and_read_again(scene: SnapshotScene) -> None:
    scene.follow()
    scene.clock.advance(61.0)
    saved = msgspec.json.decode((scene.folder / "heartbeats.json").read_bytes())
    assert set(saved["providers"]) == set(PROVIDERS[:2])
    scene.restart()
    assert len(scene.host.heard) == 2


async def test_a_damaged_file_of_heartbeats_is_begun_anew(scene: SnapshotScene) -> None:
    scene.restart()
    (scene.folder / "heartbeats.json").write_bytes(b"{")
    scene.restart()
    (scene.folder / "heartbeats.json").write_bytes(b"[")
    scene.signed.close()
    scene.open()
    assert len(scene.host.heard) == 0


async def test_closing_leaves_no_timer(scene: SnapshotScene) -> None:
    scene.follow()
    scene.host.close()
    assert scene.clock.pending == 0
