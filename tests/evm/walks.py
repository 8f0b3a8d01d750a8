"""Stateful property tests (random walks) of the contracts: Hypothesis chooses the steps, invariants hold after each.

A step that reverts counts as well: the invariants must hold then, too. `make test` runs few steps, the soak many.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.market.rule import BidBook
from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.evm.auction import Order, place_order
from tests.evm.machine import Contract, Reverted, now, rolled_back, wait
from tests.evm.network import (
    ACTIVATE_S,
    BOOK_BOND,
    GUARDIAN,
    INSURANCE,
    MIN_STAKE,
    OPERATOR,
    RICH,
    TREASURY,
    USD,
    Network,
    full_network,
    key,
)

PEOPLE = sorted((key(n) for n in range(200, 204)), key=lambda k: k.address)
PERSON = st.integers(0, len(PEOPLE) - 1)
AMOUNT = st.one_of(st.integers(0, 50), st.integers(0, 10 * USD), st.just(2**256 - 1))
PLACES = 32
SECONDS = st.sampled_from([1, 7, 31, 61, 400, 3601, 90_000])


@cache
def deployed_network() -> Network:
    return full_network()


@cache
def crowded_network() -> Network:
    """Two places of the validators' set are free."""
    return full_network(n_validators=30, n_providers=1)


class Walk(RuleBasedStateMachine):
    """A network that is rolled back at the end of the walk."""

    deployed = staticmethod(deployed_network)

    def __init__(self) -> None:
        super().__init__()
        self.network = self.deployed()
        self.exits = ExitStack()
        self.exits.enter_context(rolled_back())
        for person in PEOPLE:
            self.network.fund(person.address)

    def teardown(self) -> None:
        self.exits.close()

    def attempt(self, contract: Contract, function: str, *arguments: Any, who: str) -> bool:
        try:
            contract.send(function, arguments, who=who)
        except Reverted:
            return False
        return True

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        wait(seconds)

    def vaults(self) -> list[Contract]:
        """The contracts that the walk moves money in."""
        raise NotImplementedError

    @invariant()
    def every_vault_holds_what_it_owes(self) -> None:
        for vault in self.vaults():
            assert vault.solvent()
            assert self.network.token.balanceOf(vault.address) == vault.held(), vault.name


