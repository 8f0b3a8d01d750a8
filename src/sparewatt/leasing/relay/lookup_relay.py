"""Sends lookups, outcomes and the market's facts over node links, each lookup once.

A node keeps a link to every process of a gateway, so one process speaks for each node: the first of those that are up
and have a link to it. What another process sent before it died is sent again; a node ignores repeats. Which node is
which provider is read from the chain, where the node's key consented: a node cannot claim to be another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import LINK_CONTROL_BYTES_MAX
from sparewatt.core.log import Logger
from sparewatt.leasing.relay.candidates import asked_providers
from sparewatt.leasing.relay.lookups import (
    NONCES_TRIED_MAX,
    MarketAddresses,
    OrderedContent,
    ended_lease,
    facts_of,
    find_renter_nonce,
    held_leases,
    holder_of,
    is_content_of,
    is_open,
    lookup_of,
    outcome_of,
)
from sparewatt.market.chain_records import MarketState, OrderRecord, OrderState
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.link.lease_frames import HeldLease, LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask

_log = Logger("sparewatt.leasing")
BLOCK_TELL_S = 1.0
"""Between two facts that differ in the block number only, while an attempt is open or a lease held."""
SCAN_S = 5.0
"""Between two looks for nodes whose owners began to offer leases."""
OPEN_MAX = 256
"""Attempts that are relayed at once. One more is left to other gateways, and to the next attempt."""
HOLDERS_KEPT = 10_000
NONCE_HINTS_MAX = 10_000
NEAR_NONCES = 64
"""Tried at once; a longer search runs in a thread."""

ContentSource = Callable[[str, str], Awaitable[OrderedContent | None]]
"""What an order's specification hash stands for in orders of this renter; None for an order that was made elsewhere."""


class MarketLink(Protocol):
    """A node's link. Implemented by NodeLink."""

    def send_market(self, facts: MarketFacts) -> None: ...

    def send_lookup(self, lookup: LeaseLookup) -> None: ...

    def send_outcome(self, outcome: LeaseOutcome) -> None: ...

    def send_task(self, task: LeaseTask) -> None: ...


@dataclass(slots=True)
class RelayedAttempt:
    """One attempt that this process has the content of."""

    lookup: LeaseLookup
    providers: Mapping[str, str]
    """Of those that are asked, by node key."""
    told: dict[str, MarketLink] = field(default_factory=dict)
    """By node: the link over which it was told. A new link is told again."""


