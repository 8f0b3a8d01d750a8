"""Outages as one process drives them: on disk first, then to the others, then to the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparewatt.market.chain_records import LeaseState
from sparewatt.market.outages.model import DownCertificate
from sparewatt.protocol.contracts.outage_messages import (
    OutageMessage,
    OutageStatus,
    SignedDown,
    decode_outage_message,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator.outage_host import OutageHost
from sparewatt.validator.signed_file import FileBinding, SignedFile, SignedFileFailed
from tests.unit.market.match.match_scene import DOMAIN, VOTE_KEYS
from tests.unit.market.outages.test_outage_watch import (
    ATTEMPT_S,
    BEAT_MS,
    DOWN_S,
    LEASED,
    OTHERS,
    START_S,
    STEP_MS,
    Ears,
    a_market,
    a_vote,
)
from tests.unit.validator.host_scene import a_view


@dataclass
class OutageScene:
    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    ears: Ears = field(default_factory=Ears)
    is_synced: bool = True
    is_away: bool = False
    answers: dict[str, int] = field(default_factory=dict)
    sent: list[OutageMessage] = field(default_factory=list)
    submitted: list[DownCertificate] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began_s = self.clock.now_s()
        self.open()

    def open(self) -> None:
        binding = FileBinding(31_337, "0x00", str(DOMAIN.verifying_contract), VOTE_KEYS[0].address)
        self.signed = SignedFile(self.folder / "signed.wal", binding=binding)
        self.host = OutageHost(
            key=VOTE_KEYS[0],
            domain=DOMAIN,
            attempt_s=ATTEMPT_S,
            beat_ms=BEAT_MS,
            submit_step_ms=STEP_MS,
            signed=self.signed,
            beats=self.ears,
            sight=self,
            answers=lambda: self.answers,
            send=self._send,
            submit=self.submitted.append,
            fail=self.failures.append,
            clock=self.clock,
        )

    def chain_unix_s(self) -> int:
        return START_S + 5 + int(self.clock.now_s() - self.began_s)

    def _send(self, vote_keys: Sequence[str], path: str, body: bytes) -> None:
        assert (path, set(vote_keys)) == ("/v1/outages/messages", {key.address for key in VOTE_KEYS[1:]})
        message = decode_outage_message(body)
        assert not isinstance(message, SignedDown) or message in self.signed.of_outages(), "it left before the disk"
        self.sent.append(message)

    def start(self) -> None:
        self.host.on_chain(a_view(a_market()), (), is_whole=True)

    def pass_s(self, seconds: int, *beating: str) -> None:
        for _ in range(seconds):
            for provider in beating:
                self.ears.heard[provider] = self.ears.held[provider, 1] = self.chain_unix_s()
            self.clock.advance(1.0)


@pytest.fixture
def scene(tmp_path: Path) -> OutageScene:
    return OutageScene(tmp_path)


def test_nothing_is_said_before_the_chain_is_known(scene: OutageScene) -> None:
    assert scene.host.receive(a_vote(1, START_S + 1)).code == MessageRefusal.BEHIND_CHAIN


def test_a_silent_provider_is_signed_sent_and_submitted_with_a_quorum(scene: OutageScene) -> None:
    scene.start()
    scene.pass_s(3, LEASED, *OTHERS)
    scene.pass_s(DOWN_S + 1, *OTHERS)
    (vote,) = scene.signed.of_outages()
    assert set(scene.sent) == {vote}
    for number in (1, 2):
        scene.host.receive(a_vote(number, vote.down.down_since))
    scene.pass_s(2, *OTHERS)
    assert scene.submitted
    assert {certificate.down for certificate in scene.submitted} == {vote.down}
    scene.host.on_chain(a_view(a_market(state=LeaseState.VACANT)), (), is_whole=False)
    scene.submitted.clear()
    scene.pass_s(5, *OTHERS)
    assert scene.submitted == []


@pytest.mark.parametrize("trouble", ["is_away", "is_synced"])
def test_without_sight_of_the_chain_nothing_is_signed(scene: OutageScene, trouble: str) -> None:
    scene.start()
    scene.pass_s(3, LEASED, *OTHERS)
    setattr(scene, trouble, trouble == "is_away")
    scene.pass_s(30, *OTHERS)
    assert (scene.sent, len(scene.signed)) == ([], 0)


def test_with_one_provider_the_validators_have_to_answer_now(scene: OutageScene) -> None:
    scene.start()
    scene.answers = {key.address: 7 for key in VOTE_KEYS[1:]}
    scene.pass_s(3, LEASED)
    scene.pass_s(DOWN_S + 3)
    assert {type(message) for message in scene.sent} == {OutageStatus}, "what was answered before does not count"
    scene.answers = {key.address: 8 for key in VOTE_KEYS[1:3]}
    scene.pass_s(2)
    assert len(scene.signed) == 1


def test_a_restart_goes_on_with_what_was_signed(scene: OutageScene) -> None:
    scene.start()
    scene.pass_s(3, LEASED, *OTHERS)
    scene.pass_s(DOWN_S + 1, *OTHERS)
    before = scene.signed.of_outages()
    scene.host.close()
    scene.signed.close()
    scene.open()
    scene.start()
    scene.host.receive(a_vote(1, before[0].down.down_since))
    scene.pass_s(3, *OTHERS)
    assert scene.signed.of_outages() == before


def test_a_disk_that_fails_ends_the_process_before_anything_leaves(
    scene: OutageScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start()
    scene.pass_s(3, LEASED, *OTHERS)

    def fail(records: Sequence[object], *, at: int) -> None:
        del at
        if records:
            raise SignedFileFailed("no space")

    monkeypatch.setattr(scene.signed, "append", fail)
    with pytest.raises(SignedFileFailed):
        scene.pass_s(DOWN_S + 1, *OTHERS)
    assert (scene.sent, len(scene.failures)) == ([], 1)
