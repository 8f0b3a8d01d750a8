"""One bid on its way: it is revealed after a quorum has closed, and no validator can hurry or delay it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.market.match.model import BidderContext, BidState
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.node.leases import bid_run
from sparewatt.node.leases.bid_run import BidRun
from sparewatt.protocol.contracts.match import Bid, BidCommit
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedCommit
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import message_digest, struct_hash
from tests.unit.node.leases.lease_world import (
    DOMAIN,
    NODE_KEY,
    PROVIDER,
    VOTE_KEYS,
    FakeValidators,
    document,
    lookup,
    revealed,
    sealed,
    specification,
    url_of,
)
from tests.unit.node.leases.test_bid_store import stored
from tests.waiting import until

ORDER = bytes.fromhex(lookup().order_id[2:])
TERMS = stored().bid_terms()
BID = Bid(ORDER, 0, PROVIDER, 250_000, struct_hash(TERMS), b"\x5a" * 32)
COMMIT = BidCommit(ORDER, 0, PROVIDER, struct_hash(BID))
SIGNED = SignedCommit(COMMIT, NODE_KEY.sign(message_digest(DOMAIN, COMMIT)))
BODY = RevealedBid(BID, TERMS, specification())
WEIGHTS: dict[str, int] = {key.address: 100 for key in VOTE_KEYS}


@asynccontextmanager
async def running(validators: FakeValidators, *, windows_ms: int = 1_200) -> AsyncIterator[BidRun]:
    context = BidderContext(domain=DOMAIN, order_id=ORDER, attempt=0, weights=WEIGHTS)
    run = BidRun(
        match=ProviderMatch(context, BODY, SIGNED, resend_ms=30),
        order_id=lookup().order_id,
        attempt=0,
        weights=WEIGHTS,
        urls={key.address: url_of(key) for key in VOTE_KEYS},
        windows_ms=windows_ms,
        calls=validators,
        clock=SystemClock(),
    )
    task = asyncio.create_task(run.run(within_s=20))
    try:
        yield run
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_bid_goes_from_commit_to_acknowledged() -> None:
    validators = FakeValidators()
    async with running(validators) as run:
        await until(lambda: {url for url, got in validators.got.items() if SIGNED in got} == set(run.urls.values()))
        for key in VOTE_KEYS[:2]:
            validators.publish(key, sealed(key, ORDER, [SIGNED]))
        await until(lambda: run.match.state is BidState.COMMITTED)
        assert validators.reveals() == [], "two of four have closed: no quorum"
        validators.publish(VOTE_KEYS[2], sealed(VOTE_KEYS[2], ORDER, [SIGNED]))
        await until(lambda: {url for url, got in validators.got.items() if BODY in got} == set(run.urls.values()))
        assert run.match.state is BidState.CERTIFIED
        for key in VOTE_KEYS[:2]:
            validators.publish(key, revealed(key, ORDER, [BODY]))
        await until(lambda: run.match.state is BidState.REVEALED)
        assert len(run.receipts()) == 5
        run.settle(0)


async def test_one_validator_may_bring_the_lists_of_all() -> None:
    validators = FakeValidators()
    async with running(validators):
        lists = [sealed(key, ORDER, [SIGNED]) for key in VOTE_KEYS[:3]]
        validators.publish(VOTE_KEYS[3], *lists)
        await until(validators.reveals)


async def test_forged_lists_do_not_make_it_reveal() -> None:
    """A validator that could see prices early would sell them: so it plays the others."""
    validators, liar = FakeValidators(), VOTE_KEYS[3]
    async with running(validators) as run:
        forged = [sealed(liar, ORDER, [SIGNED])]
        for key in VOTE_KEYS[:3]:
            true = sealed(key, ORDER, [SIGNED])
            forged.append(replace(true, signature=forged[0].signature))
            forged.append(sealed(key, bytes(32), [SIGNED]))
            forged.append(sealed(key, ORDER, [SIGNED], attempt=1))
        validators.publish(liar, *forged)
        await until(lambda: len(run.receipts()) == 1)
        await until(lambda: len(validators.commits()) > 12)
        assert validators.reveals() == []


async def test_a_true_list_counts_after_a_false_one_with_its_signature() -> None:
    validators, liar = FakeValidators(), VOTE_KEYS[3]
    async with running(validators):
        for key in VOTE_KEYS[:3]:
            true = sealed(key, ORDER, [SIGNED])
            validators.publish(liar, replace(sealed(key, ORDER, []), signature=true.signature))
            validators.publish(liar, true)
        await until(validators.reveals)


async def test_silent_and_hanging_validators_delay_nobody() -> None:
    validators = FakeValidators()
    validators.hanging.add(url_of(VOTE_KEYS[3]))
    async with running(validators) as run:
        for key in VOTE_KEYS[:3]:
            validators.publish(key, sealed(key, ORDER, [SIGNED]))
        await until(lambda: len({url for url, got in validators.got.items() if BODY in got}) == 3)
        validators.silent.update(run.urls.values())
        await until(lambda: run.troubles)
        assert "refuses connections" in next(iter(run.troubles.values()))


async def test_garbage_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bid_run, "LISTS_READ_MAX", 20)
    validators, liar = FakeValidators(), VOTE_KEYS[3]
    async with running(validators) as run:
        garbage = document(sealed(liar, ORDER, []))
        validators.lists[url_of(liar)] = [garbage | {"signature": "0x" + f"{number:0130x}"} for number in range(200)]
        validators.publish(liar)
        for key in VOTE_KEYS[:3]:
            validators.publish(key, sealed(key, ORDER, [SIGNED]))
        await until(validators.reveals)
        assert len(run._seen) < 40


async def test_nonsense_from_a_validator_is_passed_over() -> None:
    validators, liar = FakeValidators(), VOTE_KEYS[0]
    async with running(validators):
        validators.lists[url_of(liar)] = [{"type": "commit_list"}, {"type": "commit_list", "list": 7, "more": []}]
        for key in VOTE_KEYS[1:]:
            validators.publish(key, sealed(key, ORDER, [SIGNED]))
        await until(validators.reveals)


async def test_a_validator_that_has_not_seen_the_order_is_asked_again() -> None:
    validators = FakeValidators()
    url = url_of(VOTE_KEYS[0])
    validators.codes[url] = MessageRefusal.WRONG_ORDER_OR_ATTEMPT
    async with running(validators) as run:
        await until(lambda: len(validators.got[url]) > 2)
        assert run.refusals == {VOTE_KEYS[0].address: MessageRefusal.WRONG_ORDER_OR_ATTEMPT}
        del validators.codes[url]
        await until(lambda: not run.refusals)


async def test_an_order_of_long_ago_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bid_run, "GRACE_MS", 50)
    validators = FakeValidators()
    for key in VOTE_KEYS[:2]:
        validators.codes[url_of(key)] = MessageRefusal.WRONG_ORDER_OR_ATTEMPT
    async with running(validators, windows_ms=50) as run:
        await until(lambda: run.is_given_up)
        assert validators.reveals() == []


async def test_a_bid_that_some_refuse_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bid_run, "GRACE_MS", 10)
    validators = FakeValidators()
    validators.codes[url_of(VOTE_KEYS[0])] = MessageRefusal.UNBONDED
    async with running(validators, windows_ms=10) as run:
        await until(lambda: len(validators.got[url_of(VOTE_KEYS[1])]) > 4)
        assert not run.is_given_up


async def test_whoever_says_that_it_lost_it_is_revealed() -> None:
    """A commit that a quorum has listed and that is never revealed costs the bid bond: a gateway's lie must not."""
    validators = FakeValidators()
    async with running(validators) as run:
        await until(lambda: len(validators.commits()) >= 4)
        run.settle(None)
        for key in VOTE_KEYS[:3]:
            validators.publish(key, sealed(key, ORDER, [SIGNED]))
        await until(lambda: len({url for url, got in validators.got.items() if BODY in got}) == 4)
        assert run.match.state is BidState.CERTIFIED
        for key in VOTE_KEYS[:2]:
            validators.publish(key, revealed(key, ORDER, [BODY]))
        await until(lambda: run.match.state is BidState.LOST)


async def test_a_bid_that_nobody_acknowledges_ends_after_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bid_run, "GRACE_MS", 50)
    async with running(FakeValidators(), windows_ms=50) as run:
        run.settle(1)
        await until(lambda: run.match.state is BidState.STANDBY)
        assert not run.is_given_up
