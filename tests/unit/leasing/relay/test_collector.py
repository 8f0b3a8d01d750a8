"""What four validators tell of an auction is collected, whatever some of them do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.leasing.relay import collector as collector_module
from sparewatt.leasing.relay.collector import MatchCollector
from sparewatt.leasing.relay.evidence import MatchEvidence
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.market.certificate_json import read_certificate
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.record import write_record
from sparewatt.protocol.api.validators import EpochTable
from sparewatt.protocol.contracts.match_messages import write_object
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.store.lease_matches import LeaseMatchRow
from sparewatt.testing.clocks import ManualClock
from tests.unit.leasing.relay.auction import ADDRESSES, PROFILES, PROVIDERS, VOTE_KEYS, Auction
from tests.unit.market.market_events import an_event, in_blocks

AUCTION = Auction()
ID = AUCTION.id_text
URLS = {f"http://127.0.0.1:{9_001 + number}": each for number, each in enumerate(VOTE_KEYS)}
Answer = Callable[[str], bytes]


class MemoryMatches:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.is_away = False

    async def save(
        self, order_id: str, attempt: int, *, opened_at: int, evidence: str, certificate: str | None = None
    ) -> None:
        if self.is_away:
            raise StoreUnavailable("away", retry_after_s=1.0)
        row = self.rows.setdefault((order_id, attempt), {"record": None, "record_from": None, "version": 0})
        row.update(opened_at=opened_at, evidence=evidence, certificate=certificate, version=row["version"] + 1)

    async def save_record(self, order_id: str, attempt: int, *, record: str, said_by: str) -> None:
        self.rows[order_id, attempt].update(record=record, record_from=said_by)

    async def find(self, order_id: str, attempt: int) -> LeaseMatchRow | None:
        row = self.rows.get((order_id, attempt))
        if row is None:
            return None
        return LeaseMatchRow(order_id, attempt, row["version"], row["evidence"], row["certificate"], row["record_from"])

    async def find_acceptance(self, order_id: str, attempt: int) -> tuple[str, int] | None:
        return ("0xtx", 77) if (order_id, attempt) in self.rows else None


@dataclass
class Validators:
    """By URL, what each answers to a path; the truth by default."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
        assert within_s > 0
        self.asked.append(path)
        await asyncio.sleep(0)
        answer = self.answers.get(url)
        body = truth(url, path) if answer is None else answer(path)
        if len(body) > bytes_max:
            raise NoAnswer("its answer is too long")
        return body


def truth(url: str, path: str) -> bytes:
    if path.endswith("/record"):
        return msgspec.json.encode(write_record(AUCTION.record(URLS[url])))
    if "/snapshots/" in path:
        table = EpochTable(
            epoch=1,
            height=1,
            root="0x",
            inputs_hash="0x",
            profiles=[write_message(each) for each in PROFILES],
            observations=[],
        )
        return msgspec.json.encode(table)
    return msgspec.json.encode(AUCTION.progress())


class Scene:
    def __init__(self) -> None:
        self.store, self.validators, self.is_collector = MemoryMatches(), Validators(), True
        self.view = ChainView(depth=1)
        self.view.advance(in_blocks(AUCTION.events(), per_block=100), to_block=1)
        self.view.advance(in_blocks([AUCTION.lookup_event()], first=2), to_block=2)
        self.collector = MatchCollector(
            validators=self.validators,
            store=self.store,
            is_collector=lambda: self.is_collector,
            asked_count=lambda *_: 2,
            clock=ManualClock(),
        )

    def follow(self, changed: set[str] | None = None) -> None:
        self.collector.follow(self.view, changed, ADDRESSES)

    def decide(self) -> None:
        """The chain has a certificate, or the attempt is over."""
        ended = an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=97)
        self.view.advance(in_blocks([ended], first=3), to_block=3)
        self.follow({ID})

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5.0):
            while not holds():  # noqa: ASYNC110 (polls with a ceiling)
                await asyncio.sleep(0.005)

    async def run(self) -> MatchEvidence:
        """The whole collection of the open attempt."""
        self.follow()
        await self.until(lambda: (ID, 0) in self.store.rows)
        self.decide()
        await self.until(lambda: not self.collector.has_open)
        return self.evidence

    @property
    def evidence(self) -> MatchEvidence:
        return msgspec.json.decode(self.store.rows[ID, 0]["evidence"], type=MatchEvidence)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    for name, seconds in {
        "SAVE_S": 0.01,
        "RETRY_S": 0.01,
        "RETRY_S_MAX": 0.02,
        "LINGER_S": 0.2,
        "HEDGE_S": 0.01,
    }.items():
        monkeypatch.setattr(collector_module, name, seconds)
    made = Scene()
    yield made
    await made.collector.close()