class SettlementWalk(Walk):
    """The operator is a thief at times: the guardian strikes what it posts then, in its delay."""

    def __init__(self) -> None:
        super().__init__()
        self.contract = self.network.settlement
        self.earned = [[0] * len(PEOPLE), [0] * len(PEOPLE)]
        self.spent = [0] * len(PEOPLE)
        self.posted: list[tuple[int, int, list[PayoutEntry], Any]] = []

    def vaults(self) -> list[Contract]:
        return [self.contract, self.network.stakes]

    @rule(payer=PERSON, account=PERSON, amount=AMOUNT)
    def deposit(self, payer: int, account: int, amount: int) -> None:
        self.attempt(self.contract, "deposit", PEOPLE[account].address, amount, who=PEOPLE[payer].address)

    @rule(payer=PERSON, pool=st.integers(0, 2), amount=AMOUNT)
    def fund(self, payer: int, pool: int, amount: int) -> None:
        self.attempt(self.contract, "fund", pool, amount, who=PEOPLE[payer].address)

    @rule(pool=st.integers(0, 1), gains=st.lists(st.integers(0, 3 * USD), min_size=4, max_size=4), spend=PERSON)
    def post(self, pool: int, gains: list[int], spend: int) -> None:
        earned = [old + gain for old, gain in zip(self.earned[pool], gains, strict=True)]
        spent = [old + (sum(gains) if i == spend else 0) for i, old in enumerate(self.spent)]
        entries = [PayoutEntry(p.address, e, s) for p, e, s in zip(PEOPLE, earned, spent, strict=True)]
        tree = settlement_tree(entries)
        epoch = self.contract.pools(pool)[3] + 1
        if self.attempt(self.contract, "post_root", pool, epoch, tree.root, 4, sum(earned), who=OPERATOR):
            self.earned[pool] = earned
            self.posted.append((pool, epoch, entries, tree))
            if pool == 0:
                self.spent = spent

    @rule(pool=st.integers(0, 1), thief=PERSON)
    def steal(self, pool: int, thief: int) -> None:
        """All that the pool holds, promised to one. Honest books go on from the root before it."""
        before = self.contract.pools(pool)
        entries = [PayoutEntry(PEOPLE[thief].address, before[0], 0)]
        tree = settlement_tree(entries)
        arguments = (pool, before[3] + 1, tree.root, 1, before[0])
        if not self.attempt(self.contract, "post_root", *arguments, who=OPERATOR):
            return
        shown = (pool, before[3] + 1, entries[0].values(), 0, tree.path(0))
        assert not self.attempt(self.contract, "claim", *shown, who=PEOPLE[thief].address)
        assert not self.attempt(self.contract, "record_spent", *shown[1:], who=OPERATOR)
        assert self.attempt(self.contract, "strike_root", pool, before[3] + 1, who=GUARDIAN)
        assert self.contract.pools(pool) == before

    @rule(pool=st.integers(0, 2), act=st.sampled_from(["stop", "lift"]), who=st.sampled_from([GUARDIAN, OPERATOR]))
    def guard(self, pool: int, act: str, who: str) -> None:
        done = self.attempt(self.contract, act, pool, who=who)
        assert not (done and who == OPERATOR)

    @precondition(lambda self: self.posted)
    @rule(back=st.integers(0, 1))
    def strike(self, back: int) -> None:
        """Struck by mistake, or too late: the books go on from the root before it."""
        pool, epoch, _, _ = self.posted[-1]
        if self.attempt(self.contract, "strike_root", pool, epoch - back, who=GUARDIAN):
            assert back == 0
            self.posted.pop()
            self.struck(pool)

    def struck(self, pool: int) -> None:
        last = next((entries for p, _, entries, _ in reversed(self.posted) if p == pool), None)
        self.earned[pool] = [entry.earned for entry in last] if last else [0] * len(PEOPLE)
        if pool == 0:
            self.spent = [entry.spent for entry in last] if last else [0] * len(PEOPLE)

    @precondition(lambda self: self.posted)
    @rule(data=st.data(), person=PERSON, act=st.sampled_from(["claim", "claim_to_bond", "record_spent"]))
    def use_a_root(self, data: st.DataObject, person: int, act: str) -> None:
        pool, epoch, entries, tree = data.draw(st.sampled_from(self.posted))
        shown = (epoch, entries[person].values(), person, tree.path(person))
        arguments = shown if act == "record_spent" else (pool, *shown)
        self.attempt(self.contract, act, *arguments, who=PEOPLE[person].address)

    @rule(person=PERSON, amount=AMOUNT)
    def request_exit(self, person: int, amount: int) -> None:
        self.attempt(self.contract, "request_exit", amount, who=PEOPLE[person].address)

    @rule(person=PERSON)
    def leave(self, person: int) -> None:
        self.attempt(self.contract, "exit", PEOPLE[person].address, who=OPERATOR)

    @invariant()
    def promises_are_funded_and_nobody_gains_more_than_was_earned(self) -> None:
        for pool in range(2):
            funded, promised, paid, _ = self.contract.pools(pool)
            assert paid <= promised <= funded
            assert all(
                self.contract.claimed(pool, p.address) <= e for p, e in zip(PEOPLE, self.earned[pool], strict=True)
            )
        for i, person in enumerate(PEOPLE):
            balance = self.network.token.balanceOf(person.address)
            assert balance <= RICH + self.contract.deposited(person.address) + self.earned[0][i] + self.earned[1][i]
            assert self.contract.exited(person.address) <= self.contract.deposited(person.address)


