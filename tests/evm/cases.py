"""Random inputs for differential tests of Python against the contracts: auctions, honest or forged, and streams."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from sparewatt.market.accrual import PaymentStream, due_uusd, settle
from sparewatt.market.rule import BidBook, awards_of, book_of, leaf_of, snapshot_tree, task_of
from sparewatt.protocol.contracts.match import Bid, BidLeaf, OrderTerms, Profile, Task
from sparewatt.protocol.contracts.merkle import MerkleTree
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order, place_order
from tests.evm.machine import Contract, Reverted, now, rolled_back, wait
from tests.evm.network import FEE_BPS, TREASURY, USD, Network, profile_of
from tests.order_terms import order_terms

BIDS_MAX = 8
PRICE_END = 1 << 40


@dataclass(frozen=True)
class Case:
    policy: OrderTerms
    profiles: tuple[Profile, ...]
    snapshot: MerkleTree
    book: BidBook
    task: Task

    def profile(self, leaf: BidLeaf) -> Profile:
        return next(profile for profile in self.profiles if profile.provider == leaf.provider)


def edge(rng: random.Random, end: int, usual: int) -> int:
    """Often a common value, sometimes the smallest or the largest."""
    return rng.choice([0, 1, end - 1, rng.randrange(end), *[rng.randrange(usual) for _ in range(6)]])


def random_policy(rng: random.Random, providers: list[str]) -> OrderTerms:
    mask = rng.choice([0, 0, 0b1110, rng.getrandbits(256)])
    return order_terms(
        countries=mask,
        tiers=rng.choice([0, 0, 0b111]),
        gpu_models=rng.choice([0, 0, 0b11]),
        min_gpu_class=rng.choice([0, 0, 2]),
        min_vram_gb=rng.choice([0, 0, 24]),
        gpu_units=rng.choice([1, 1, 2]),
        compliance=rng.choice([0, 0, 0b10]),
        min_uptime_ppm=rng.choice([0, 0, 500_000]),
        min_reputation_ppm=rng.choice([0, 0, 500_000]),
        max_price_uusd=rng.choice([PRICE_END - 1, 3 * USD, rng.randrange(1, PRICE_END)]),
        latency_value=edge(rng, 1 << 20, 1000),
        rtt_row=rng.randbytes(32),
        payment_rule=rng.randrange(2),
        only=tuple(rng.sample(providers, rng.choice([0, 0, 0, 2]))) if len(providers) > 1 else (),
        ignore=tuple(rng.sample(providers, rng.choice([0, 0, 1]))) if providers else (),
    )


def random_profile(rng: random.Random, provider: str) -> Profile:
    return profile_of(
        provider,
        country=rng.choice([1, 2, 3, 255]),
        zone=rng.randrange(32),
        tier=rng.randrange(3),
        gpu_model=rng.randrange(3),
        gpu_class=rng.randrange(5),
        vram_gb=rng.choice([8, 24, 80]),
        gpu_units=rng.choice([1, 2, 8]),
        compliance=rng.getrandbits(2),
        uptime_ppm=rng.choice([0, 1, 10**6, rng.randrange(10**6), 999_000]),
        reputation_ppm=rng.choice([0, 1, 10**6, rng.randrange(10**6), 999_000]),
    )


def random_case(rng: random.Random, order_id: bytes, *, stake_version: int = 1) -> Case:
    providers = [f"0x{rng.getrandbits(160):040x}" for _ in range(rng.randrange(BIDS_MAX + 1))]
    policy = random_policy(rng, providers)
    profiles, snapshot = snapshot_tree(random_profile(rng, provider) for provider in providers)
    alike = rng.random() < 0.3
    if alike:  # equal profiles and prices: ties
        profiles, snapshot = (
            snapshot_tree(replace(profiles[0], provider=p) for p in providers) if providers else (profiles, snapshot)
        )
    leaves = []
    for profile in profiles:
        price = USD if alike else 1 + edge(rng, PRICE_END - 1, 5 * USD)
        bid = Bid(order_id, 0, profile.provider, price, rng.randbytes(32), rng.randbytes(32))
        leaves.append(leaf_of(policy, bid, profile))
    book = book_of(order_id, leaves)
    task = task_of(
        book,
        attempt=0,
        policy_hash=struct_hash(policy),
        snapshot_epoch=1,
        snapshot_root=snapshot.root,
        stake_version=stake_version,
    )
    return Case(policy, profiles, snapshot, book, task)


def require_same_judgement(window: Contract, case: Case) -> None:
    profiles = [case.profile(leaf).values() for leaf in case.book.leaves]
    leaves = [leaf.values() for leaf in case.book.leaves]
    truths, best, pay = window.judge(case.task.values(), case.policy.values(), profiles, leaves)
    assert all(truths)
    assert tuple(best) == case.book.candidates
    assert pay == awards_of(case.policy, case.book)[0].price_uusd


def forged_leaf(rng: random.Random, leaf: BidLeaf) -> BidLeaf:
    field, end = rng.choice(
        [("uptime_ppm", 1 << 32), ("reputation_ppm", 1 << 32), ("rtt_ms", 1 << 16), ("status", 13), ("score", 1 << 64)]
    )
    old = getattr(leaf, field)
    others = [value for value in ((old + 1) % end, (old - 1) % end, rng.randrange(end)) if value != old]
    change: dict[str, Any] = {field: rng.choice(others)}
    return replace(leaf, **change)


def require_false(window: Contract, rng: random.Random, case: Case) -> None:
    """A leaf with any other value is detected."""
    if not case.book.leaves:
        return
    leaf = rng.choice(case.book.leaves)
    forged = forged_leaf(rng, leaf)
    shown = (case.task.values(), case.policy.values(), [case.profile(leaf).values()], [forged.values()])
    assert window.judge(*shown)[0] == [False] or window.judge(*shown)[0] == (False,)


def evidence_about(rng: random.Random, case: Case, order: Order) -> list[tuple[str, tuple[Any, ...]]]:
    """False challenges against the task of the case, made of public data only."""
    book, count = case.book, len(case.book.leaves)
    if not count:
        return []
    vote = order.votes(case.task, voters=order.network.validators[:1])
    accused = (case.task.values(), 0, vote)

    def placed(index: int) -> tuple[Any, ...]:
        return book.leaves[index].values(), index, book.tree.path(index)

    a, b = rng.randrange(count), rng.randrange(count)
    leaf = book.leaves[a]
    index = next(i for i, p in enumerate(case.profiles) if p.provider == leaf.provider)
    profile = (case.profiles[index].values(), index, case.snapshot.path(index))
    policy = case.policy.values()
    candidate = (case.task.first, case.task.second, case.task.third)[slot := rng.randrange(3)]
    shown = placed(candidate) if candidate < count else placed(b)
    return [
        ("challenge_leaf", (*accused, policy, placed(a), [profile], False)),
        ("challenge_leaf", (*accused, policy, placed(a), [profile], True)),
        ("challenge_rank", (*accused, slot, placed(a), shown)),
        ("challenge_order", (*accused, placed(a), placed(min(a + 1, count - 1)))),
    ]


def require_honest_is_safe(rng: random.Random, order: Order) -> None:
    case = random_case(rng, order.order_id, stake_version=order.stake_version)
    for function, arguments in evidence_about(rng, case, order):
        try:
            order.network.dispute.send(function, arguments, who=TREASURY)
        except Reverted:
            continue
        raise AssertionError(f"an honest vote was slashed by {function}")


def require_forged_is_punished(rng: random.Random, order: Order) -> None:
    """Forge one leaf, with a tree that is consistent with it."""
    case = random_case(rng, order.order_id, stake_version=order.stake_version)
    if not case.book.leaves:
        return
    victim = rng.randrange(len(case.book.leaves))
    leaves = [forged_leaf(rng, leaf) if i == victim else leaf for i, leaf in enumerate(case.book.leaves)]
    book = book_of(order.order_id, leaves)
    task = replace(case.task, bid_root=book.tree.root)
    vote = order.votes(task, voters=order.network.validators[:1])
    index = next(i for i, p in enumerate(case.profiles) if p.provider == book.leaves[victim].provider)
    profile = (case.profiles[index].values(), index, case.snapshot.path(index))
    shown = (book.leaves[victim].values(), victim, book.tree.path(victim))
    with rolled_back():
        order.network.dispute.challenge_leaf(task.values(), 0, vote, case.policy.values(), shown, [profile], False)


def compare_streams(network: Network, rng: random.Random, *, settlements: int) -> None:
    """Call the escrow as its order contract does, and the Python model in step with it."""
    escrow, orders = network.escrow, network.orders.address
    done = 0
    while done < settlements:
        with rolled_back():
            done += walk_one_stream(network, escrow, orders, rng)


def walk_one_stream(network: Network, escrow: Contract, orders: str, rng: random.Random) -> int:
    lease, payee = rng.randbytes(32), f"0x{rng.getrandbits(160):040x}"
    deposit = rng.choice([1, 1000, USD, 10**9])
    payer = network.providers[0].address
    escrow.open(lease, payer, deposit, who=orders)
    model, pay, fee = PaymentStream(deposit), 0, 0
    for step in range(20):
        if model.rate_uusd == 0:
            rate, length = rng.choice([1, 3599, USD, rng.randrange(1, PRICE_END)]), rng.choice([1, 500, 10**6])
            escrow.start(lease, payee, rate, now() + length, who=orders)
            model = replace(model, rate_uusd=rate, since=now(), end_at=now() + length, paid_uusd=0)
        wait(rng.choice([0, 1, 2, 59, 3600, rng.randrange(100_000)]))
        at = now() - rng.choice([0, 0, 0, rng.randrange(100)])
        assert escrow.accrued(lease) == due_uusd(model, at=now())
        act = rng.choice(["settle", "settle", "stop", "change_rate", "top_up"])
        if act == "top_up":
            escrow.top_up(lease, 1 + rng.randrange(USD), who=payer)
            model = replace(model, deposit_uusd=escrow.deposit_of(lease))
            continue
        settled = settle(model, at=at if act == "stop" else now(), fee_bps=FEE_BPS)
        if act == "change_rate" and settled.stream.deposit_uusd == 0:
            continue
        model, pay, fee = settled.stream, pay + settled.pay_uusd, fee + settled.fee_uusd
        if act == "stop":
            escrow.stop(lease, at, who=orders)
        elif act == "change_rate":
            end_at = now() + rng.choice([60, 10**6])
            escrow.change_rate(lease, USD, end_at, who=orders)
            model = replace(model, rate_uusd=USD, since=now(), end_at=end_at, paid_uusd=0)
        else:
            escrow.settle(lease)
        if act == "stop" or model.deposit_uusd == 0:
            model = PaymentStream(model.deposit_uusd)
        assert escrow.stream_of(lease)[2:] == (
            model.rate_uusd,
            model.since,
            model.end_at,
            model.paid_uusd,
            model.deposit_uusd,
        )
        assert (escrow.owed(payee), escrow.owed(TREASURY)) == (pay, fee), step
    return 20


def open_order(network: Network) -> Order:
    return place_order(network)