async def test_an_auction_is_collected_with_its_certificate_and_one_record(scene: Scene) -> None:
    evidence = await scene.run()
    row = scene.store.rows[ID, 0]
    assert evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]
    assert {key: word.problem for key, word in evidence.words.items()} == dict.fromkeys(
        (each.address for each in VOTE_KEYS), None
    )
    assert (evidence.asked, evidence.tx, evidence.accepted_at) == (2, "0xtx", 77)
    assert read_certificate(msgspec.json.decode(row["certificate"])) == AUCTION.certificate()
    assert row["record_from"] in {each.address for each in VOTE_KEYS}
    assert msgspec.json.decode(row["record"])["validator"] == row["record_from"]
    assert evidence.profiles == 3


def away(_: str) -> bytes:
    raise NoAnswer("it cannot be reached")


def forged_record(path: str) -> bytes:
    """True progress, and a record with a bid under another's name."""
    record = AUCTION.record(VOTE_KEYS[0])
    commits = [write_object(each) for each in record.commits]
    commits[0]["commit"]["provider"] = PROVIDERS[2]
    url = next(iter(URLS))
    return (
        msgspec.json.encode({**write_record(record), "commits": commits})
        if path.endswith("/record")
        else truth(url, path)
    )


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (away, "reached"),
        (lambda _: b"<html>", "not one of a validator"),
        (lambda _: b"[" * 100_000, "not one of a validator"),
        (lambda _: b"x" * 9_000_000, "too long"),
        (lambda path: b"{}" if path.endswith("/record") else truth(next(iter(URLS)), path), "not a record"),
        (forged_record, "no valid signature"),
    ],
    ids=["away", "a page", "nested", "huge", "no record", "a forged record"],
)
async def test_one_validator_that_lies_spoils_nothing_and_is_named(scene: Scene, lie: Answer, problem: str) -> None:
    liar = VOTE_KEYS[0].address
    scene.validators.answers[next(iter(URLS))] = lie
    evidence = await scene.run()
    assert evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]
    assert {bid.provider for bid in evidence.bids.values()} == set(PROVIDERS[:2])
    assert problem in (evidence.words[liar].problem or "none")
    assert {key for key, word in evidence.words.items() if word.problem} == {liar}
    assert scene.store.rows[ID, 0]["record_from"] in {each.address for each in VOTE_KEYS[1:]}


async def test_one_that_never_answers_holds_up_nothing(scene: Scene) -> None:
    class Hanging(Validators):
        async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
            if url == next(iter(URLS)) and not path.endswith("/record"):
                await asyncio.sleep(60)
            return await super().get(url, path, within_s=within_s, bytes_max=bytes_max)

    scene.collector.validators = Hanging()
    evidence = await scene.run()
    assert evidence.certificate is not None
    assert evidence.ranking == [PROVIDERS[1], PROVIDERS[0]]


async def test_a_table_that_is_not_the_chain_s_is_not_used(scene: Scene) -> None:
    def other_table(path: str) -> bytes:
        if "/snapshots/" not in path:
            return truth(next(iter(URLS)), path)
        document = msgspec.json.decode(truth(next(iter(URLS)), path))
        document["profiles"][0]["reputationPpm"] = 1
        return msgspec.json.encode(document)

    scene.validators.answers = dict.fromkeys(URLS, other_table)
    evidence = await scene.run()
    assert (evidence.profiles, evidence.ranking) == (None, [])


async def test_only_one_process_collects_and_another_goes_on_when_it_is_gone(scene: Scene) -> None:
    scene.is_collector = False
    scene.follow()
    await asyncio.sleep(0)
    assert scene.validators.asked == []
    scene.is_collector = True
    scene.follow(set())
    await scene.until(lambda: (ID, 0) in scene.store.rows)


async def test_a_process_that_takes_over_keeps_what_was_collected(scene: Scene) -> None:
    await scene.run()
    later = Scene()
    later.store.rows = scene.store.rows
    later.validators.answers = dict.fromkeys(URLS, away)
    evidence = await later.run()
    assert len(evidence.bids) == 2
    assert evidence.certificate is not None


async def test_an_attempt_is_collected_once(scene: Scene) -> None:
    await scene.run()
    count = len(scene.validators.asked)
    scene.follow()
    await asyncio.sleep(0.02)
    assert len(scene.validators.asked) == count


async def test_what_could_not_be_stored_is_stored_later(scene: Scene) -> None:
    scene.store.is_away = True
    scene.follow()
    await scene.until(lambda: len(scene.validators.asked) > 4)
    scene.store.is_away = False
    await scene.until(lambda: (ID, 0) in scene.store.rows)


async def test_only_so_many_matches_are_collected_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "MATCHES_AT_ONCE_MAX", 0)
    scene.follow()
    assert not scene.collector.has_open


async def test_a_validator_that_does_not_wait_is_not_asked_in_a_loop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "SAVE_S", 60.0)
    scene.follow()

    def polls() -> int:
        return sum("have=" in path for path in scene.validators.asked)

    await scene.until(lambda: polls() == 2 * len(VOTE_KEYS))
    for _ in range(200):
        await asyncio.sleep(0)
    assert polls() == 2 * len(VOTE_KEYS), "the same version again: it waits before it asks a third time"
    assert any("have=3&wait_ms=5000" in path for path in scene.validators.asked)
