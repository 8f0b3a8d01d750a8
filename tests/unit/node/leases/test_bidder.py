"""A node and the lookups that a gateway sends it: what it bids on, what it reserves, and what it never signs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.leases import bid_run
from sparewatt.node.leases import bidder as bidder_module
from sparewatt.node.leases.bid_store import BidStore, StoredBid
from sparewatt.node.leases.bidder import ANSWERS_KEPT, LeaseBidder
from sparewatt.node.leases.chain_check import ChainDiffers
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.leases.reservations import ReservationState
from sparewatt.protocol.contracts.match_messages import SignedCommit
from sparewatt.protocol.contracts.reasons import DeclineReason
from sparewatt.protocol.link.lease_frames import HeldLease, LeaseLookup, LeaseOutcome
from sparewatt.protocol.link.lease_offer import LeasePrice
from sparewatt.protocol.signing import recover_address
from sparewatt.protocol.typed_message import message_digest, struct_hash
from tests.unit.node.leases.lease_world import (
    CONTENT,
    DOMAIN,
    MACHINE,
    NODE_KEY,
    NOW_UNIX_S,
    PROVIDER,
    RENTER,
    VOTE_KEYS,
    FakeValidators,
    lookup,
    market,
    policy,
    sealed,
    specification,
    url_of,
)
from tests.waiting import turns, until

GPUS = MACHINE.measured.gpus


def key_of(given: LeaseLookup) -> tuple[bytes, int]:
    return bytes.fromhex(given.order_id[2:]), given.attempt


def outcome(given: LeaseLookup, result: Any, **changes: Any) -> LeaseOutcome:
    made = LeaseOutcome(
        order_id=given.order_id, attempt=given.attempt, result=result, provider=PROVIDER, term=1, block_number=51
    )
    return msgspec.structs.replace(made, **changes)


class BiddingNode:
    """The bidder of a node with two GPUs, and the validators it dials."""

    def __init__(self, data_dir: Path) -> None:
        self.validators, self.notices = FakeValidators(), list[str]()
        self.store = BidStore(data_dir)
        self.rules, self.is_offering, self.is_paused = LeaseRules(), True, False
        self.bidder = LeaseBidder(
            key=NODE_KEY,
            store=self.store,
            calls=self.validators,
            clock=SystemClock(),
            rng=seeded(3),
            notify=self.notices.append,
            machine=lambda: MACHINE,
            rules=lambda: self.rules,
            is_offering=lambda: self.is_offering,
            is_paused=lambda: self.is_paused,
        )

    def reserved_gpus(self) -> int:
        return self.bidder.reservations.reserved().gpus

    def committed(self) -> set[bytes]:
        return {signed.commit.order_id for signed in self.validators.commits()}

    async def until_committed(self, given: LeaseLookup) -> None:
        await until(lambda: key_of(given)[0] in self.committed())


@asynccontextmanager
async def bidding(data_dir: Path, *, facts: Any = None, chain: Any = None) -> AsyncIterator[BiddingNode]:
    node = BiddingNode(data_dir)
    node.bidder.chain = chain
    await node.bidder.restore()
    node.bidder.on_market(facts or market())
    task = asyncio.create_task(node.bidder.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_bid_is_stored_before_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[set[bytes]] = []
    async with bidding(tmp_path) as node:
        write = node.store.write

        def watched(bid: StoredBid) -> None:
            written.append(node.committed())
            write(bid)

        monkeypatch.setattr(node.store, "write", watched)
        given = lookup()
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        assert written == [set()], "one write, and nothing had left"
        (stored,) = node.store.read_all(unix_s=NOW_UNIX_S)
        signed: SignedCommit = node.validators.commits()[0]
        assert recover_address(message_digest(DOMAIN, signed.commit), signed.signature) == NODE_KEY.address
        assert (stored.key, stored.price_uusd) == (key_of(given), 250_000)
        assert signed.commit.provider == PROVIDER


async def test_a_bid_that_cannot_be_stored_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError("no space left on device")

    async with bidding(tmp_path) as node:
        monkeypatch.setattr(node.store, "write", full)
        node.bidder.on_lookup(lookup())
        await until(lambda: node.bidder._attempts_seen)
        await until(lambda: node.reserved_gpus() == 0)
        await turns()
        assert node.committed() == set()


async def test_concurrent_lookups_never_get_more_than_there_is(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        for nonce in range(12):
            node.bidder.on_lookup(lookup(nonce=nonce))
        await until(lambda: len({decline.decline.order_id for decline in node.validators.declines()}) == 12 - GPUS)
        await until(lambda: len(node.committed()) == GPUS)
        assert node.reserved_gpus() == GPUS
        assert {signed.decline.code for signed in node.validators.declines()} == {DeclineReason.BUSY}
        assert node.bidder.offer().gpus == 0


async def test_losing_costs_nothing(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        for result in ("lost", "standby", "none"):
            given = lookup(nonce=len(node.committed()))
            node.bidder.on_lookup(given)
            await node.until_committed(given)
            assert node.reserved_gpus() == 1
            node.bidder.on_outcome(outcome(given, result))
            await until(lambda: node.reserved_gpus() == 0)
            await until(lambda: node.store.read_all(unix_s=NOW_UNIX_S) == [])


async def test_the_owner_sees_what_became_of_the_last_lookups(tmp_path: Path) -> None:
    lost, won, declined = lookup(nonce=1), lookup(nonce=2), lookup(nonce=3)
    async with bidding(tmp_path) as node:
        for given in (lost, won):
            node.bidder.on_lookup(given)
            await node.until_committed(given)
        node.bidder.on_outcome(outcome(lost, "standby", pay_uusd=200_000))
        node.bidder.on_outcome(outcome(won, "won", pay_uusd=300_000))
        await until(lambda: len(node.bidder.ended) == 2)
        node.is_paused = True
        node.bidder.on_lookup(declined)
        await until(lambda: len(node.bidder.ended) == 3)
        price = node.bidder.status()["bids"][0]["price_uusd"]
        assert [
            (each["order"], each["result"], each["price_uusd"], each["winner_pay_uusd"])
            for each in node.bidder.status()["ended"]
        ] == [
            (lost.order_id, "standby", price, 200_000),
            (won.order_id, "won", price, 300_000),
            (declined.order_id, "declined: paused", 0, 0),
        ]


async def test_only_the_last_lookups_are_kept_for_the_owner(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        node.is_paused = True
        for nonce in range(ANSWERS_KEPT + 2):
            node.bidder.on_lookup(lookup(nonce=nonce))
        await until(lambda: node.bidder.counts["PAUSED"] == ANSWERS_KEPT + 2)
        assert len(node.bidder.ended) == ANSWERS_KEPT


async def test_a_winner_keeps_its_part_of_the_machine_until_the_lease_ends(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        node.bidder.on_outcome(outcome(given, "won", pay_uusd=300_000))
        await until(lambda: node.bidder.held() == [(key_of(given)[0], 1)])
        await until(lambda: node.notices)
        assert "kept for it" in node.notices[0]
        node.bidder.on_outcome(outcome(given, "lost"))
        await turns()
        assert node.reserved_gpus() == 1, "who has won has not lost"
    async with bidding(tmp_path) as again:
        assert again.bidder.held() == [(key_of(given)[0], 1)], "a restart does not give it up"
        again.bidder.on_outcome(outcome(given, "ended", term=1))
        await until(lambda: again.reserved_gpus() == 0)
        await until(lambda: again.store.read_all(unix_s=NOW_UNIX_S) == [])


async def test_a_restart_sends_the_same_bid_again(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        first = node.validators.commits()[0]
    async with bidding(tmp_path) as again:
        assert again.reserved_gpus() == 1
        await again.until_committed(given)
        assert set(again.validators.commits()) == {first}
        again.bidder.on_lookup(given)
        await turns()
        for vote_key in VOTE_KEYS[:3]:
            again.validators.publish(vote_key, sealed(vote_key, key_of(given)[0], [first]))
        await until(again.validators.reveals)
        assert {struct_hash(reveal.bid) for reveal in again.validators.reveals()} == {first.commit.bid_id}


LIES: dict[str, dict[str, Any]] = {
    "content": {"content": CONTENT + " "},
    "policy": {"policy": lookup(policy(duration_s=60)).policy},
    "nonce": {"renter_nonce": 7},
    "specification": {"specification": lookup(spec=specification(gpus=0)).specification},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_false_lookup_gets_neither_bid_nor_decline(tmp_path: Path, lie: str) -> None:
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(msgspec.structs.replace(lookup(), **LIES[lie]))
        await until(lambda: node.bidder.counts["false"] == 1)
        assert not node.validators.got
        assert node.reserved_gpus() == 0
        node.bidder.on_lookup(lookup())
        await node.until_committed(lookup())


async def test_a_replay_and_an_attempt_that_goes_back_are_nothing(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        second = lookup(attempt=1)
        node.bidder.on_lookup(second)
        await node.until_committed(second)
        for replayed in (second, lookup(attempt=0), second):
            node.bidder.on_lookup(replayed)
        other = lookup(nonce=1)
        node.bidder.on_lookup(other)
        await node.until_committed(other)
        assert {signed.commit.attempt for signed in node.validators.commits()} == {0, 1}
        assert node.reserved_gpus() == 2
        assert node.bidder.counts["bid"] == 2


async def test_the_next_attempt_is_bid_on(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        for attempt in range(2):
            given = lookup(attempt=attempt)
            node.bidder.on_lookup(given)
            await until(lambda: node.reserved_gpus() == 1)
            await until(lambda: node.bidder._runs)
            node.bidder.on_outcome(outcome(given, "none"))
            await until(lambda: node.reserved_gpus() == 0)
        assert node.bidder.counts["bid"] == 2


async def test_a_flood_of_lookups_is_bounded(tmp_path: Path) -> None:
    node = BiddingNode(tmp_path)
    node.bidder.on_market(market())
    for nonce in range(bidder_module.WAITING_MAX + 50):
        node.bidder.on_lookup(lookup(nonce=nonce))
    assert node.bidder.counts["dropped"] == 50


DECLINES: dict[DeclineReason, dict[str, Any]] = {
    DeclineReason.TENANT: {"rules": LeaseRules(refused_tenants=(RENTER,))},
    DeclineReason.PAUSED: {"is_paused": True},
}


@pytest.mark.parametrize("reason", DECLINES)
async def test_a_decline_is_signed_and_goes_to_every_validator(tmp_path: Path, reason: DeclineReason) -> None:
    async with bidding(tmp_path) as node:
        for name, value in DECLINES[reason].items():
            setattr(node, name, value)
        node.validators.silent.add(url_of(VOTE_KEYS[3]))
        node.bidder.on_lookup(lookup())
        await until(lambda: len(node.validators.declines()) == 3)
        for signed in node.validators.declines():
            assert (signed.decline.code, signed.decline.provider) == (reason, PROVIDER)
            assert recover_address(message_digest(DOMAIN, signed.decline), signed.signature) == NODE_KEY.address
        assert node.bidder.counts[reason.name] == 1


async def test_content_that_is_no_document_is_declined(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(lookup(spec=specification("[]"), content="[]"))
        await until(lambda: len(node.validators.declines()) == 4)
        assert node.validators.declines()[0].decline.code == DeclineReason.OTHER


async def test_who_is_not_asked_says_nothing(tmp_path: Path) -> None:
    stranger = "0x" + "1" * 40
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(lookup(policy(only=(stranger,)), nonce=1))
        node.bidder.on_lookup(lookup(policy(ignore=(PROVIDER,)), nonce=2))
        asked = lookup(policy(only=(stranger, PROVIDER)), nonce=3)
        node.bidder.on_lookup(asked)
        await node.until_committed(asked)
        assert node.committed() == {key_of(asked)[0]}
        assert node.validators.declines() == []


@pytest.mark.parametrize("missing", ["provider", "offer"])
async def test_a_node_that_is_no_provider_does_not_bid(tmp_path: Path, missing: str) -> None:
    async with bidding(tmp_path, facts=market(provider=None) if missing == "provider" else None) as node:
        node.is_offering = missing != "offer"
        node.bidder.on_lookup(lookup())
        await until(lambda: node.bidder.counts["not_ready"] == 1)
        assert not node.validators.got


async def test_an_attempt_without_an_outcome_is_over_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bidder_module, "SLACK_S", -0.9)
    async with bidding(tmp_path, facts=market(attempt_s=1)) as node:
        node.bidder.on_lookup(lookup())
        await node.until_committed(lookup())
        await until(lambda: node.reserved_gpus() == 0)
        await until(lambda: node.store.read_all(unix_s=NOW_UNIX_S) == [])


async def test_the_list_of_leases_tells_a_missed_win_and_a_missed_end(tmp_path: Path) -> None:
    given, order = lookup(), key_of(lookup())[0]
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        node.bidder.on_market(market(held=()))
        await turns()
        assert node.reserved_gpus() == 1, "a bid that is open is no lease yet"
        node.bidder.on_market(market(block_number=60, held=(HeldLease(given.order_id, 2),)))
        await until(lambda: node.bidder.held() == [(order, 2)])
        node.bidder.on_market(market(block_number=59, held=()))
        await turns()
        assert node.bidder.held() == [(order, 2)], "an older block knows nothing of it"
        node.bidder.on_market(market(block_number=61, held=()))
        await until(lambda: node.bidder.held() == [])


async def test_a_lease_of_which_nothing_is_stored_is_told_once(tmp_path: Path) -> None:
    strange = HeldLease("0x" + "9" * 64, 1)
    async with bidding(tmp_path) as node:
        for _ in range(3):
            node.bidder.on_market(market(held=(strange,)))
        assert len([text for text in node.notices if "nothing is stored" in text]) == 1
        assert node.bidder.held() == []


async def test_another_providers_win_is_not_ours(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        node.bidder.on_outcome(outcome(given, "won", provider="0x" + "1" * 40))
        node.bidder.on_outcome(outcome(lookup(nonce=5), "won"))
        await turns()
        entry = node.bidder.reservations.get(key_of(given))
        assert entry is not None
        assert entry.state is ReservationState.BIDDING


async def test_signed_lists_are_kept(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        signed = node.validators.commits()[0]
        for vote_key in VOTE_KEYS:
            node.validators.publish(vote_key, sealed(vote_key, key_of(given)[0], [signed]))
        await until(node.validators.reveals)
        await until(lambda: node.bidder.status()["bids"][0]["state"] == "certified")
        node.bidder.on_outcome(outcome(given, "lost"))
        await until(lambda: len(node.store.read_receipts(key_of(given))) == 4)


class FakeChain:
    """An owner's chain that says what a test sets."""

    def __init__(self, *, differs: str | None = None, term: int | None = None) -> None:
        self.differs, self.term, self.height, self.trouble = differs, term, 77, None

    async def check_order(self, *_: object, **__: object) -> None:
        if self.differs:
            raise ChainDiffers(self.differs)

    async def validator_urls(self, vote_keys: Any, _: object) -> dict[str, str]:
        return {vote_key: f"https://chain-{vote_key[2:6]}.example" for vote_key in vote_keys}

    async def placed_term(self, *_: object) -> int | None:
        return self.term


