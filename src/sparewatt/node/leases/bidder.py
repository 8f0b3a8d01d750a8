"""Bids on lookups, and keeps what is promised until the attempt or the lease ends: the node's side of the auction.

A lookup is checked, decided by the owner's rules, reserved, stored, and only then committed to. Losing costs nothing:
the reservation is freed. A node that wins keeps its reservation and says so in its heartbeats; what is to run there is
`placed`'s to carry out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.money import format_usd
from sparewatt.core.rng import Rng
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.market.match.model import BidderContext
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.node.leases.bid_run import BidRun
from sparewatt.node.leases.bid_store import BidStore, StoredBid
from sparewatt.node.leases.capacity import capacity_of, offered_capacity
from sparewatt.node.leases.chain_check import ChainCheck, ChainDiffers
from sparewatt.node.leases.lookup_check import CheckedLookup, FalseLookup, check_lookup
from sparewatt.node.leases.offer_rules import BidPlan, LeaseRules, MachineFacts, decide, standing_offer
from sparewatt.node.leases.reservations import BidKey, Reservations, ReservationState
from sparewatt.node.leases.validator_client import ValidatorCalls
from sparewatt.protocol.contracts.match import Bid, BidCommit, Decline
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedCommit, SignedDecline
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.reasons import DeclineReason
from sparewatt.protocol.link.lease_frames import LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_offer import LeaseOffer
from sparewatt.protocol.link.lease_tasks import LeaseTask
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest, struct_hash

_log = Logger("sparewatt.node")
WAITING_MAX = 128
"""Lookups, and outcomes, that wait. More are dropped: a flood costs bids, not memory."""
LOOKUPS_AT_ONCE_MAX = 16
"""Being considered; bids that run are bounded by reservations."""
DECLINES_AT_ONCE_MAX = 64
"""On their way to the validators; more are not sent, and the validators wait out their window."""
BIDS_PER_S, BIDS_AT_ONCE_MAX = 1.0, 128.0
"""In the long run, and in a burst: more are declined as busy."""
ORDERS_SEEN_MAX = 4_096
"""Whose highest attempt is known: a lookup for it or an earlier one is a replay."""
ANSWERS_KEPT = 10
"""The last ones that the owner is shown, with what became of them."""
SLACK_S = 30.0
"""After an attempt's time, and after a restart: for the outcome to arrive."""
CHAIN_CHECK_SHARE = 0.5
"""Of the commit window: so long may the owner's chain take to confirm an order."""
DECLINE_TRIES = 2
NANO_PER_MICRO = 1_000
PLACES = {"won": 0, "standby": 1}
_W = TypeVar("_W", LeaseLookup, LeaseOutcome)


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseBidder:
    """Implements MarketListener."""

    key: SigningKey
    store: BidStore
    calls: ValidatorCalls
    clock: Clock
    rng: Rng
    notify: Callable[[str], None]
    machine: Callable[[], MachineFacts]
    rules: Callable[[], LeaseRules]
    is_offering: Callable[[], bool]
    is_paused: Callable[[], bool]
    can_start: Callable[[], bool] = lambda: True
    """Whether this machine starts what it wins."""
    wallet: Callable[[], str | None] = lambda: None
    """The one provider that the owner allows; None: the one that the gateway names."""
    chain: ChainCheck | None = None
    """None: the gateway's word on the chain counts."""
    take_task: Callable[[LeaseTask], None] = lambda _task: None
    """Carries out leases that are placed; the bidder only hears of them."""
    facts: MarketFacts | None = field(init=False, default=None)
    counts: Counter[str] = field(init=False, default_factory=Counter)
    """What became of lookups, since the start: `bid`, `won`, `false`, or the name of a decline's reason."""
    ended: deque[dict[str, Any]] = field(init=False, default_factory=lambda: deque(maxlen=ANSWERS_KEPT))
    """Lookups that were declined and bids that were decided, since the start, the newest last. Ready for JSON."""
    reservations: Reservations = field(default_factory=Reservations)
    _bids: dict[BidKey, StoredBid] = field(init=False, default_factory=dict)
    _runs: dict[BidKey, BidRun] = field(init=False, default_factory=dict)
    _places: dict[BidKey, int | None] = field(init=False, default_factory=dict)
    """Of bids whose outcome was told before they were on their way."""
    _held_since_block: dict[BidKey, int] = field(init=False, default_factory=dict)
    _attempts_seen: OrderedDict[bytes, int] = field(init=False, default_factory=OrderedDict)
    _lookups: asyncio.Queue[LeaseLookup] = field(init=False, default_factory=lambda: asyncio.Queue(WAITING_MAX))
    _outcomes: asyncio.Queue[LeaseOutcome] = field(init=False, default_factory=lambda: asyncio.Queue(WAITING_MAX))
    _considering: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(LOOKUPS_AT_ONCE_MAX))
    _declines_on_the_way: int = field(init=False, default=0)
    _bids_left: float = field(init=False, default=BIDS_AT_ONCE_MAX)
    _bids_left_at_s: float = field(init=False, default=0.0)
    _disk: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _strange_leases: set[str] = field(init=False, default_factory=set)

    # what the gateway says

    def on_market(self, facts: MarketFacts) -> None:
        self.facts = facts
        if facts.held is not None:
            self._reconcile(facts, {held.order_id: held.term for held in facts.held})

    def on_lookup(self, lookup: LeaseLookup) -> None:
        self._enqueue(self._lookups, lookup)

    def on_outcome(self, outcome: LeaseOutcome) -> None:
        self._enqueue(self._outcomes, outcome)

    def on_task(self, task: LeaseTask) -> None:
        self.take_task(task)

    def _enqueue(self, queue: asyncio.Queue[_W], work: _W) -> None:
        try:
            queue.put_nowait(work)
        except asyncio.QueueFull:
            self.counts["dropped"] += 1

    # what others ask

    def offer(self) -> LeaseOffer:
        rules, machine = self.rules(), self.machine()
        whole = offered_capacity(machine.measured, wanted=rules.limits())
        return standing_offer(rules, machine, reserved=self.reservations.taken(whole))

    def held(self) -> list[tuple[bytes, int]]:
        """Leases that the node holds, and their terms."""
        return [
            (order_id, entry.term)
            for (order_id, _), entry in self.reservations.entries().items()
            if entry.state is ReservationState.HELD
        ]

    def height(self) -> int | None:
        if self.chain is not None:
            return self.chain.height
        return self.facts.block_number if self.facts is not None else None

    def status(self) -> dict[str, Any]:
        """Ready for JSON."""
        facts = self.facts
        return {
            "provider": facts.provider if facts else None,
            "chain_id": facts.chain_id if facts else None,
            "height": self.height(),
            "told_height": facts.block_number if facts else None,
            "height_from": "own" if self.chain is not None else "gateway",
            "chain_trouble": self.chain.trouble if self.chain is not None else None,
            "validators": len(facts.validators) if facts else 0,
            "offer": msgspec.to_builtins(self.offer()),
            "counts": dict(self.counts),
            "bids": [self._describe(bid) for bid in self._bids.values()],
            "ended": list(self.ended),
        }

    def _describe(self, bid: StoredBid) -> dict[str, Any]:
        run = self._runs.get(bid.key)
        return {
            "order": bid.lookup.order_id,
            "attempt": bid.lookup.attempt,
            "state": run.match.state.value if run is not None else bid.state.value,
            "price_uusd": bid.price_uusd,
            "pay_uusd": bid.pay_uusd,
            "renter": bid.lookup.renter,
            "refused": dict(run.refusals) if run is not None else {},
        }

    # the work

    async def restore(self) -> None:
        """What was promised before a restart counts again, at once."""
        for bid in await asyncio.to_thread(self.store.read_all, unix_s=self.clock.unix_s()):
            self._bids[bid.key] = bid
            self.reservations.restore(bid.key, capacity_of(bid.specification()), state=bid.state, term=bid.term)
            self._note_seen(*bid.key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for bid in list(self._bids.values()):
                if bid.state is ReservationState.BIDDING:
                    tasks.create_task(self._carry(bid))
            tasks.create_task(self._take_outcomes())
            while True:
                lookup = await self._lookups.get()
                await self._considering.acquire()
                tasks.create_task(self._consider(lookup, tasks))

    async def _take_outcomes(self) -> None:
        while True:
            outcome = await self._outcomes.get()
            try:
                await self._end(outcome)
            except (OSError, StartupError) as error:
                _log.warning("outcome_not_stored", order=outcome.order_id, why=str(error)[:200])

    async def _consider(self, lookup: LeaseLookup, tasks: asyncio.TaskGroup) -> None:
        answer: StoredBid | SignedDecline | None = None
        try:
            answer = await self._answer(lookup)
        except FalseLookup as false:
            self.counts["false"] += 1
            _log.warning("lookup_is_false", order=lookup.order_id, why=str(false))
        except ChainDiffers as differs:
            self.counts["differs"] += 1
            _log.warning("lookup_not_on_chain", order=lookup.order_id, why=str(differs))
        except (OSError, StartupError) as error:
            _log.warning("bid_not_stored", order=lookup.order_id, why=str(error)[:200])
        finally:
            self._considering.release()
        if isinstance(answer, StoredBid):
            tasks.create_task(self._carry(answer))
        elif answer is not None and self._declines_on_the_way < DECLINES_AT_ONCE_MAX:
            tasks.create_task(self._send_decline(answer, _urls(lookup, self.facts)))

    async def _answer(self, lookup: LeaseLookup) -> StoredBid | SignedDecline | None:
        """The bid, stored; or why there is none, signed. None: neither is asked for.

        Raises FalseLookup or ChainDiffers, and OSError or StartupError if it cannot be stored.
        """
        facts = self.facts
        wallet = self.wallet()
        if facts is None or facts.provider is None or not self.is_offering():
            self.counts["not_ready"] += 1
            return None
        if wallet is not None and wallet.lower() != facts.provider:
            raise FalseLookup("the gateway names another provider than the owner's wallet")
        checked = check_lookup(lookup, facts)
        if self._is_seen(checked) or not _is_asked(checked, facts.provider):
            return None
        if self.chain is not None:
            within_s = CHAIN_CHECK_SHARE * checked.terms.commit_ms / 1_000
            await self.chain.check_order(checked, facts, block=lookup.block_number, within_s=within_s)
            if self._is_seen(checked):
                return None
        self._note_seen(checked.order_id, checked.attempt)
        decision = self._decide(checked)
        if isinstance(decision, DeclineReason):
            self.counts[decision.name] += 1
            self._note_ended(lookup.order_id, checked.attempt, f"declined: {decision.name.lower()}")
            decline = Decline(checked.order_id, checked.attempt, facts.provider, int(decision))
            return SignedDecline(decline, self.key.sign(message_digest(_domain(facts), decline)))
        return await self._store(lookup, checked, facts, decision)

    def _decide(self, checked: CheckedLookup) -> BidPlan | DeclineReason:
        """Decides and reserves in one step, so that two lookups never get the same GPU."""
        if checked.order is None:
            return DeclineReason.OTHER
        rules, machine = self.rules(), self.machine()
        whole = offered_capacity(machine.measured, wanted=rules.limits())
        decision = decide(
            checked.order,
            rules=rules,
            machine=machine,
            reserved=self.reservations.taken(whole),
            is_paused=self.is_paused(),
            can_start=self.can_start(),
        )
        if isinstance(decision, DeclineReason):
            return decision
        if not self._may_bid():
            return DeclineReason.BUSY
        wanted = capacity_of(checked.specification)
        is_reserved = self.reservations.reserve((checked.order_id, checked.attempt), wanted, whole=whole)
        return decision if is_reserved else DeclineReason.BUSY

    def _may_bid(self) -> bool:
        """A token bucket: what is noted of each bid for days must not fill the disk."""
        now_s = self.clock.now_s()
        passed_s, self._bids_left_at_s = now_s - self._bids_left_at_s, now_s
        self._bids_left = min(BIDS_AT_ONCE_MAX, self._bids_left + passed_s * BIDS_PER_S)
        if self._bids_left < 1:
            return False
        self._bids_left -= 1
        return True

    async def _store(self, lookup: LeaseLookup, checked: CheckedLookup, facts: MarketFacts, plan: BidPlan) -> StoredBid:
        bid = StoredBid(
            lookup=lookup,
            facts=facts,
            price_uusd=plan.price_uusd,
            terms=write_message(plan.terms),
            salt="0x" + self.rng.randbytes(32).hex(),
            seen_unix_s=self.clock.unix_s(),
        )
        self._bids[bid.key] = bid
        try:
            async with self._disk:
                await asyncio.to_thread(self.store.write, bid)
        except BaseException:
            self._bids.pop(bid.key, None)
            self.reservations.free((checked.order_id, checked.attempt))
            raise
        self.counts["bid"] += 1
        return bid

    async def _carry(self, bid: StoredBid) -> None:
        """Carries a stored bid through its attempt; then it is held, or nothing is left of it."""
        urls = _urls(bid.lookup, bid.facts)
        if self.chain is not None:
            with suppress(ChainDiffers):
                urls = await self.chain.validator_urls(bid.lookup.weights, bid.facts)
        policy = bid.policy()
        run = self._runs[bid.key] = BidRun(
            match=self._match(bid),
            order_id=bid.lookup.order_id,
            attempt=bid.lookup.attempt,
            weights=bid.lookup.weights,
            urls=urls,
            windows_ms=policy.commit_ms + policy.reveal_ms,
            calls=self.calls,
            clock=self.clock,
        )
        if bid.key in self._places:
            run.settle(self._places.pop(bid.key))
        ends_unix_s = bid.seen_unix_s + bid.facts.attempt_s + SLACK_S
        try:
            await run.run(within_s=max(SLACK_S, min(ends_unix_s - self.clock.unix_s(), bid.facts.attempt_s + SLACK_S)))
        finally:
            self._runs.pop(bid.key, None)
        entry = self.reservations.get(bid.key)
        try:
            if entry is not None and entry.state is ReservationState.BIDDING:
                await self._drop_unless_placed(bid)
            async with self._disk:
                await asyncio.to_thread(self.store.write_receipts, bid.key, run.receipts())
        except (OSError, StartupError) as error:  # the next start reads what is there
            _log.warning("bid_not_put_away", order=bid.lookup.order_id, why=str(error)[:200])

    def _match(self, bid: StoredBid) -> ProviderMatch:
        (order_id, attempt), terms = bid.key, bid.bid_terms()
        domain = _domain(bid.facts)
        made = Bid(
            order_id=order_id,
            attempt=attempt,
            provider=bid.facts.provider or "",
            price_uusd=bid.price_uusd,
            terms_hash=struct_hash(terms),
            salt=bytes.fromhex(bid.salt[2:]),
        )
        commit = BidCommit(order_id, attempt, made.provider, struct_hash(made))
        signed = SignedCommit(commit, self.key.sign(message_digest(domain, commit)))
        weights = dict(bid.lookup.weights)
        context = BidderContext(domain=domain, order_id=order_id, attempt=attempt, weights=weights)
        return ProviderMatch(context, RevealedBid(made, terms, bid.specification()), signed)

    async def _send_decline(self, message: SignedDecline, urls: Mapping[str, str]) -> None:
        """To every validator: an early close counts on it, and the renter sees it."""

        async def tell(url: str) -> None:
            for _ in range(DECLINE_TRIES):
                with suppress(NoAnswer):
                    await self.calls.send(url, message)
                    return

        self._declines_on_the_way += 1
        try:
            await asyncio.gather(*(tell(url) for url in urls.values()))
        finally:
            self._declines_on_the_way -= 1

    # the end of an attempt, and of a lease

    async def _end(self, outcome: LeaseOutcome) -> None:
        key = (bytes.fromhex(outcome.order_id[2:]), outcome.attempt)
        entry, facts = self.reservations.get(key), self.facts
        match outcome.result:
            case "ended":
                for each, held in self.reservations.entries().items():
                    is_meant = each[0] == key[0] and held.state is ReservationState.HELD and held.term <= outcome.term
                    bid = self._bids.get(each)  # None: claimed as a stand-in, so its worker ends it
                    if is_meant and bid is not None and not await self._is_placed(bid):
                        await self._drop(each, "the lease is over")
            case "won" if facts is not None and outcome.provider == facts.provider and key in self._bids:
                await self._win(self._bids[key], term=outcome.term, pay=outcome.pay_uusd, block=outcome.block_number)
            case _ if entry is not None and entry.state is ReservationState.BIDDING and outcome.result != "won":
                self.counts[outcome.result] += 1
                if key in self._bids:
                    price_uusd = self._bids[key].price_uusd
                    self._note_ended(outcome.order_id, outcome.attempt, outcome.result, price_uusd, outcome.pay_uusd)
                self._settle(key, PLACES.get(outcome.result))

    async def _win(self, bid: StoredBid, *, term: int, pay: int, block: int) -> None:
        if self.chain is not None:
            try:
                if await self.chain.placed_term(bid.key[0], bid.facts) is None:
                    _log.warning("lease_not_on_chain", order=bid.lookup.order_id)
                    return
            except ChainDiffers as differs:
                _log.warning("lease_not_checked", order=bid.lookup.order_id, why=str(differs))
        if (entry := self.reservations.get(bid.key)) is not None and entry.state is ReservationState.HELD:
            return
        capacity = capacity_of(bid.specification())
        self.reservations.hold(bid.key, capacity, term=term)
        self._held_since_block[bid.key] = block
        self.counts["won"] += 1
        self._note_ended(bid.lookup.order_id, bid.lookup.attempt, "won", bid.price_uusd, pay)
        kept = msgspec.structs.replace(bid, state=ReservationState.HELD, term=term, pay_uusd=pay)
        self._bids[bid.key] = kept
        self._settle(bid.key, 0)
        async with self._disk:
            await asyncio.to_thread(self.store.write, kept)
        price = format_usd((pay or bid.price_uusd) * NANO_PER_MICRO)
        self.notify(
            f"won the lease {bid.lookup.order_id[:10]}… at {price} an hour. Its part of the machine is kept for it. "
            "'sparewatt node doctor' tells whether this machine starts containers."
        )

    def _note_ended(self, order: str, attempt: int, result: str, price_uusd: int = 0, pay_uusd: int = 0) -> None:
        """`pay_uusd`: what the winner is paid per hour, by the gateway's word; 0 is unknown."""
        self.ended.append(
            {
                "order": order,
                "attempt": attempt,
                "result": result,
                "price_uusd": price_uusd,
                "winner_pay_uusd": pay_uusd,
                "unix_s": self.clock.unix_s(),
            }
        )

    async def _drop_unless_placed(self, bid: StoredBid) -> None:
        term = await self._is_placed(bid)
        if term:
            await self._win(bid, term=term, pay=0, block=0)
        else:
            await self._drop(bid.key, "")

    async def _is_placed(self, bid: StoredBid) -> int:
        """The lease's term by the owner's chain, which counts before the gateway's word; 0 if it does not say so."""
        if self.chain is None:
            return 0
        with suppress(ChainDiffers):
            return await self.chain.placed_term(bid.key[0], bid.facts) or 0
        return 0

    async def _drop(self, key: BidKey, why: str) -> None:
        self.reservations.free(key)
        self._places.pop(key, None)
        self._held_since_block.pop(key, None)
        bid = self._bids.pop(key, None)
        if why and bid is not None:
            self.notify(f"{why}: {bid.lookup.order_id[:10]}…; its part of the machine is free again")
        async with self._disk:
            await asyncio.to_thread(self.store.remove, key)

    def _settle(self, key: BidKey, place: int | None) -> None:
        if (run := self._runs.get(key)) is not None:
            run.settle(place)
        elif key in self.reservations:
            self._places[key] = place

    def _reconcile(self, facts: MarketFacts, terms: Mapping[str, int]) -> None:
        """An outcome may have been missed: the list of leases that the provider has says the same later."""
        for key, entry in self.reservations.entries().items():
            order = "0x" + key[0].hex()
            term = terms.get(order)
            if entry.state is ReservationState.HELD and term is None:
                if self._held_since_block.get(key, 0) <= facts.block_number:
                    self.on_outcome(LeaseOutcome(order_id=order, attempt=key[1], result="ended", term=entry.term))
            elif entry.state is ReservationState.BIDDING and term is not None:
                self.on_outcome(
                    LeaseOutcome(
                        order_id=order,
                        attempt=key[1],
                        result="won",
                        provider=facts.provider,
                        term=term,
                        block_number=facts.block_number,
                    )
                )
        known = {"0x" + order_id.hex() for order_id, _ in (*self._bids, *self.reservations.entries())}
        for order in terms.keys() - known - self._strange_leases:
            self._strange_leases.add(order)
            self.notify(f"the chain has the lease {order[:10]}… with this node, of which nothing is stored here")

    # replays

    def _is_seen(self, checked: CheckedLookup) -> bool:
        """Whether this attempt, or a later one, was answered. An attempt that goes back is a replay, too."""
        is_answered = self._attempts_seen.get(checked.order_id, -1) >= checked.attempt
        return is_answered or self.store.has_committed((checked.order_id, checked.attempt))

    def _note_seen(self, order_id: bytes, attempt: int) -> None:
        self._attempts_seen[order_id] = max(attempt, self._attempts_seen.get(order_id, -1))
        self._attempts_seen.move_to_end(order_id)
        while len(self._attempts_seen) > ORDERS_SEEN_MAX:
            self._attempts_seen.popitem(last=False)


def _is_asked(checked: CheckedLookup, provider: str) -> bool:
    only, ignore = checked.terms.only, checked.terms.ignore
    return provider not in ignore and (not only or provider in only)


def _urls(lookup: LeaseLookup, facts: MarketFacts | None) -> dict[str, str]:
    """Of the validators that count in this attempt, by vote key."""
    peers = facts.validators if facts is not None else ()
    return {peer.vote_key: peer.url for peer in peers if peer.vote_key in lookup.weights}


def _domain(facts: MarketFacts) -> Domain:
    return contract_domain(chain_id=facts.chain_id, contract=facts.task_manager)