class StakeWalk(Walk):
    """Four people want the last two places, or those of the others, who do nothing."""

    deployed = staticmethod(crowded_network)

    def __init__(self) -> None:
        super().__init__()
        self.stakes = self.network.stakes
        self.keys = 5000
        self.dispute = self.network.dispute.address
        self.others = self.stakes.held()

    def vaults(self) -> list[Contract]:
        return [self.stakes]

    @rule(person=PERSON, amount=st.sampled_from([MIN_STAKE - 1, MIN_STAKE, MIN_STAKE * 11 // 10 + 1, 3 * MIN_STAKE]))
    def join(self, person: int, amount: int) -> None:
        self.stakes_with_key("join", person, "http://v", amount)

    @rule(person=PERSON)
    def change_key(self, person: int) -> None:
        self.stakes_with_key("set_vote_key", person)

    def stakes_with_key(self, function: str, person: int, *more: Any) -> None:
        self.keys += 1
        vote_key, operator = key(self.keys), PEOPLE[person].address
        proof = self.network.signed(vote_key, self.stakes, VoteKey(operator, vote_key.address))
        self.attempt(self.stakes, function, vote_key.address, proof, *more, who=operator)

    @rule(person=PERSON, amount=AMOUNT, act=st.sampled_from(["deposit", "request_unbond", "unbond_bond"]))
    def move_own(self, person: int, amount: int, act: str) -> None:
        self.attempt(self.stakes, act, amount, who=PEOPLE[person].address)

    @rule(person=PERSON, who=PERSON)
    def activate(self, person: int, who: int) -> None:
        """By anyone; never before its time."""
        _, _, _, _, _, pending, since = self.stakes.validator_of(PEOPLE[person].address)
        done = self.attempt(self.stakes, "activate", PEOPLE[person].address, who=PEOPLE[who].address)
        assert not done or (pending and now() >= since + ACTIVATE_S)

    @rule(person=PERSON)
    def unbond_all(self, person: int) -> None:
        _, stake, _, _, _, pending, _ = self.stakes.validator_of(PEOPLE[person].address)
        self.attempt(self.stakes, "request_unbond", stake + pending, who=PEOPLE[person].address)

    @rule(payer=PERSON, person=PERSON, amount=AMOUNT)
    def bond(self, payer: int, person: int, amount: int) -> None:
        self.attempt(self.stakes, "deposit_bond", PEOPLE[person].address, amount, who=PEOPLE[payer].address)

    @rule(person=PERSON)
    def fetch(self, person: int) -> None:
        me = PEOPLE[person].address
        self.attempt(self.stakes, "finish_unbond", who=me)
        self.attempt(self.stakes, "finish_unbond_bond", me, who=OPERATOR)
        self.attempt(self.stakes, "withdraw", me, who=me)

    @rule(person=PERSON, other=PERSON, bps=st.sampled_from([500, 5000, 10_000]), back=st.integers(0, 3))
    def slash(self, person: int, other: int, bps: int, back: int) -> None:
        vote_key = self.stakes.validator_of(PEOPLE[person].address)[0]
        index = max(0, self.stakes.history_length(vote_key) - 1 - back)
        version = self.stakes.history_at(vote_key, index)[0]
        arguments = (vote_key, version, index, bps, PEOPLE[other].address, INSURANCE)
        self.attempt(self.stakes, "slash", *arguments, who=self.dispute)

    @rule(person=PERSON, other=PERSON, amount=AMOUNT, act=st.sampled_from(["lock", "release", "forfeit"]))
    def use_bond(self, person: int, other: int, amount: int, act: str) -> None:
        me, orders = PEOPLE[person].address, self.network.orders.address
        if act == "forfeit":
            self.attempt(self.stakes, "forfeit_bond", me, amount, PEOPLE[other].address, INSURANCE, who=self.dispute)
        elif act == "lock":
            self.attempt(self.stakes, "lock", me, amount, amount // 2, who=orders)
        else:
            self.attempt(self.stakes, act, me, amount, who=orders)

    @invariant()
    def totals_are_the_sum_of_weights_and_stakes_of_what_is_held(self) -> None:
        stakes = self.stakes
        known = {person.address: stakes.validator_of(person.address) for person in PEOPLE}
        weights = {address: 0 if jailed else stake for address, (_, stake, _, _, jailed, _, _) in known.items()}
        placed = set(stakes.all_operators())
        assert len(placed) <= PLACES
        assert stakes.total_at(stakes.version()) == sum(weights.values()) + MIN_STAKE * len(placed - known.keys())
        assert placed & known.keys() == {a for a, weight in weights.items() if weight}
        staked = sum(stake + unbonding + pending for _, stake, unbonding, _, _, pending, _ in known.values())
        bonds = sum(sum(stakes.bond_of(address)[:3]) for address in known)
        owed = sum(stakes.owed(address) for address in (*known, INSURANCE))
        assert stakes.held() == self.others + staked + bonds + owed


class LeaseWalk(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.orders: list[tuple[Order, BidBook | None]] = []
        self.chain = self.network.orders

    def vaults(self) -> list[Contract]:
        return [self.network.escrow, self.network.stakes, self.network.book]

    ORDER = st.integers(0, 2)
    PRICES = st.dictionaries(st.integers(0, 4), st.integers(1, 4 * USD), max_size=5)

    def pick(self, which: int) -> tuple[int, Order, BidBook | None]:
        place = which % len(self.orders)
        return place, *self.orders[place]

    @precondition(lambda self: len(self.orders) < 3)
    @rule(person=PERSON, deposit=st.integers(USD, 5 * USD), attempts=st.integers(0, 3), rule_=st.integers(0, 1))
    def order(self, person: int, deposit: int, attempts: int, rule_: int) -> None:
        order = place_order(
            self.network,
            deposit=deposit,
            max_attempts=attempts,
            renter=PEOPLE[person],
            payment_rule=rule_,
            duration_s=5000,
        )
        self.orders.append((order, None))

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, prices=PRICES)
    def certify(self, which: int, prices: dict[int, int]) -> None:
        place, order, _ = self.pick(which)
        book = order.book(prices)
        task = order.task(book)
        if book.ranking:
            done = self.attempt(self.network.tasks, "accept_match", *order.certificate(book), who=OPERATOR)
        else:
            arguments = (task.values(), 0, order.votes(task))
            done = self.attempt(self.network.tasks, "accept_no_match", *arguments, who=OPERATOR)
        if done:
            self.orders[place] = (order, book)

    @precondition(lambda self: self.orders)
    @rule(which=ORDER)
    def reopen(self, which: int) -> None:
        _, order, _ = self.pick(which)
        if self.attempt(self.chain, "reopen", order.order_id, order.policy.values(), who=OPERATOR):
            order.attempt += 1

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, act=st.sampled_from(["pause", "resume", "cancel_order", "expire_attempt"]))
    def renter_acts(self, which: int, act: str) -> None:
        _, order, _ = self.pick(which)
        self.attempt(self.chain, act, order.order_id, who=order.renter.address)

    @precondition(lambda self: self.orders)
    @rule(which=ORDER)
    def start(self, which: int) -> None:
        _, order, _ = self.pick(which)
        self.attempt(self.chain, "confirm_start", order.order_id, bytes(32), who=order.lease["provider"])

    @precondition(lambda self: self.orders)
    @rule(which=ORDER)
    def notice(self, which: int) -> None:
        _, order, _ = self.pick(which)
        self.attempt(self.chain, "give_notice", order.order_id, who=order.lease["provider"])

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, rate=st.integers(0, 4 * USD), duration_s=st.integers(0, 10_000))
    def update(self, which: int, rate: int, duration_s: int) -> None:
        _, order, _ = self.pick(which)
        moves = self.network.moves
        change = (order.order_id, b"\6" * 32, rate, duration_s, moves.update_seq(order.order_id) + 1)
        if self.attempt(moves, "propose_update", *change, who=order.renter.address):
            self.attempt(moves, "accept_update", *change, who=order.lease["provider"])

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, reason=st.integers(1, 4), by_provider=st.booleans())
    def close(self, which: int, reason: int, *, by_provider: bool) -> None:
        _, order, _ = self.pick(which)
        who = order.lease["provider"] if by_provider else order.renter.address
        self.attempt(self.chain, "close", order.order_id, reason, who=who)

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, reason=st.sampled_from([16, 17, 18]), ago=st.integers(0, 500))
    def hand_over(self, which: int, reason: int, ago: int) -> None:
        _, order, book = self.pick(which)
        lease = order.lease
        if book is None or lease["state"] not in (1, 2, 3):
            return
        since = now() - ago
        message = Down(order.order_id, lease["term"], lease["provider"], since)
        votes = self.network.votes(message) if reason == 17 else []
        shown = (order.order_id, order.record(book).values(), reason, since, votes, bytes(65))
        self.attempt(self.network.moves, "hand_over", *shown, who=lease["provider"])

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, position=st.integers(0, 3))
    def take_over(self, which: int, position: int) -> None:
        _, order, book = self.pick(which)
        if book is None or order.lease["state"] != 6:
            return
        record = order.record(book)
        claimant = record.chosen[min(position, 2)].provider
        self.attempt(self.network.moves, "take_over", order.order_id, record.values(), position, b"", who=claimant)

    @precondition(lambda self: self.orders)
    @rule(which=ORDER, amount=AMOUNT)
    def top_up_and_settle(self, which: int, amount: int) -> None:
        _, order, _ = self.pick(which)
        self.attempt(self.network.escrow, "top_up", order.order_id, amount, who=PEOPLE[0].address)
        self.attempt(self.network.escrow, "settle", order.order_id, who=OPERATOR)

    @precondition(lambda self: self.orders)
    @rule(which=ORDER)
    def demand_book(self, which: int) -> None:
        _, order, _ = self.pick(which)
        self.attempt(self.network.book, "demand_book", order.order_id, order.attempt, who=PEOPLE[0].address)

    @rule(who=st.integers(0, 9))
    def withdraw(self, who: int) -> None:
        account = self.accounts()[who]
        self.attempt(self.network.escrow, "withdraw", account, who=account)

    def accounts(self) -> list[str]:
        return [*(p.address for p in PEOPLE), *(p.address for p in self.network.providers), TREASURY]

    @invariant()
    def what_the_escrow_holds_is_deposits_and_debts_and_locks_belong_to_leases(self) -> None:
        escrow = self.network.escrow
        deposits = sum(escrow.deposit_of(order.order_id) for order, _ in self.orders)
        assert escrow.held() == deposits + sum(escrow.owed(a) for a in self.accounts())
        locked = sum(self.network.stakes.bond_of(p.address)[1] for p in self.network.providers)
        assert locked == sum(order.lease["locked"] for order, _ in self.orders)
        assert self.network.book.held() % BOOK_BOND == 0

    def teardown(self) -> None:
        """An exit always exists: each renter ends its order, all accounts withdraw, and no money is left."""
        for order, _ in self.orders:
            if order.state not in (4, 5):
                ended = self.attempt(self.chain, "cancel_order", order.order_id, who=order.renter.address)
                assert ended or self.attempt(self.chain, "close", order.order_id, 1, who=order.renter.address)
        for account in self.accounts():
            self.attempt(self.network.escrow, "withdraw", account, who=account)
        assert self.network.token.balanceOf(self.network.escrow.address) == 0
        assert all(self.network.stakes.bond_of(p.address)[1] == 0 for p in self.network.providers)
        super().teardown()


WALKS = (SettlementWalk, StakeWalk, LeaseWalk)
SHORT = settings(max_examples=10, stateful_step_count=50)
"""About 1,500 steps over the three walks; the soak has more than a hundred times as many."""
