"""An order, the market's facts, and validators in memory: what a node that bids sees of the world."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import msgspec

from sparewatt.core.rng import seeded
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import MachineFacts
from sparewatt.protocol.api.validators import HeartbeatReply, HeartbeatRequest, MatchProgress, MessageReply
from sparewatt.protocol.contracts.match import CommitList, OrderTerms, RevealList, Specification, order_id_of
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    encode_message,
)
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.link.lease_frames import LeaseLookup, MarketFacts, ValidatorPeer
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import contract_domain, message_digest, struct_hash

CHAIN_ID = 31337
NOW_UNIX_S = 1_000_000.0
"""Long ago: what a test reads must not make the store forget."""
ORDERS, TASKS, STAKES = ("0x" + digit * 40 for digit in "abc")
PROVIDER, RENTER = "0x" + "d" * 40, "0x" + "e" * 40
NODE_KEY = SigningKey.generate(rng=seeded(7))
VOTE_KEYS = [SigningKey.generate(rng=seeded(100 + number)) for number in range(4)]
DOMAIN = contract_domain(chain_id=CHAIN_ID, contract=TASKS)
CONTENT = '{"command":["serve"],"image":"docker.io/library/nginx:1"}'
MACHINE = MachineFacts(
    measured=LeaseCapacity(gpus=2, cpu_milli=8_000, memory_mib=64_000, disk_mib=400_000),
    hourly_uusd=500_000,
    gpu_model=44,
    vram_gb=24,
)


def url_of(key: SigningKey) -> str:
    return f"https://v{key.address[2:8]}.example"


def policy(**changes: Any) -> OrderTerms:
    given: dict[str, Any] = dict.fromkeys((field.name for field in fields(OrderTerms)), 0)
    given |= {"gpu_units": 1, "max_price_uusd": 2_000_000, "commit_ms": 100, "reveal_ms": 100, "start_s": 30}
    given |= {"standin_s": 10, "down_s": 10, "reclaim_s": 600, "empty_grace_s": 600, "duration_s": 3_600}
    given |= {"rtt_row": bytes(32), "only": (), "ignore": ()}
    return OrderTerms(**(given | changes))


def specification(content: str = CONTENT, **changes: Any) -> Specification:
    given: dict[str, Any] = {"gpus": 1, "cpu_milli": 2_000, "memory_mib": 4_096, "disk_mib": 10_240, "egress": 1}
    return Specification(content_hash=keccak256(content.encode()), **(given | {"secrets": 0} | changes))


def lookup(
    terms: OrderTerms | None = None, spec: Specification | None = None, *, nonce: int = 0, **changes: Any
) -> LeaseLookup:
    terms, spec = terms or policy(), spec or specification(changes.get("content", CONTENT))
    order_id = order_id_of(
        chain_id=CHAIN_ID,
        orders=ORDERS,
        renter=RENTER,
        renter_nonce=nonce,
        policy_hash=struct_hash(terms),
        spec_hash=struct_hash(spec),
    )
    made = LeaseLookup(
        order_id="0x" + order_id.hex(),
        attempt=0,
        renter=RENTER,
        renter_nonce=nonce,
        policy=write_message(terms),
        specification=write_message(spec),
        content=CONTENT,
        stake_version=3,
        weights={key.address: 100 for key in VOTE_KEYS},
        opened_at=1_000,
        block_number=50,
    )
    return msgspec.structs.replace(made, **changes)


def market(**changes: Any) -> MarketFacts:
    facts = MarketFacts(
        chain_id=CHAIN_ID,
        task_manager=TASKS,
        deployment_order=ORDERS,
        stake_registry=STAKES,
        provider=PROVIDER,
        stake_version=3,
        validators=tuple(ValidatorPeer(key.address, url_of(key), 100) for key in VOTE_KEYS),
        beat_ms=2_000,
        attempt_s=60,
        block_number=50,
    )
    return msgspec.structs.replace(facts, **changes)


def sealed(key: SigningKey, order_id: bytes, commits: Iterable[SignedCommit], *, attempt: int = 0) -> SignedCommitList:
    commits = sorted(commits, key=lambda each: each.commit.bid_id)
    listed = CommitList(order_id, attempt, tuple(each.commit.bid_id for each in commits))
    return SignedCommitList(listed, key.sign(message_digest(DOMAIN, listed)), tuple(commits))


def revealed(key: SigningKey, order_id: bytes, bids: Iterable[RevealedBid], *, attempt: int = 0) -> SignedRevealList:
    bids = sorted(bids, key=lambda each: struct_hash(each.bid))
    listed = RevealList(order_id, attempt, tuple(struct_hash(each.bid) for each in bids))
    return SignedRevealList(listed, key.sign(message_digest(DOMAIN, listed)), tuple(bids), ())


def document(message: MatchMessage) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(encode_message(message))
    return found


class FakeValidators:
    """Implements ValidatorCalls. Records what it gets, and answers what a test sets."""

    def __init__(self) -> None:
        self.got: dict[str, list[MatchMessage]] = defaultdict(list)
        self.lists: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.codes: dict[str, int] = {}
        self.silent: set[str] = set()
        self.hanging: set[str] = set()
        self.beats: dict[str, list[HeartbeatRequest]] = defaultdict(list)
        self.beat_replies: dict[str, list[HeartbeatReply]] = defaultdict(list)
        self.changed = asyncio.Event()

    def all_of(self, kind: type[MatchMessage]) -> list[Any]:
        return [message for messages in self.got.values() for message in messages if isinstance(message, kind)]

    def commits(self) -> list[SignedCommit]:
        return self.all_of(SignedCommit)

    def reveals(self) -> list[RevealedBid]:
        return self.all_of(RevealedBid)

    def declines(self) -> list[SignedDecline]:
        return self.all_of(SignedDecline)

    def publish(self, key: SigningKey, *messages: MatchMessage) -> None:
        self.lists[url_of(key)] += [document(message) for message in messages]
        self.changed.set()
        self.changed = asyncio.Event()

    async def send(self, url: str, message: MatchMessage) -> MessageReply:
        await self._answer(url)
        self.got[url].append(message)
        return MessageReply(code=self.codes.get(url, 0))

    async def progress(self, url: str, order_id: str, attempt: int, *, have: int) -> MatchProgress:
        await self._answer(url)
        while len(self.lists[url]) <= have:
            await self.changed.wait()
        return MatchProgress(
            order_id=order_id,
            attempt=attempt,
            version=len(self.lists[url]),
            run_id="run",
            phase="commit",
            round=0,
            commit_lists=self._untyped(url, "commit_list"),
            reveal_lists=self._untyped(url, "reveal_list"),
        )

    def _untyped(self, url: str, kind: str) -> list[dict[str, Any]]:
        """A validator's progress names lists by their place, not by a type."""
        named = [dict(each) for each in self.lists[url] if each["type"] == kind]
        return [{name: value for name, value in each.items() if name != "type"} for each in named]

    async def beat(self, url: str, request: HeartbeatRequest) -> HeartbeatReply:
        await self._answer(url)
        self.beats[url].append(request)
        given = self.beat_replies[url]
        return given.pop(0) if given else HeartbeatReply(challenge="0x" + keccak256(url.encode()).hex())

    async def _answer(self, url: str) -> None:
        if url in self.silent:
            raise NoAnswer("it refuses connections")
        if url in self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
