"""A market with honest parties for a random walk: what they do, and what must hold whatever attackers do.

Two providers and five of seven validators follow the protocol. Honest providers bid, start and claim in time; honest
validators admit bids as the protocol says, and sign that a provider is down only if it is. The invariants are those of
the protocol about bonds, pauses and deposits, to the last unit. The attackers are in `market_walk.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from sparewatt.market.bonds import bid_bond_uusd, cancel_charge_uusd, commit_needs_uusd, minute_uusd, wanted_lock_uusd
from sparewatt.market.rule import BidBook, commit_of
from sparewatt.protocol.contracts.match import Bid, Down
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason
from sparewatt.protocol.signing import SigningKey
from tests.evm.auction import Order
from tests.evm.machine import Contract, Reverted, now, rolled_back, wait
from tests.evm.network import ATTEMPT_S, INSURANCE, RICH, TREASURY, USD, Provider
from tests.evm.walks import PEOPLE, deployed_network
from tests.order_terms import order_terms

HONEST_PROVIDERS, HOSTILE_VALIDATORS = 2, 2
HOSTILE_BOND = 3 * USD
"""An hour of the usual highest price: enough to bid in one auction at a time."""
ORDERS_MAX = 3
OPEN, MATCHED, UNMATCHED, CLOSED, EXPIRED = 1, 2, 3, 4, 5
PENDING, ACTIVE, PAUSED, UNPLACED, ENDED, VACANT = 1, 2, 3, 4, 5, 6
BY_RENTER, BY_EMPTY = 1, 4
IN_SERVICE, MAINTENANCE, LEFT = 2, 3, 5


@dataclass
class Auction(Order):
    """An order with what the validators know of it. `keys`: the node keys that count for the running attempt."""

    bids: dict[int, int] | None = None
    accepted: BidBook | None = None
    keys: dict[str, SigningKey] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    """Who paid compensation in this order, or was skipped for want of a bond."""
    burned_at_bid: dict[str, int] = field(default_factory=dict)
    failures: int = 0

    def signed_candidates(self, book: BidBook) -> list[tuple[Any, ...]]:
        shown = []
        for index in book.ranking[:3]:
            leaf = book.leaves[index]
            bid = Bid(self.order_id, self.attempt, leaf.provider, leaf.price_uusd, leaf.terms_hash, leaf.salt)
            signature = self.network.signed(self.keys[leaf.provider], self.network.tasks, commit_of(bid))
            shown.append((leaf.values(), book.tree.path(index), signature))
        return shown

    @property
    def deposit(self) -> int:
        amount: int = self.network.escrow.deposit_of(self.order_id)
        return amount


class MarketWorld:
    """A deployed network and what its honest parties know. The caller rolls the chain back."""

    def __init__(self) -> None:
        deployed = deployed_network()
        self.network = replace(deployed, providers=[replace(p) for p in deployed.providers])
        for person in PEOPLE:
            self.network.fund(person.address)
        self.honest = self.network.providers[:HONEST_PROVIDERS]
        self.hostile = self.network.providers[HONEST_PROVIDERS:]
        self.honest_validators = self.network.validators[HOSTILE_VALIDATORS:]
        self.auctions: list[Auction] = []
        self.burned: dict[str, int] = defaultdict(int)
        self.used_twins: list[tuple[Contract, str, tuple[Any, ...]]] = []
        self.seen_pauses: set[tuple[Any, ...]] = set()
        """Leases paused beyond the grace whose provider was seen to get out. More time does not bind it again."""
        self.kept_downs: list[tuple[Auction, int, int, list[tuple[bytes, int]]]] = []
        for provider in self.hostile:
            self._set_bond(provider, HOSTILE_BOND)
        self.known_keys = {p.node_key.address: p.node_key for p in self.network.providers}
        self.stake_version = self.network.stakes.version()
        self.staked = self.all_stake()
        self.honest_bonds = {p.address: self.bond(p.address) for p in self.honest}

    def _set_bond(self, provider: Provider, amount: int) -> None:
        surplus = self.bond(provider.address) - amount
        self.network.stakes.forfeit_bond(
            provider.address, surplus, INSURANCE, INSURANCE, who=self.network.dispute.address
        )

    # What the walk knows

    def attempt(self, contract: Contract, function: str, *arguments: Any, who: str) -> bool:
        try:
            contract.send(function, arguments, who=who)
        except Reverted:
            return False
        return True

    def vaults(self) -> list[Contract]:
        return [self.network.escrow, self.network.stakes, self.network.book]

    def owed_by_escrow(self) -> list[str]:
        """Everybody who can be owed there; a debt to anybody else would be missing in the sums."""
        people = [*PEOPLE, *(provider.owner for provider in self.network.providers)]
        return [*(person.address for person in people), TREASURY]

    def owed_by_stakes(self) -> list[str]:
        people = [*PEOPLE, *(provider.owner for provider in self.hostile)]
        return [*(person.address for person in people), INSURANCE]

    def bond(self, address: str) -> int:
        free, locked, unbonding, _ = self.network.stakes.bond_of(address)
        total: int = free + locked + unbonding
        return total

    def all_stake(self) -> int:
        total = 0
        for validator in self.network.validators:
            _, stake, unbonding, _, _, pending, _ = self.network.stakes.validator_of(validator.operator.address)
            total += stake + unbonding + pending
        return total

    def is_honest(self, address: str) -> bool:
        return address in self.honest_bonds

    def node_key(self, address: str) -> SigningKey:
        return next(p.node_key for p in self.network.providers if p.address == address)

    # What honest parties do

    def open_order(self, renter: SigningKey, *, deposit: int, attempts: int, **changes: Any) -> Auction:
        policy = order_terms(duration_s=5_000, **changes)
        self.network.fund(renter.address, RICH)
        arguments = (policy.values(), b"\3" * 32, deposit, now() + 20_000, attempts)
        order_id = self.network.orders.create_order(*arguments, who=renter.address)
        auction = Auction(self.network, order_id, policy, renter, stake_version=self.network.stakes.version())
        self.open_attempt(auction)
        self.auctions.append(auction)
        return auction

    def open_attempt(self, auction: Auction) -> None:
        auction.stake_version = self.network.orders.order_of(auction.order_id)[4]
        auction.bids, auction.accepted = None, None
        at = now()
        registry = self.network.registry
        auction.keys = {}
        for provider in self.network.providers:
            counting = registry.node_key_at(provider.address, at)
            auction.keys[provider.address] = self.known_keys[counting]

    def admits(self, auction: Auction, provider: Provider) -> bool:
        """A validator's rule for a commit: active, not failed before, and a free bond for all it may have to lock."""
        backed = [other.policy.max_price_uusd for other in self.auctions if self.may_lock(other, provider.address)]
        needed = commit_needs_uusd([*backed, auction.policy.max_price_uusd])
        return (
            provider.address not in auction.excluded
            and self.network.registry.status_of(provider.address) == IN_SERVICE
            and self.network.stakes.free_bond(provider.address) >= needed
        )

    def may_lock(self, auction: Auction, provider: str) -> bool:
        """Whether a bid or a place of this order may still lock bond of the provider."""
        if auction.accepted is None or auction.state == OPEN:
            return any(self.network.providers[number].address == provider for number in auction.bids or {})
        lease, chosen = auction.lease, auction.record(auction.accepted).chosen
        waiting = [award.provider for award in chosen[lease["position"] + 1 :]]
        return lease["state"] in (PENDING, ACTIVE, PAUSED, VACANT) and provider in waiting

    def take_bids(self, auction: Auction, prices: dict[int, int]) -> None:
        """Honest providers bid in every attempt, for two dollars an hour; hostile ones what they want."""
        providers = self.network.providers
        wanted = dict.fromkeys(range(HONEST_PROVIDERS), 2 * USD) | prices
        auction.bids = {n: price for n, price in wanted.items() if self.admits(auction, providers[n])}
        auction.burned_at_bid = {providers[n].address: self.burned[providers[n].address] for n in auction.bids}

    def certify(self, auction: Auction) -> None:
        """The validators' certificate is accepted, whatever candidates did since they bid."""
        book = auction.accepted = auction.book(auction.bids or {})
        task = auction.task(book)
        voters = self.network.validators[HOSTILE_VALIDATORS:]
        votes = auction.votes(task, voters=voters)
        if not book.ranking:
            self.network.tasks.accept_no_match(task.values(), 0, votes)
            return
        shown = (task.values(), 0, auction.policy.values(), auction.signed_candidates(book), votes)
        self.network.tasks.accept_match(*shown)
        lease = auction.lease
        placed = lease["position"] if auction.state == MATCHED else len(book.ranking[:3])
        for index in book.ranking[:3][:placed]:
            auction.excluded.add(book.leaves[index].provider)
            assert not self.is_honest(book.leaves[index].provider), "an honest bidder was skipped"
        if auction.state == MATCHED:
            assert lease["locked"] == self.lock_of(auction, lease)
        else:
            self.attempt_failed(auction)

    def lock_of(self, auction: Auction, lease: dict[str, Any]) -> int:
        """An hour of pay if the bond has it, and at least the bid bond."""
        highest = auction.policy.max_price_uusd
        wanted = wanted_lock_uusd(lease["rate"], max_price_uusd=highest)
        left = sum(self.network.stakes.bond_of(lease["provider"])[i] for i in (0, 2))
        assert lease["locked"] >= bid_bond_uusd(highest)
        return wanted if left else min(wanted, lease["locked"])

    def attempt_failed(self, auction: Auction) -> None:
        """I16, I17: it cost the candidates a bid bond, and somebody is out of the order for good."""
        book = auction.accepted
        assert book is not None
        eligible = [book.leaves[index].provider for index in book.ranking]
        if not any(self.is_honest(provider) for provider in eligible):
            return
        candidates = eligible[:3]
        lost = sum(self.burned[p] - auction.burned_at_bid[p] for p in candidates)
        assert lost >= bid_bond_uusd(auction.policy.max_price_uusd), "an attempt was spoiled for less than a bid bond"
        auction.failures += 1
        assert auction.failures <= len(auction.excluded) <= len(self.hostile)

    def hand_over(
        self, auction: Auction, reason: int, *, who: str, since: int = 0, votes: Any = (), signature: bytes = b""
    ) -> bool:
        """Send it, and if it was accepted, check what the leaver paid."""
        before, deposit = auction.lease, auction.deposit
        if auction.accepted is None:
            return False
        shown = (auction.order_id, auction.record(auction.accepted).values(), reason, since, list(votes), signature)
        bond = self.bond(before["provider"])
        owed = self.network.escrow.owed(before["provider"]) + self.network.escrow.owed(TREASURY)
        if not self.attempt(self.network.moves, "hand_over", *shown, who=who):
            return False
        paid = bond - self.bond(before["provider"])
        earned = self.network.escrow.owed(before["provider"]) + self.network.escrow.owed(TREASURY) - owed
        assert auction.deposit == deposit + paid - earned
        self.judge_hand_over(auction, before, reason, paid, since)
        if paid:
            assert not self.is_honest(before["provider"]), "an honest provider paid"
            self.burned[before["provider"]] += paid
            auction.excluded.add(before["provider"])
        if auction.state == UNMATCHED:
            self.attempt_failed(auction)
        return True

    def judge_hand_over(self, auction: Auction, before: dict[str, Any], reason: int, paid: int, since: int) -> None:
        free_of_charge = paid == 0
        until = since if reason == HandOverReason.DOWN else now()
        ran_s = max(0, until - before["running_since"]) if before["state"] == ACTIVE else 0
        assert ran_s < before["duration_left"], "a lease was moved after its time"
        grace_is_over = before["pause_reason"] == BY_RENTER and now() > before["paused_at"] + before["grace"]
        match HandOverReason(reason):
            case HandOverReason.NO_START:
                assert before["state"] == PENDING
                assert now() > before["confirm_by"]
                assert free_of_charge == before["resumed"]
            case HandOverReason.RESIGNED:
                noticed = before["notice_at"] > 0 and now() >= before["notice_at"] + before["reclaim"]
                if before["state"] == PAUSED:
                    assert grace_is_over, "left for nothing from an empty lease, or too early"
                    assert free_of_charge
                else:
                    waits_again = before["state"] == PENDING and before["resumed"]
                    assert free_of_charge == (noticed or (waits_again and grace_is_over))
            case HandOverReason.DOWN:
                assert since >= before["running_since"]
                assert since + before["down"] <= now() <= since + before["down"] + ATTEMPT_S
                assert not free_of_charge
        assert paid in (0, before["locked"])

    def close(self, auction: Auction, reason: int, *, who: str) -> bool:
        """Send it, and if it was accepted, check the money."""
        before, deposit = auction.lease, auction.deposit
        escrow, provider = self.network.escrow, before["provider"]
        owed = escrow.owed(provider) + escrow.owed(TREASURY)
        due = escrow.accrued(auction.order_id)
        bond = self.bond(provider)
        if not self.attempt(self.network.orders, "close", auction.order_id, reason, who=who):
            return False
        assert self.bond(provider) == bond
        charge = 0
        starting = before["state"] == PENDING and now() <= before["confirm_by"] and not before["resumed"]
        if reason == CloseReason.RENTER and starting:
            charge = cancel_charge_uusd(before["rate"], start_s=before["start"], deposit_uusd=deposit)
        if reason == CloseReason.EMPTY:
            assert before["state"] == PAUSED
            assert deposit < minute_uusd(before["rate"]), "a lease with a deposit was closed as empty"
            assert now() > before["paused_at"] + before["grace"]
        same = provider == auction.renter.address
        assert same or escrow.owed(provider) + escrow.owed(TREASURY) == owed + due + charge
        return True

    def advance(self, seconds: int) -> None:
        """Time passes; honest providers start and claim as soon as they may."""
        end = now() + seconds
        self.honest_duties()
        while now() < end:
            turns = [turn for auction in self.auctions for turn in self.honest_turns(auction) if now() < turn < end]
            wait(min(turns, default=end) - now())
            self.honest_duties()

    def honest_turns(self, auction: Auction) -> list[int]:
        lease = auction.lease
        if lease["state"] != VACANT or auction.accepted is None:
            return []
        chosen = auction.record(auction.accepted).chosen
        places = [i for i in range(lease["position"] + 1, 3) if self.is_honest(chosen[i].provider)]
        return [lease["vacated_at"] + (place - lease["position"] - 1) * lease["standin"] for place in places]

    def honest_duties(self) -> None:
        for auction in self.auctions:
            if min(self.honest_turns(auction), default=now() + 1) <= now():
                self.claim_in_turn(auction)
            lease = auction.lease
            if lease["state"] == PENDING and self.is_honest(lease["provider"]):
                assert now() <= lease["confirm_by"]
                who = self.node_key(lease["provider"]).address
                self.network.orders.confirm_start(auction.order_id, bytes(32), who=who)

    def claim_in_turn(self, auction: Auction) -> None:
        assert auction.accepted is not None
        lease, record = auction.lease, auction.record(auction.accepted)
        for place in range(lease["position"] + 1, 3):
            turn = lease["vacated_at"] + (place - lease["position"] - 1) * lease["standin"]
            if self.is_honest(record.chosen[place].provider) and turn <= now():
                who = record.chosen[place].provider
                self.network.moves.take_over(auction.order_id, record.values(), place, b"", who=who)
                assert auction.lease["term"] == lease["term"] + 1
                return

    def down_votes(self, auction: Auction, since: int, *, voters: Any) -> list[tuple[bytes, int]]:
        lease = auction.lease
        return self.network.votes(Down(auction.order_id, lease["term"], lease["provider"], since), voters=voters)

    # What must hold

    def check(self) -> None:
        """After every step, accepted or refused."""
        leases = [(auction, auction.lease) for auction in self.auctions]
        self.check_money([lease for _, lease in leases])
        for auction, lease in leases:
            if lease["state"] == PAUSED and now() > lease["paused_at"] + lease["grace"]:
                self.check_pause_has_ended(auction, lease)
        self.auctions = [auction for auction in self.auctions if auction.state not in (CLOSED, EXPIRED)]

    def check_money(self, leases: list[dict[str, Any]]) -> None:
        escrow, stakes, token = self.network.escrow, self.network.stakes, self.network.token
        deposits = sum(auction.deposit for auction in self.auctions)
        assert escrow.held() == deposits + sum(escrow.owed(account) for account in self.owed_by_escrow())
        bonds = {provider.address: stakes.bond_of(provider.address) for provider in self.network.providers}
        assert sum(bond[1] for bond in bonds.values()) == sum(lease["locked"] for lease in leases)
        owed = sum(stakes.owed(account) for account in self.owed_by_stakes())
        assert stakes.held() == self.staked + sum(sum(bond[:3]) for bond in bonds.values()) + owed
        assert stakes.version() == self.stake_version, "a validator was slashed"
        for address, bond in self.honest_bonds.items():
            assert sum(bonds[address][:3]) == bond, "an honest provider lost bond"
        for vault in self.vaults():
            assert token.balanceOf(vault.address) == vault.held(), vault.name

    def check_pause_has_ended(self, auction: Auction, lease: dict[str, Any]) -> None:
        """I20: after the grace the provider can leave for nothing, or start again for pay."""
        seen = (auction.order_id, auction.deposit, *lease.values())
        if seen in self.seen_pauses:
            return
        with rolled_back():
            assert self.provider_gets_out(auction, lease)
        self.seen_pauses.add(seen)

    def provider_gets_out(self, auction: Auction, lease: dict[str, Any]) -> bool:
        provider, orders = lease["provider"], self.network.orders
        assert auction.accepted is not None
        if lease["duration_left"] == 0:
            return self.attempt(orders, "close", auction.order_id, int(CloseReason.DURATION), who=provider)
        if auction.deposit < minute_uusd(lease["rate"]):
            return self.attempt(orders, "close", auction.order_id, int(CloseReason.EMPTY), who=provider)
        if lease["pause_reason"] == BY_EMPTY:
            return self.attempt(orders, "resume", auction.order_id, who=provider)
        record = auction.record(auction.accepted).values()
        evidence: tuple[Any, ...] = (int(HandOverReason.RESIGNED), 0, [], b"")
        return self.attempt(self.network.moves, "hand_over", auction.order_id, record, *evidence, who=provider)

    def finish(self) -> None:
        """An exit always exists: each renter ends its order, everybody withdraws, and no money is left."""
        assert self.all_stake() == self.staked
        for auction in self.auctions:
            orders, renter = self.network.orders, auction.renter.address
            ended = self.attempt(orders, "cancel_order", auction.order_id, who=renter)
            assert ended or self.close(auction, CloseReason.RENTER, who=renter)
        self.check()
        for account in self.owed_by_escrow():
            self.attempt(self.network.escrow, "withdraw", account, who=account)
        assert self.network.token.balanceOf(self.network.escrow.address) == 0
        assert all(self.network.stakes.bond_of(p.address)[1] == 0 for p in self.network.providers)
