"""Builds orders, bids and certificates as honest parties make them. Tests change single parts of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sparewatt.core.rng import seeded
from sparewatt.market.rule import BidBook, awards_of, book_of, commit_of, leaf_of, task_of
from sparewatt.protocol.contracts.match import Bid, CertificateRecord, OrderTerms, Task, Vote
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.machine import now
from tests.evm.network import USD, Network, Provider, Validator, key
from tests.order_terms import order_terms

RENTER = key(1)
STRANGER = key(61).address


@dataclass
class Order:
    """An order on chain, with its auction and its certificate."""

    network: Network
    order_id: bytes
    policy: OrderTerms
    renter: SigningKey
    stake_version: int
    attempt: int = 0

    def bid(self, provider: Provider, price_uusd: int, *, salt: bytes | None = None) -> Bid:
        return Bid(
            order_id=self.order_id,
            attempt=self.attempt,
            provider=provider.address,
            price_uusd=price_uusd,
            terms_hash=b"\2" * 32,
            salt=salt or seeded(price_uusd).randbytes(32),
        )

    def book(self, prices: dict[int, int]) -> BidBook:
        """`prices` maps a provider's index in the network to its price."""
        leaves = []
        for number, price in prices.items():
            provider = self.network.providers[number]
            profile = next(p for p in self.network.profiles if p.provider == provider.address)
            leaves.append(leaf_of(self.policy, self.bid(provider, price), profile))
        return book_of(self.order_id, leaves)

    def task(self, book: BidBook) -> Task:
        assert self.network.snapshot is not None
        return task_of(
            book,
            attempt=self.attempt,
            policy_hash=struct_hash(self.policy),
            snapshot_epoch=self.network.epoch,
            snapshot_root=self.network.snapshot.root,
            stake_version=self.stake_version,
        )

    def candidates(self, book: BidBook) -> list[tuple[Any, ...]]:
        """Leaf, path and signed commit of each candidate."""
        shown = []
        for index in book.ranking[:3]:
            leaf = book.leaves[index]
            provider = next(p for p in self.network.providers if p.address == leaf.provider)
            bid = Bid(self.order_id, self.attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)
            signature = self.network.signed(provider.node_key, self.network.tasks, commit_of(bid))
            shown.append((leaf.values(), book.tree.path(index), signature))
        return shown

    def votes(self, task: Task, *, round_: int = 0, voters: list[Validator] | None = None) -> list[tuple[bytes, int]]:
        vote = Vote(task.order_id, task.attempt, round_, struct_hash(task))
        return self.network.votes(vote, voters=voters)

    def certificate(self, book: BidBook, *, voters: list[Validator] | None = None) -> tuple[Any, ...]:
        """The arguments of accept_match."""
        task = self.task(book)
        votes = self.votes(task, voters=voters)
        return task.values(), 0, self.policy.values(), self.candidates(book), votes

    def record(self, book: BidBook) -> CertificateRecord:
        return CertificateRecord(struct_hash(self.task(book)), 0, awards_of(self.policy, book))

    def match(self, prices: dict[int, int]) -> BidBook:
        book = self.book(prices)
        self.network.tasks.accept_match(*self.certificate(book))
        return book

    @property
    def lease(self) -> dict[str, Any]:
        names = (
            "provider state position pause_reason resumed term confirm_by running_since paused_at notice_at"
            " vacated_at rate max_rate locked duration_left reclaim grace start standin down"
        )
        return dict(zip(names.split(), self.network.orders.lease_of(self.order_id), strict=True))

    @property
    def state(self) -> int:
        state: int = self.network.orders.order_of(self.order_id)[1]
        return state

    @property
    def provider(self) -> Provider:
        """The provider of the lease."""
        return next(p for p in self.network.providers if p.address == self.lease["provider"])

    def started(self, prices: dict[int, int]) -> BidBook:
        book = self.match(prices)
        self.confirm()
        return book

    def confirm(self) -> None:
        self.network.orders.confirm_start(self.order_id, b"\5" * 32, who=self.provider.node_key.address)

    def hand_over(
        self,
        book: BidBook,
        reason: int,
        *,
        who: str = STRANGER,
        down_since: int = 0,
        votes: Iterable[tuple[bytes, int]] = (),
        signature: bytes = bytes(65),
        record: CertificateRecord | None = None,
    ) -> None:
        shown = (record or self.record(book)).values()
        self.network.moves.hand_over(self.order_id, shown, reason, down_since, list(votes), signature, who=who)

    def take_over(self, book: BidBook, position: int, *, who: str | None = None, signature: bytes = bytes(65)) -> None:
        """The stand-in at this position claims the vacant lease, by itself unless told otherwise."""
        record = self.record(book)
        claimant = who or record.chosen[position].provider
        self.network.moves.take_over(self.order_id, record.values(), position, signature, who=claimant)

    @property
    def bid_bond(self) -> int:
        return max(1, self.policy.max_price_uusd * 600 // 3600)


def place_order(
    network: Network, *, deposit: int = 10 * USD, max_attempts: int = 2, renter: SigningKey = RENTER, **changes: Any
) -> Order:
    policy = order_terms(**changes)
    network.fund(renter.address, 10**12)
    arguments = (policy.values(), b"\3" * 32, deposit, now() + 86_400, max_attempts)
    order_id = network.orders.create_order(*arguments, who=renter.address)
    return Order(network, order_id, policy, renter, stake_version=network.stakes.version())
