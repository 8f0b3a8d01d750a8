"""The attackers of a random walk through the market: each method is one of them, alone or in any order with the others.

They own three of five providers, two of seven validators and three of four renters. What they may do is in the
method's name; that it gains them nothing they should not have is checked here and in `market_world.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from sparewatt.market.bonds import forfeit_shares, minute_uusd
from sparewatt.protocol.contracts.match import Award, BidCommit, CertificateRecord
from sparewatt.protocol.contracts.meta_transactions import Accept, NodeKey, Pause, Resign, Resume
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason
from sparewatt.protocol.signing import keccak256
from tests.evm.auction import STRANGER
from tests.evm.machine import Contract, now, rolled_back
from tests.evm.market_world import (
    ACTIVE,
    BY_EMPTY,
    HONEST_PROVIDERS,
    HOSTILE_VALIDATORS,
    IN_SERVICE,
    LEFT,
    MAINTENANCE,
    OPEN,
    ORDERS_MAX,
    PAUSED,
    PENDING,
    UNMATCHED,
    VACANT,
    Auction,
    MarketWorld,
)
from tests.evm.network import ATTEMPT_S, USD, Provider, key
from tests.evm.walks import PEOPLE, deployed_network

SECONDS = (1, 5, 5, 11, 11, 21, 31, 31, 61, 200, 601, 1_201, 3_601)
RUNNING = (PENDING, ACTIVE, PAUSED)


class NotNow(Exception):
    """The act makes no sense at the moment: another one is drawn."""


def require(possible: object) -> None:
    if not possible:
        raise NotNow


class MarketWalk(MarketWorld):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def step(self) -> str:
        """One act of somebody, and the checks. Returns its name."""
        while True:  # time can always pass
            act = self.rng.choices(ACTS, WEIGHTS)[0]
            try:
                act(self)
            except NotNow:
                continue
            self.check()
            return act.__name__

    def any_order(self) -> Auction:
        require(self.auctions)
        return self.rng.choice(self.auctions)

    def order_with(self, *states: int, hostile: bool | None = None) -> Auction:
        """An order whose lease is in one of these states, with a hostile provider, an honest one, or any."""
        fitting = [auction for auction in self.auctions if auction.lease["state"] in states]
        if hostile is not None:
            fitting = [auction for auction in fitting if self.is_honest(auction.lease["provider"]) != hostile]
        require(fitting)
        return self.rng.choice(fitting)

    def accepted_order(self, *states: int) -> tuple[Auction, CertificateRecord]:
        auction = self.order_with(*states)
        if auction.accepted is None:
            raise NotNow
        return auction, auction.record(auction.accepted)

    def any_hostile(self) -> Provider:
        return self.rng.choice(self.hostile)

    def chance(self) -> bool:
        return self.rng.random() < 0.5

    # The market's usual course

    def time_passes(self) -> None:
        self.advance(self.rng.choice(SECONDS))

    def renter_orders(self) -> None:
        require(len(self.auctions) < ORDERS_MAX)
        highest = self.rng.choice([3 * USD, 3 * USD, 30 * USD])
        deposit = max(self.rng.choice([USD // 2, USD, 9 * USD]), highest // 6)
        attempts = self.rng.randrange(5)
        self.open_order(self.rng.choice(PEOPLE), deposit=deposit, attempts=attempts, max_price_uusd=highest)

    def penny_bidder(self) -> None:
        waiting = [auction for auction in self.auctions if auction.bids is None and auction.state == OPEN]
        require(waiting)
        auction = self.rng.choice(waiting)
        bidders = [n for n in range(HONEST_PROVIDERS, len(self.network.providers)) if self.rng.random() < 0.7]
        self.take_bids(auction, {n: self.rng.choice([1, 1, 2, USD, 3 * USD]) for n in bidders})

    def validators_certify(self) -> None:
        ready = [auction for auction in self.auctions if auction.bids is not None and auction.state == OPEN]
        opened_at = self.network.orders.opened_at
        ready = [auction for auction in ready if now() <= opened_at(auction.order_id, auction.attempt) + ATTEMPT_S]
        require(ready)
        self.certify(self.rng.choice(ready))

    def hostile_provider_starts(self) -> None:
        """Until this is drawn, it is a never-starter."""
        auction = self.order_with(PENDING)
        lease, orders = auction.lease, self.network.orders
        done = self.attempt(orders, "confirm_start", auction.order_id, bytes(32), who=lease["provider"])
        assert done == (now() <= lease["confirm_by"])

    def watchdog_reports_who_did_not_start(self) -> None:
        auction = self.order_with(PENDING)
        late = now() > auction.lease["confirm_by"]
        assert self.hand_over(auction, HandOverReason.NO_START, who=STRANGER) == late

    def reopener(self) -> None:
        """Opens auctions of others at once, as long as the order allows it."""
        auction = self.any_order()
        _, state, most, attempt, _, _, expires_at, *_ = self.network.orders.order_of(auction.order_id)
        policy = auction.policy.values()
        done = self.attempt(self.network.orders, "reopen", auction.order_id, policy, who=STRANGER)
        backed = auction.deposit >= auction.policy.max_price_uusd // 6
        assert done == (state == UNMATCHED and attempt + 1 <= most and now() <= expires_at and backed)
        if done:
            auction.attempt += 1
            self.open_attempt(auction)

    def expirer(self) -> None:
        auction = self.any_order()
        vacant = auction.lease["state"] == VACANT
        if self.attempt(self.network.orders, "expire_attempt", auction.order_id, who=STRANGER) and vacant:
            self.attempt_failed(auction)

    # Ways out of a bid

    def unbonder(self) -> None:
        me = self.any_hostile().address
        free = self.network.stakes.free_bond(me)
        self.attempt(self.network.stakes, "unbond_bond", free // self.rng.choice([1, 2]), who=me)

    def unbonder_fetches(self) -> None:
        me = self.any_hostile().address
        self.attempt(self.network.stakes, "finish_unbond_bond", me, who=STRANGER)
        self.attempt(self.network.stakes, "withdraw", me, who=me)

    def bonds_again(self) -> None:
        me = self.any_hostile().address
        self.network.stakes.deposit_bond(me, self.rng.choice([1, USD, 3 * USD]), who=me)

    def maintenance_dodger(self) -> None:
        """Goes to maintenance after its bid, or leaves and registers again."""
        provider, registry = self.any_hostile(), self.network.registry
        if registry.status_of(provider.address) == LEFT:
            claims = (1, 2, 3, 4, 24, 8, USD, bytes(32))
            registry.register(claims, provider.node_key.address, b"", who=provider.address)
        status = self.rng.choice([IN_SERVICE, IN_SERVICE, MAINTENANCE, LEFT])
        self.attempt(registry, "set_status", status, who=provider.address)

    def key_changer(self) -> None:
        provider = self.any_hostile()
        new = key(7_000 + len(self.known_keys))
        proof = self.network.signed(new, self.network.registry, NodeKey(provider.address, new.address))
        if self.attempt(self.network.registry, "set_node_key", new.address, proof, who=provider.address):
            provider.node_key = self.known_keys[new.address] = new

    def bond_emptier(self) -> None:
        """Proves a fault against itself, to be skipped for nothing."""
        auction = self.any_order()
        me = self.any_hostile().address
        ids = [keccak256(b"a"), keccak256(b"b")]
        commits = [BidCommit(auction.order_id, auction.attempt, me, bid_id) for bid_id in ids]
        signatures = [self.network.signed(auction.keys[me], self.network.tasks, commit) for commit in commits]
        before = self.bond(me)
        shown = (auction.order_id, auction.attempt, me, ids, *signatures)
        if self.attempt(self.network.book, "prove_two_commits", *shown, who=me):
            self.burned[me] += forfeit_shares(before - self.bond(me)).insurance_uusd

    # Claims

    def claimer_out_of_turn(self) -> None:
        auction, record = self.accepted_order(VACANT)
        lease, position = auction.lease, self.rng.randrange(3)
        claimant = record.chosen[position].provider
        require(claimant in {provider.address for provider in self.hostile})
        accept = Accept(auction.order_id, lease["term"] + 1)
        signature = self.network.signed(self.node_key(claimant), self.network.moves, accept)
        who, signature = (STRANGER, signature) if self.chance() else (claimant, b"")
        turn = lease["vacated_at"] + (position - lease["position"] - 1) * lease["standin"]
        shown = (auction.order_id, record.values(), position, signature)
        if self.attempt(self.network.moves, "take_over", *shown, who=who):
            assert position > lease["position"]
            assert now() >= turn
            assert auction.lease["locked"] == self.lock_of(auction, auction.lease)

    def claimant_for_another(self) -> None:
        """Signs a claim for a stand-in that it is not."""
        auction, record = self.accepted_order(VACANT)
        me, position = self.any_hostile(), self.rng.choice([1, 2])
        require(record.chosen[position].provider != me.address)
        accept = Accept(auction.order_id, auction.lease["term"] + 1)
        signature = self.network.signed(me.node_key, self.network.moves, accept)
        shown = (auction.order_id, record.values(), position, signature)
        assert not self.attempt(self.network.moves, "take_over", *shown, who=me.address)

    def record_forger(self) -> None:
        """Shows a record with itself as the next candidate."""
        (auction, real), me = self.accepted_order(*RUNNING, VACANT), self.any_hostile().address
        award = Award(me, self.rng.choice([1, 3 * USD]))
        forged = CertificateRecord(real.task_hash, real.round, (real.chosen[0], award, award))
        require(forged != real)
        moves, shown = self.network.moves, (auction.order_id, forged.values())
        assert not self.attempt(moves, "hand_over", *shown, int(HandOverReason.NO_START), 0, [], b"", who=me)
        assert not self.attempt(moves, "take_over", *shown, 1, b"", who=me)

    # Ways out of a lease

    def resigner(self) -> None:
        auction = self.order_with(*RUNNING, hostile=True)
        signer = self.node_key(auction.lease["provider"])
        resign = Resign(auction.order_id, auction.lease["term"])
        signature = self.network.signed(signer, self.network.moves, resign)
        who, shown = (STRANGER, signature) if self.chance() else (signer.address, b"")
        self.hand_over(auction, HandOverReason.RESIGNED, who=who, signature=shown)

    def forced_resigner(self) -> None:
        """Signs the resignation of an honest provider with a key of its own."""
        auction = self.order_with(*RUNNING, hostile=False)
        resign = Resign(auction.order_id, auction.lease["term"])
        signature = self.network.signed(self.any_hostile().node_key, self.network.moves, resign)
        assert not self.hand_over(auction, HandOverReason.RESIGNED, who=STRANGER, signature=signature)

    def reclaimer(self) -> None:
        auction = self.order_with(*RUNNING, hostile=True)
        lease = auction.lease
        if lease["notice_at"] == 0:
            first_start = lease["state"] == PENDING and not lease["resumed"]
            noticed = self.attempt(self.network.orders, "give_notice", auction.order_id, who=lease["provider"])
            assert noticed != first_start, "a notice is no way out of the first start"
            return
        over = now() >= lease["notice_at"] + lease["reclaim"]
        assert self.close(auction, CloseReason.PROVIDER_RECLAIM, who=lease["provider"]) == over

    def node_that_is_down(self) -> None:
        """Honest validators report a hostile provider; the certificate is used at once, or kept."""
        auction = self.order_with(ACTIVE, hostile=True)
        since = max(auction.lease["running_since"], now() - self.rng.choice([10, 30, 80]))
        votes = self.down_votes(auction, since, voters=self.honest_validators)
        self.kept_downs.append((auction, auction.lease["term"], since, votes))
        if self.chance():
            self.hand_over(auction, HandOverReason.DOWN, who=STRANGER, since=since, votes=votes)

    def old_down(self) -> None:
        """A certificate that was not used, or was, is sent later: `judge_hand_over` holds it to its time and term."""
        kept = [down for down in self.kept_downs if down[0] in self.auctions]
        require(kept)
        auction, term, since, votes = self.rng.choice(kept)
        before = auction.lease["term"]
        if self.hand_over(auction, HandOverReason.DOWN, who=STRANGER, since=since, votes=votes):
            assert before == term

    def false_down(self) -> None:
        """Two hostile validators of seven report any provider, and count their votes more than once."""
        auction = self.order_with(ACTIVE)
        since = now() - self.rng.choice([10, 30, 60])
        votes = self.down_votes(auction, since, voters=self.network.validators[:HOSTILE_VALIDATORS])
        for shown in (votes, sorted(votes * 3)):
            assert not self.hand_over(auction, HandOverReason.DOWN, who=STRANGER, since=since, votes=shown)

    # Renters and strangers

    def endless_pauser(self) -> None:
        auction = self.order_with(ACTIVE, PAUSED)
        kind = Pause if auction.lease["state"] == ACTIVE else Resume
        orders, renter, name = self.network.orders, auction.renter, kind.__name__.lower()
        if self.chance():
            self.attempt(orders, name, auction.order_id, who=renter.address)
            return
        deadline = now() + 10**6
        message = kind(renter.address, auction.order_id, orders.nonces(renter.address), deadline)
        shown = (renter.address, auction.order_id, deadline, self.network.signed(renter, orders, message))
        if self.attempt(orders, f"{name}_with_signature", *shown, who=STRANGER):
            self.used_twins.append((orders, f"{name}_with_signature", shown))

    def twin_replayer(self) -> None:
        require(self.used_twins)
        contract, function, shown = self.rng.choice(self.used_twins)
        assert not self.attempt(contract, function, *shown, who=STRANGER)

    def resumer(self) -> None:
        """A stranger resumes what is paused as empty, and nothing else."""
        auction = self.order_with(PAUSED)
        lease = auction.lease
        pays = auction.deposit >= minute_uusd(lease["rate"]) and lease["duration_left"] > 0
        done = self.attempt(self.network.orders, "resume", auction.order_id, who=STRANGER)
        assert done == (pays and lease["pause_reason"] == BY_EMPTY)

    def early_empty_closer(self) -> None:
        auction = self.order_with(PAUSED)
        lease = auction.lease
        empty = auction.deposit < minute_uusd(lease["rate"]) and now() > lease["paused_at"] + lease["grace"]
        assert self.close(auction, CloseReason.EMPTY, who=STRANGER) == empty

    def early_canceller(self) -> None:
        auction = self.any_order()
        renter = auction.renter.address
        if not self.attempt(self.network.orders, "cancel_order", auction.order_id, who=renter):
            assert self.close(auction, CloseReason.RENTER, who=renter)

    def duration_closer(self) -> None:
        auction = self.order_with(ACTIVE, PAUSED)
        self.close(auction, CloseReason.DURATION, who=STRANGER)

    def settler(self) -> None:
        auction = self.order_with(ACTIVE)
        self.network.escrow.settle(auction.order_id, who=STRANGER)

    def an_hour_is_settled(self) -> None:
        """Small deposits are used up, and their leases paused as empty."""
        self.order_with(ACTIVE)
        self.advance(3_601)
        for auction in self.auctions:
            self.attempt(self.network.escrow, "settle", auction.order_id, who=STRANGER)

    def top_up_griefer(self) -> None:
        """Tops up a lease of somebody else by too little, or just enough."""
        auction = self.any_order()
        escrow, token, me = self.network.escrow, self.network.token, PEOPLE[3].address
        amount = self.rng.choice([1, 40_000, 2 * USD])
        deposit, owed, balance = auction.deposit, escrow.owed(me), token.balanceOf(me)
        escrow.top_up(auction.order_id, amount, who=me)
        assert auction.deposit == deposit + amount
        assert escrow.owed(me) == max(0, owed - amount), "what is owed is used first"
        assert token.balanceOf(me) == balance - max(0, amount - owed)

    def updater(self) -> None:
        auction, moves = self.order_with(ACTIVE), self.network.moves
        rate, duration_s = self.rng.choice([0, 1, USD, 30 * USD + 1]), self.rng.choice([59, 60, 9_000])
        change = (auction.order_id, b"\6" * 32, rate, duration_s, moves.update_seq(auction.order_id) + 1)
        locked, provider = auction.lease["locked"], auction.lease["provider"]
        assert not self.attempt(moves, "accept_update", *change, who=provider)
        if self.attempt(moves, "propose_update", *change, who=auction.renter.address):
            assert 0 < rate <= auction.policy.max_price_uusd
            self.attempt(moves, "accept_update", *change, who=provider)
        assert auction.lease["locked"] == locked

    def privileged_caller(self) -> None:
        """Calls what only a sister contract may call."""
        auction, me = self.any_order(), self.any_hostile().address
        lease_id, victim, network = auction.order_id, self.honest[0].address, self.network
        calls: list[tuple[Contract, str, tuple[Any, ...]]] = [
            (network.stakes, "lock", (victim, 1, 1)),
            (network.stakes, "release", (me, 1)),
            (network.stakes, "take_bond", (victim, 1, me)),
            (network.stakes, "forfeit_bond", (victim, 1, me, me)),
            (network.stakes, "slash", (network.validators[0].vote_key.address, 1, 0, 1, me, me)),
            (network.orders, "vacate", (lease_id, 16, now(), True, 0)),
            (network.orders, "place", (lease_id, me, 1, 0)),
            (network.orders, "apply_update", (lease_id, bytes(32), 1, 60)),
            (network.orders, "on_match", (lease_id, [(me, 1)] * 3)),
            (network.orders, "on_empty", (lease_id,)),
            (network.escrow, "pay", (lease_id, me, 1)),
            (network.escrow, "refund", (lease_id,)),
            (network.escrow, "credit", (lease_id, 1)),
        ]
        contract, function, arguments = self.rng.choice(calls)
        assert not self.attempt(contract, function, *arguments, who=me)

    def stranger_acts_as_provider(self) -> None:
        auction, me = self.order_with(*RUNNING), self.any_hostile().address
        require(auction.lease["provider"] != me)
        for function, more in (("confirm_start", (bytes(32),)), ("give_notice", ()), ("close", (3,))):
            assert not self.attempt(self.network.orders, function, auction.order_id, *more, who=me)

    def withdrawer(self) -> None:
        account = self.rng.choice(self.owed_by_escrow())
        for vault in (self.network.escrow, self.network.stakes):
            owed, before = vault.owed(account), self.network.token.balanceOf(account)
            if self.attempt(vault, "withdraw", account, who=account):
                assert self.network.token.balanceOf(account) == before + owed
                assert vault.owed(account) == 0


USUAL: dict[Callable[[MarketWalk], None], int] = {
    MarketWalk.time_passes: 8,
    MarketWalk.renter_orders: 6,
    MarketWalk.validators_certify: 30,
    MarketWalk.hostile_provider_starts: 10,
    MarketWalk.watchdog_reports_who_did_not_start: 6,
    MarketWalk.expirer: 2,
    MarketWalk.bonds_again: 2,
    MarketWalk.settler: 4,
    MarketWalk.an_hour_is_settled: 4,
}
ATTACKERS: dict[Callable[[MarketWalk], None], int] = {
    MarketWalk.penny_bidder: 24,
    MarketWalk.reopener: 4,
    MarketWalk.unbonder: 2,
    MarketWalk.unbonder_fetches: 1,
    MarketWalk.maintenance_dodger: 3,
    MarketWalk.key_changer: 2,
    MarketWalk.bond_emptier: 1,
    MarketWalk.claimer_out_of_turn: 5,
    MarketWalk.claimant_for_another: 2,
    MarketWalk.record_forger: 1,
    MarketWalk.resigner: 2,
    MarketWalk.forced_resigner: 1,
    MarketWalk.reclaimer: 3,
    MarketWalk.node_that_is_down: 2,
    MarketWalk.old_down: 2,
    MarketWalk.false_down: 1,
    MarketWalk.endless_pauser: 10,
    MarketWalk.twin_replayer: 1,
    MarketWalk.resumer: 3,
    MarketWalk.early_empty_closer: 8,
    MarketWalk.early_canceller: 1,
    MarketWalk.duration_closer: 1,
    MarketWalk.top_up_griefer: 2,
    MarketWalk.updater: 2,
    MarketWalk.privileged_caller: 1,
    MarketWalk.stranger_acts_as_provider: 1,
    MarketWalk.withdrawer: 2,
}
ACTS = [*USUAL, *ATTACKERS]
WEIGHTS = [*USUAL.values(), *ATTACKERS.values()]
STEPS_PER_WALK = 200


def walk_market(*, seed: int, steps: int) -> Counter[str]:
    """Walks of at most `STEPS_PER_WALK` steps on a fresh network each; returns how often each act came."""
    counts: Counter[str] = Counter()
    deployed_network()
    for number, first in enumerate(range(0, steps, STEPS_PER_WALK)):
        with rolled_back():
            walk = MarketWalk(random.Random(f"{seed}/{number}"))
            counts.update(walk.step() for _ in range(min(STEPS_PER_WALK, steps - first)))
            walk.finish()
    return counts