async def test_a_lookup_that_the_owners_chain_does_not_know_gets_no_bid(tmp_path: Path) -> None:
    async with bidding(tmp_path, chain=FakeChain(differs="the order is another")) as node:
        node.bidder.on_lookup(lookup())
        await until(lambda: node.bidder.counts["differs"] == 1)
        assert not node.validators.got
        assert node.bidder.status()["height_from"] == "own"


async def test_with_a_chain_of_its_own_the_gateway_cannot_talk_a_node_out_of_a_win(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path, chain=FakeChain(term=4)) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        assert all(url.startswith("https://chain-") for url in node.validators.got), "the registry's addresses"
        node.bidder.on_outcome(outcome(given, "lost"))
        await until(lambda: node.bidder.held() == [(key_of(given)[0], 4)])


async def test_nor_into_one(tmp_path: Path) -> None:
    given = lookup()
    async with bidding(tmp_path, chain=FakeChain(term=None)) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        node.bidder.on_outcome(outcome(given, "won"))
        await turns()
        assert node.bidder.held() == []


async def test_status_is_ready_for_json(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(lookup())
        await node.until_committed(lookup())
        status = msgspec.json.decode(msgspec.json.encode(node.bidder.status()))
    assert (status["provider"], status["height"], status["height_from"]) == (PROVIDER, 50, "gateway")
    assert (status["bids"][0]["state"], status["bids"][0]["price_uusd"]) == ("sent", 250_000)
    assert status["counts"] == {"bid": 1}


async def test_a_gateway_cannot_make_a_node_commit_twice(tmp_path: Path) -> None:
    """It says that the bid has lost, waits until the node was restarted and has other prices, and asks again."""
    given = lookup()
    async with bidding(tmp_path) as node:
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        node.bidder.on_outcome(outcome(given, "lost"))
        await until(lambda: node.store.read_all(unix_s=NOW_UNIX_S) == [])
    async with bidding(tmp_path) as again:
        again.rules = LeaseRules(prices=(LeasePrice(1, 123_456),))
        again.bidder.on_lookup(given)
        other = lookup(nonce=1)
        again.bidder.on_lookup(other)
        await again.until_committed(other)
        assert again.committed() == {key_of(other)[0]}


async def test_more_bids_than_can_be_noted_are_declined(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        node.bidder._bids_left, node.bidder._bids_left_at_s = 1.0, node.bidder.clock.now_s()
        for nonce in range(2):
            node.bidder.on_lookup(lookup(nonce=nonce))
        await until(node.validators.declines)
        assert node.validators.declines()[0].decline.code == DeclineReason.BUSY
        await until(lambda: len(node.committed()) == 1)
        assert node.reserved_gpus() == 1


async def test_with_a_wallet_of_its_own_a_node_bids_for_that_alone(tmp_path: Path) -> None:
    async with bidding(tmp_path) as node:
        node.bidder.wallet = lambda: "0x" + "1" * 40
        node.bidder.on_lookup(lookup())
        await until(lambda: node.bidder.counts["false"] == 1)
        node.bidder.wallet = lambda: "0x" + PROVIDER[2:].upper()
        node.bidder.on_lookup(lookup())
        await node.until_committed(lookup())


async def test_an_outcome_that_is_told_before_the_bid_is_on_its_way_counts(tmp_path: Path) -> None:
    class SlowChain(FakeChain):
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def validator_urls(self, vote_keys: Any, facts: object) -> dict[str, str]:
            self.is_asked.set()
            await self.may_answer.wait()
            return await super().validator_urls(vote_keys, facts)

    chain, given = SlowChain(), lookup()
    async with bidding(tmp_path, chain=chain) as node:
        node.bidder.on_lookup(given)
        await until(chain.is_asked.is_set)
        node.bidder.on_outcome(outcome(given, "lost"))
        await until(lambda: node.bidder.counts["lost"] == 1)
        chain.may_answer.set()
        await until(lambda: node.reserved_gpus() == 0)


async def test_a_disk_that_fails_at_the_end_ends_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    async with bidding(tmp_path) as node:
        given, other = lookup(), lookup(nonce=1)
        node.bidder.on_lookup(given)
        await node.until_committed(given)
        monkeypatch.setattr(node.store, "write_receipts", full)
        node.bidder.on_outcome(outcome(given, "lost"))
        await until(lambda: not node.bidder._runs and node.reserved_gpus() == 0)
        node.bidder.on_lookup(other)
        await node.until_committed(other)


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing is tested elsewhere; here it would only cost time, as would a bid that nobody acknowledges."""
    monkeypatch.setattr("sparewatt.machine.data_dir.os.fsync", lambda _: None)
    monkeypatch.setattr(bid_run, "GRACE_MS", -150)
