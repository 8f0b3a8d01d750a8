"""Votes on snapshots over many seeds: loss, crashes between storing and sending, changing stakes' shares, and one liar.

Run by `make soak`, about a minute; writes docs/measurements/snapshot-votes.md. SNAPSHOT_SEEDS changes the count.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from sparewatt.market.snapshots.model import SnapshotOutput
from sparewatt.protocol.contracts.match import Observation
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedObservations,
    SignedSnapshot,
    SnapshotMessage,
    SnapshotProposal,
)
from sparewatt.protocol.typed_message import message_digest
from tests.unit.market.snapshots.snapshot_network import (
    ALICE,
    BOB,
    CAROL,
    DOMAIN,
    Member,
    SnapshotNetwork,
    provider_facts,
    seen,
)
from tests.unit.market.snapshots.test_snapshot_match_faults import keys_that_signed_twice, signed_snapshot

SEEDS = int(os.environ.get("SNAPSHOT_SEEDS", "300"))
STEPS = 6
WEIGHTS = ((1, 1, 1, 1), (30, 25, 25, 20), (40, 30, 20, 10))
PROVIDERS = (ALICE, BOB, CAROL)
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "snapshot-votes.md"

TEXT = """# Votes on snapshots over a bad network

Made by `make soak` (tests/soak/test_snapshot_votes.py): the product's state machine with simulated clocks, disks and
network. In each storm up to a third of the messages is lost, validators die between storing and sending, providers come
and go, and in most one validator worth less than a third lies to each peer in another way. Then nobody dies any more,
and the next epoch has to come.

| what | value |
| --- | ---: |
| networks, each with another seed | {seeds:,} |
| with a liar | {liars:,} |
| validators that died | {deaths:,} |
| epochs posted | {posted:,} |
| networks that stopped making epochs | {stuck:,} |
| validators that lacked the table of the last epoch | {lacking:,} |
| honest keys that signed twice | {twice:,} |
| honest validators accused | {accused:,} |
| liars accused | {caught:,} |
| seconds of one core | {seconds:,.0f} |
"""


class Weather:
    """What chance does to one network: which messages are lost or false, and who dies."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.network = SnapshotNetwork(self.chance.choice(WEIGHTS))
        self.loss = self.chance.choice((0, 0, 10, 30))
        total = sum(self.network.weights.values())
        weak = [member for member in self.network.members if 3 * self.network.weights[member.address] < total]
        self.liar = self.chance.choice([None, *weak])
        self.deaths = 0
        self.network.filter = self.carry
        self.network.crash_after = self.crash

    def carry(self, sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if self.chance.randrange(100) < self.loss:
            return None
        return self._lie(sender, message) if sender is self.liar else message

    def _lie(self, liar: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        kind = self.chance.randrange(6)
        match message:
            case _ if kind == 0:
                return None
            case SignedSnapshot() if kind < 3:
                return signed_snapshot(liar, replace(message.snapshot, root=bytes([kind] * 32)))
            case SnapshotProposal() if kind < 4:
                snapshot = replace(message.vote.snapshot, inputs_hash=bytes([kind] * 32))
                return replace(message, vote=signed_snapshot(liar, snapshot))
            case SignedObservations():
                rows = (seen(uptime_ppm=self.chance.randrange(10**6)),)
                observations = replace(message.observations, rows=rows)
                return SignedObservations(observations, liar.key.sign(message_digest(DOMAIN, observations)))
        return message

    def crash(self, _member: Member, output: SnapshotOutput) -> bool:
        dies = bool(output.entries) and self.chance.randrange(25) == 0
        self.deaths += dies
        return dies

    def rows(self, uptime_ppm: int) -> tuple[Observation, ...]:
        return tuple(seen(each, uptime_ppm=uptime_ppm + self.chance.randrange(100)) for each in PROVIDERS)

    def storm(self) -> None:
        for _ in range(STEPS):
            for _ in range(STEPS):
                self.network.run(self.chance.randrange(200, 2_500))
                self.network.start_stopped()
            if self.chance.randrange(2):
                chosen = sorted(self.chance.sample(PROVIDERS, self.chance.randrange(1, 4)))
                self.network.mine(providers=[provider_facts(each) for each in chosen])
            uptime_ppm = self.chance.randrange(700_000, 990_000)
            for member in self.network.members:
                member.rows = self.rows(uptime_ppm)

    def calm(self) -> None:
        """Nobody dies any more; loss and the liar stay."""
        self.network.crash_after = lambda _member, _output: False
        self.network.start_stopped()
        self.network.mine(providers=[provider_facts(ALICE, vram_gb=77)])


class Findings:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def add(self, seed: int, weather: Weather, *, is_posted: bool) -> None:
        network, liar = weather.network, weather.liar
        honest = [member for member in network.members if member is not liar]
        lacking = sum(member.match is None or member.match.newest_book is None for member in honest)
        accused = {fault.signer for member in network.members for fault in member.faults}
        innocent = accused & {member.address for member in honest}
        twice = keys_that_signed_twice(network, but=liar)
        found = {"stuck": int(not is_posted), "lacking": lacking, "twice": len(twice), "accused": len(innocent)}
        self.counts.update(found)
        self.counts.update(liars=int(liar is not None), caught=len(accused - innocent))
        self.counts.update(deaths=weather.deaths, posted=len(network.posted))
        self.broken += [f"seed {seed}: {name}" for name, count in found.items() if count]

    def write(self, seconds: float) -> None:
        names = ("liars", "deaths", "posted", "stuck", "lacking", "twice", "accused", "caught")
        counts = {name: self.counts[name] for name in names}
        REPORT.write_text(TEXT.format(seeds=SEEDS, seconds=seconds, **counts))


def test_after_any_storm_the_next_epoch_is_posted_and_no_honest_key_can_be_slashed() -> None:
    started, findings = time.process_time(), Findings()
    for seed in range(SEEDS):
        weather = Weather(seed)
        network = weather.network
        network.start()
        weather.storm()
        weather.calm()
        is_posted = network.run_until_posted(len(network.posted) + 1, ms=180_000)
        network.run(15_000)
        findings.add(seed, weather, is_posted=is_posted)
    findings.write(time.process_time() - started)
    assert findings.broken == []
    assert findings.counts["posted"] > 3 * SEEDS