@dataclass(slots=True, kw_only=True, eq=False)
class LookupRelay:
    links: Mapping[NodeId, MarketLink]
    links_version: Callable[[], int]
    """Another number whenever a link came or went."""
    offers_leases: Callable[[NodeId], bool]
    """Whether the node's specs carry an offer: only such a node knows the frames."""
    speaks_for: Callable[[NodeId], bool]
    """Whether this process is the one that tells the node."""
    content_of: ContentSource
    beat_ms: int
    clock: Clock
    attempts: dict[str, RelayedAttempt] = field(default_factory=dict, init=False)
    """By order."""
    asked_counts: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    """By order and attempt: how many nodes were told here."""
    _unrelayed: set[tuple[str, int]] = field(default_factory=set, init=False)
    """Open attempts that are not relayed, so that they are tried once."""
    _holders: dict[str, str] = field(default_factory=dict, init=False)
    """By order: the provider that has its lease."""
    _providers: dict[str, str] = field(default_factory=dict, init=False)
    """By node key."""
    _held: dict[str, tuple[HeldLease, ...]] = field(default_factory=dict, init=False)
    _nonces: dict[str, int] = field(default_factory=dict, init=False)
    """By renter: the number after the last order that was found."""
    _facts: dict[NodeId, tuple[MarketLink, MarketFacts]] = field(default_factory=dict, init=False)
    """What each node was told last, and over which link."""
    _told_block_s: float = field(default=0.0, init=False)
    _scanned: tuple[int, int] = field(default=(-1, -1), init=False)
    _scan_at_s: float = field(default=0.0, init=False)
    _version: int = field(default=-1, init=False)
    """Of the market, as far as it was acted on."""

    @property
    def has_open(self) -> bool:
        return bool(self.attempts)

    async def follow(
        self,
        view: ChainView,
        changed: Collection[str] | None,
        addresses: MarketAddresses,
        *,
        version: int,
        attempt_s: int,
    ) -> None:
        """Act on what changed. `changed`: orders that events spoke of; None: all may have. `version`: the market's."""
        state, block = view.latest, view.latest_block
        if version != self._version:
            self._version = version
            self._providers = {each.node_key: each.provider for each in state.providers.values() if each.node_key}
            orders = list(state.orders) if changed is None else list(changed)
            self._end_attempts(state, block)
            for order_id in orders:
                self._note_holder(state, order_id, block)
                await self._begin(state, order_id, block, addresses)
            self._held = held_leases(state, self._holders)
        self.tick(view, addresses, attempt_s=attempt_s)

    def tick(self, view: ChainView, addresses: MarketAddresses, *, attempt_s: int) -> None:
        """Tell nodes that came, or that this process speaks for since another one died."""
        for attempt in self.attempts.values():
            self._tell(attempt)
        self._tell_facts(view, addresses, attempt_s=attempt_s)

    # lookups

    async def _begin(self, state: MarketState, order_id: str, block: int, addresses: MarketAddresses) -> None:
        order = state.orders.get(order_id)
        if order is None or order.state is not OrderState.OPEN:
            return
        known, key = self.attempts.get(order_id), (order_id, order.attempt)
        if (known is not None and known.lookup.attempt == order.attempt) or key in self._unrelayed:
            return
        attempt = await self._attempt_of(state, order, block, addresses) if len(self.attempts) < OPEN_MAX else None
        if attempt is None:
            self._unrelayed.add(key)
            return
        self.attempts[order_id] = attempt
        self._tell(attempt)
        if attempt.told:
            _log.info("lookup_relayed", order=order_id, attempt=order.attempt, nodes=len(attempt.told))

    async def _attempt_of(
        self, state: MarketState, order: OrderRecord, block: int, addresses: MarketAddresses
    ) -> RelayedAttempt | None:
        ordered = await self.content_of(order.spec_hash, order.renter)
        if ordered is None:
            return None
        if not is_content_of(order, ordered):
            _log.warning("lookup_not_relayed", order=order.order_id, why="the content is not what was ordered")
            return None
        nonce = await self.renter_nonce(order, addresses)
        if nonce is None:
            _log.warning("lookup_not_relayed", order=order.order_id, why="the renter's number of it was not found")
            return None
        lookup = lookup_of(state, order, ordered, renter_nonce=nonce, block_number=block)
        if len(msgspec.json.encode(lookup)) > LINK_CONTROL_BYTES_MAX:
            _log.warning("lookup_not_relayed", order=order.order_id, why="it does not fit into a frame")
            return None
        asked = asked_providers(state, order.order_id)
        return RelayedAttempt(lookup, {node_key: each.provider for node_key, each in asked.items()})

    async def renter_nonce(self, order: OrderRecord, addresses: MarketAddresses) -> int | None:
        hint = self._nonces.get(order.renter, 0)
        start = max(0, hint - NEAR_NONCES // 2)
        nonce = find_renter_nonce(order, addresses, start=start, tries=NEAR_NONCES)
        if nonce is None:
            nonce = await asyncio.to_thread(find_renter_nonce, order, addresses, start=0, tries=NONCES_TRIED_MAX)
        if nonce is not None:
            self._nonces.pop(order.renter, None)
            self._nonces[order.renter] = nonce + 1
            if len(self._nonces) > NONCE_HINTS_MAX:
                del self._nonces[next(iter(self._nonces))]
        return nonce

    def _tell(self, attempt: RelayedAttempt) -> None:
        for node_key in attempt.providers:
            link = self.link_of(NodeId(node_key))
            if link is not None and attempt.told.get(node_key) is not link:
                attempt.told[node_key] = link
                link.send_lookup(attempt.lookup)
        self.asked_counts[attempt.lookup.order_id, attempt.lookup.attempt] = len(attempt.told)
        if len(self.asked_counts) > 2 * OPEN_MAX:
            del self.asked_counts[next(iter(self.asked_counts))]

    def link_of(self, node_id: NodeId) -> MarketLink | None:
        """Its link, if the node knows the frames and this process speaks for it."""
        link = self.links.get(node_id)
        return link if link is not None and self.offers_leases(node_id) and self.speaks_for(node_id) else None

    # outcomes

    def _end_attempts(self, state: MarketState, block: int) -> None:
        for order_id, relayed in list(self.attempts.items()):
            number = relayed.lookup.attempt
            if is_open(state, order_id, number):
                continue
            del self.attempts[order_id]
            for node_key, provider in relayed.providers.items():
                link = self.link_of(NodeId(node_key))
                if link is not None:
                    link.send_outcome(outcome_of(state, order_id, number, provider=provider, block_number=block))
        self._unrelayed = {key for key in self._unrelayed if is_open(state, *key)}

    def _note_holder(self, state: MarketState, order_id: str, block: int) -> None:
        """Whoever had the lease and has it no more is told so."""
        before, holder = self._holders.get(order_id), holder_of(state, order_id)
        if holder is None:
            self._holders.pop(order_id, None)
        else:
            self._holders[order_id] = holder
            if len(self._holders) > HOLDERS_KEPT:
                del self._holders[next(iter(self._holders))]
        record = state.providers.get(before) if before is not None and before != holder else None
        link = self.link_of(NodeId(record.node_key)) if record is not None and record.node_key is not None else None
        if link is not None:
            link.send_outcome(ended_lease(state, order_id, block_number=block))

    # facts

    def _tell_facts(self, view: ChainView, addresses: MarketAddresses, *, attempt_s: int) -> None:
        """To every node that offers leases: what changed, and the block number from time to time."""
        now_s, seen = self.clock.now_s(), (self.links_version(), self._version)
        is_new = seen != self._scanned or now_s >= self._scan_at_s
        is_block_due = bool(self.attempts or self._held) and now_s - self._told_block_s >= BLOCK_TELL_S
        if not is_new and not is_block_due:
            return
        if is_block_due:
            self._told_block_s = now_s
        self._scanned, self._scan_at_s = seen, now_s + SCAN_S
        common = facts_of(
            view.latest, addresses, beat_ms=self.beat_ms, attempt_s=attempt_s, block_number=view.latest_block
        )
        told = self._facts
        self._facts = {}
        for node_id in self.links:
            link = self.link_of(node_id)
            if link is None:
                continue
            provider = self._providers.get(node_id)
            held = self._held.get(provider, ()) if provider is not None else None
            facts = msgspec.structs.replace(common, provider=provider, held=held)
            before = told.get(node_id)
            if before is None or before[0] is not link or _differs(before[1], facts, with_block=is_block_due):
                link.send_market(facts)
                before = (link, facts)
            self._facts[node_id] = before


def _differs(before: MarketFacts, facts: MarketFacts, *, with_block: bool) -> bool:
    if with_block:
        return before != facts
    return msgspec.structs.replace(before, block_number=facts.block_number) != facts
