"""Replies of the market's endpoints for pages of matches that a small network does not make: typed, so they stay true.

Four validators. The order FOUND was matched in the second round, with bids of every kind and one validator that was not
heard; NOT_FOUND has no eligible bid; OPEN is being voted on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from playwright.sync_api import Page, Route

from sparewatt.protocol.api.lease_income import LeaseIncome, LeaseIncomeList
from sparewatt.protocol.api.lease_match import (
    AuctionPhase,
    LeaseMatch,
    MatchBid,
    MatchBidState,
    MatchCandidate,
    MatchCertificate,
    MatchCounts,
    MatchDecline,
    MatchListEntry,
    MatchOrderSummary,
    MatchRefusal,
    MatchRelaxation,
    MatchScore,
    MatchVote,
    MatchVoter,
)
from sparewatt.protocol.api.leases import CloudPrice, Lease, LeaseList, LeaseQuote, OfferPriceRange, StandingOffer
from sparewatt.protocol.api.market import (
    MarketCertificate,
    MarketLease,
    MarketLeaseList,
    MarketOrder,
    MarketOrderList,
    MarketProvider,
    MarketProviderList,
    MarketSnapshot,
    MarketValidator,
    MarketValidatorList,
    ValidatorVotes,
)

FOUND, NOT_FOUND, OPEN = ("0x" + pair * 32 for pair in ("3f", "9c", "b7"))
VOTE_KEYS = ["0x" + digit * 40 for digit in "1357"]
OPERATORS = ["0x" + digit * 40 for digit in "2468"]
PROVIDERS = [f"0x{number:02x}{'ac0f' * 9}{number:02x}" for number in (0x1A, 0x2B, 0x3C, 0x4D, 0x5E, 0x6F)]
RENTER = "0x" + "77" * 20
DIGEST, OTHER_DIGEST = "0x" + "d1" * 32, "0x" + "e2" * 32
HASH = "0x" + "55" * 32
PPM = 1_000_000


def score(price_uusd: int, *, rtt_ms: int, uptime_ppm: int, reputation_ppm: int) -> MatchScore:
    latency, p_ok = 500 * rtt_ms, max(1, uptime_ppm * reputation_ppm // PPM)
    return MatchScore(
        score=str((price_uusd + latency) * PPM // p_ok),
        price_uusd=price_uusd,
        latency_uusd=latency,
        rtt_ms=rtt_ms,
        p_ok_ppm=p_ok,
        uptime_ppm=uptime_ppm,
        reputation_ppm=reputation_ppm,
    )


def bid(number: int, state: MatchBidState, price: str | None, **changes: Any) -> MatchBid:
    return MatchBid(
        provider=PROVIDERS[number],
        bid_id=f"0x{number + 1:064x}",
        state=state,
        status=changes.pop("status", 0),
        reason=changes.pop("reason", None),
        price_usd=price,
        score=changes.pop("score", None),
        rank=changes.pop("rank", None),
        committed_at=VOTE_KEYS[:3],
        revealed_at=VOTE_KEYS[:3],
    )


BIDS = [
    bid(0, "won", "1.10", rank=1, score=score(1_100_000, rtt_ms=20, uptime_ppm=998_000, reputation_ppm=990_000)),
    bid(1, "standby", "1.05", rank=2, score=score(1_050_000, rtt_ms=190, uptime_ppm=999_000, reputation_ppm=985_000)),
    bid(2, "standby", "0.95", rank=3, score=score(950_000, rtt_ms=60, uptime_ppm=930_000, reputation_ppm=820_000)),
    bid(3, "rejected", "4.20", status=1, reason="OVER_MAX_PRICE"),
    bid(4, "unrevealed", None, status=44, reason="UNREVEALED"),
]
BID_IDS = [one.bid_id or "" for one in BIDS[:4]]


def lists_of(kind: Literal["commit", "reveal"]) -> list[MatchListEntry]:
    return [MatchListEntry(kind=kind, validator=key, bid_ids=BID_IDS) for key in VOTE_KEYS[:3]]


def voters() -> list[MatchVoter]:
    voter = MatchVoter(vote_key="", operator="", weight_usd="100", leads=[], heard=True, problem=None)
    names = zip(VOTE_KEYS, OPERATORS, strict=True)
    *heard, silent = (replace(voter, vote_key=key, operator=operator) for key, operator in names)
    led = [replace(heard[0], leads=[0]), replace(heard[1], leads=[1]), heard[2]]
    return [*led, replace(silent, heard=False, problem="it did not answer within 2 s")]


def found_match() -> LeaseMatch:
    votes = [MatchVote(validator=key, round=1, task_digest=DIGEST, agrees=True) for key in VOTE_KEYS[:3]]
    strange = MatchVote(validator=VOTE_KEYS[2], round=0, task_digest=OTHER_DIGEST, agrees=False)
    late = MatchRefusal(validator=VOTE_KEYS[1], provider=PROVIDERS[5], code=32, reason="LATE", late_by_ms=210)
    candidates = [
        MatchCandidate(provider=PROVIDERS[0], position=0, price_usd="1.10", pay_usd="1.13"),
        MatchCandidate(provider=PROVIDERS[1], position=1, price_usd="1.05", pay_usd="1.05"),
    ]
    return LeaseMatch(
        order=summary(FOUND, "matched"),
        attempt=0,
        attempts=[0],
        version=9,
        phase=AuctionPhase(name="matched", round=1, ends_in_ms=None),
        counts=MatchCounts(
            asked=7, bids=5, declines=1, certified=4, revealed=4, eligible=3, by_reason={"OVER_MAX_PRICE": 1, "BUSY": 1}
        ),
        why=None,
        relaxations=[],
        bids=BIDS,
        declines=[MatchDecline(provider=PROVIDERS[5], code=64, reason="BUSY")],
        refusals=[late],
        lists=[*lists_of("commit"), *lists_of("reveal")],
        votes=[strange, *votes],
        voters=voters(),
        certificate=MatchCertificate(
            task_digest=DIGEST,
            round=1,
            bid_count=4,
            bid_root=HASH,
            candidates=candidates,
            pay_usd="1.13",
            signers=VOTE_KEYS[:3],
            tx=HASH,
            accepted_at=now_s() - 60,
        ),
        record=True,
    )


def not_found_match() -> LeaseMatch:
    empty = found_match()
    reasons = {"VRAM": 4, "OVER_MAX_PRICE": 2, "BUSY": 1}
    return replace(
        empty,
        order=summary(NOT_FOUND, "unmatched"),
        phase=AuctionPhase(name="unmatched", round=0, ends_in_ms=None),
        counts=MatchCounts(asked=7, bids=0, declines=1, certified=0, revealed=0, eligible=0, by_reason=reasons),
        why="0 bids because 4 providers have too little GPU memory, 2 bids asked more than the highest price.",
        relaxations=[
            MatchRelaxation(field="vram_gb", value="24", providers=3),
            MatchRelaxation(field="max_hourly", value="2.4", providers=1),
        ],
        bids=[],
        refusals=[],
        lists=[],
        votes=[MatchVote(validator=key, round=0, task_digest=DIGEST, agrees=True) for key in VOTE_KEYS],
        certificate=MatchCertificate(
            task_digest=DIGEST,
            round=0,
            bid_count=0,
            bid_root="0x" + "00" * 32,
            candidates=[],
            pay_usd=None,
            signers=VOTE_KEYS,
            tx=None,
            accepted_at=now_s() - 30,
        ),
    )


def open_match(ends_at_s: float) -> LeaseMatch:
    """Bids are sealed: nobody knows their prices."""
    sealed = [
        replace(one, state="committed", price_usd=None, score=None, rank=None, revealed_at=[]) for one in BIDS[:3]
    ]
    return replace(
        found_match(),
        order=summary(OPEN, "open"),
        phase=AuctionPhase(name="commit", round=0, ends_in_ms=max(0, int((ends_at_s - time.monotonic()) * 1_000))),
        counts=MatchCounts(asked=7, bids=3, declines=0, certified=0, revealed=0, eligible=0, by_reason={}),
        bids=sealed,
        declines=[],
        refusals=[],
        lists=[],
        votes=[],
        certificate=None,
    )


def summary(order_id: str, state: str) -> MatchOrderSummary:
    return MatchOrderSummary(
        id=order_id,
        renter=RENTER,
        state=state,
        reason=None,
        attempt=0,
        max_attempts=3,
        opened_at=now_s() - 70,
        expires_at=now_s() + 3_600,
        max_hourly_usd="2",
        gpu_units=1,
        duration_s=3_600,
        commit_ms=60_000,
        reveal_ms=3_000,
        stake_version=4,
        snapshot_epoch=12,
        refunded=False,
    )


def now_s() -> int:
    return int(time.time())


def order(order_id: str, state: Any, **changes: Any) -> MarketOrder:
    plain = MarketOrder(
        id=order_id,
        renter=RENTER,
        state=state,
        reason=None,
        attempt=0,
        max_attempts=3,
        created_at=now_s() - 70,
        opened_at=now_s() - 70,
        expires_at=now_s() + 3_600,
        gpu_units=1,
        gpu_models=0,
        gpu_names=["rtx-4090"],
        min_vram_gb=24,
        max_hourly_usd="2",
        duration_s=3_600,
        commit_ms=60_000,
        reveal_ms=3_000,
        only=[],
        deposit_usd="2",
        charged_usd="0",
        refunded_usd=None,
        spec_hash=HASH,
        policy_hash=HASH,
        stake_version=4,
        snapshot_epoch=12,
        candidates=[],
        certificate=None,
        failed=[],
        lease=None,
        final=True,
    )
    return replace(plain, **changes)


def orders() -> list[MarketOrder]:
    accepted = MarketCertificate(
        task_digest=DIGEST, round=1, bid_count=4, signers=VOTE_KEYS[:3], accepted_at=now_s() - 60
    )
    nobody = replace(accepted, bid_count=0, signers=VOTE_KEYS)
    return [
        order(OPEN, "open", opened_at=now_s(), created_at=now_s()),
        order(
            NOT_FOUND,
            "unmatched",
            reason="NONE_ELIGIBLE",
            certificate=nobody,
            min_vram_gb=80,
            gpu_names=["a100"],
            next_attempt_at=now_s() + 600,
        ),
        order(FOUND, "matched", certificate=accepted, candidates=PROVIDERS[:2], lease=lease()),
    ]


def lease() -> MarketLease:
    return MarketLease(
        id=FOUND,
        renter=RENTER,
        state="pending",
        provider=PROVIDERS[0],
        term=1,
        position=0,
        hourly_usd="1.13",
        deposit_usd="2",
        locked_usd="1.13",
        created_at=now_s() - 60,
        confirm_by=now_s(),
        running_since=None,
        ends_at=None,
        paused_at=None,
        may_close_at=None,
        hand_over_reason=None,
        closed_at=None,
        close_reason=None,
        final=True,
    )


def providers() -> list[MarketProvider]:
    plain = MarketProvider(
        id="",
        node_key=None,
        status="active",
        registered_at=now_s(),
        country=56,
        zone=3,
        tier=1,
        gpu_model=44,
        vram_gb=24,
        gpu_units=1,
        price_hint_usd="1.10",
        attested=0,
        free_usd="8.87",
        locked_usd="1.13",
        unbonding_usd="0",
        final=True,
    )
    first, *others = [replace(plain, id=address) for address in PROVIDERS]
    return [replace(first, node_key=LEASED_NODE), *others]


def validators() -> MarketValidatorList:
    plain = MarketValidator(
        id="",
        vote_key="",
        url="https://validator.example:8490",
        weight_usd="100",
        stake_usd="100",
        pending_usd="0",
        unbonding_usd="0",
        slashed_usd="0",
        jailed=False,
        certificates=40,
        votes=31,
        last_vote_at=now_s() - 60,
        recent=ValidatorVotes(agreed=38, differed=1, missed=1),
    )
    names = zip(OPERATORS, VOTE_KEYS, strict=True)
    one, two, three, silent = (replace(plain, id=operator, vote_key=key) for operator, key in names)
    jailed = replace(plain, id=RENTER, vote_key=RENTER, weight_usd="0", stake_usd="0", slashed_usd="50", jailed=True)
    silent = replace(silent, votes=0, last_vote_at=None, recent=ValidatorVotes(missed=40))
    return MarketValidatorList(
        latest_block=1_204,
        final_block=1_203,
        stake_version=4,
        total_usd="400",
        snapshot=MarketSnapshot(epoch=12, root=HASH, count=6, posted_at=now_s() - 25),
        data=[one, two, three, silent, jailed],
    )


def quote() -> LeaseQuote:
    offer = StandingOffer(
        provider=PROVIDERS[0],
        name="node-1",
        place="DE",
        gpu="rtx-4090",
        gpu_count=1,
        vram_gb=24,
        tier="community",
        hourly_usd="0.40",
        free_bond_usd="10",
        measured=["free_bond_usd"],
    )
    cloud = CloudPrice(
        gpu="rtx-4090", cloud="a cloud", instance="g1", hourly_usd="0.79", as_of="2026-11-01", source="its price page"
    )
    return LeaseQuote(
        name="ubuntu",
        count=1,
        offers=[offer, replace(offer, provider=PROVIDERS[1], name=None, hourly_usd="0.52")],
        able=2,
        providers=6,
        funnel=[],
        nearest_relaxations=[],
        prices=OfferPriceRange(least_usd="0.40", median_usd="0.46", dearest_usd="0.52"),
        cloud_prices=[cloud],
        cloud_note=None,
        max_hourly_usd="0.65",
        max_hourly_source="offers",
        duration_s=3_600,
        deposit_usd="0.65",
        total_usd="0.65",
        covers_s=3_600,
        max_attempts=2,
        notes=["Card, place and price are the providers' own claims."],
    )


def own_lease() -> Lease:
    return Lease(
        id="783c8cdbba1ee7fe",
        name="ubuntu",
        order_id=FOUND,
        phase="matched",
        problem=None,
        created_at=now_s() - 70.0,
        image="ubuntu:24.04",
        gpus=1,
        cpus=1.0,
        memory_gb=2.0,
        disk_gb=10.0,
        secrets=[],
        duration_s=3_600,
        max_hourly_usd="2",
        deposit_usd="2",
        spec_hash=HASH,
        order=orders()[-1],
    )


def closed_lease() -> Lease:
    """It cost something, and the rest came back."""
    ended = replace(lease(), state="closed", close_reason="RENTER", closed_at=now_s() - 10, deposit_usd="0")
    over = order(FOUND, "closed", lease=ended, deposit_usd="0", charged_usd="0.42", refunded_usd="1.58")
    return replace(own_lease(), id="00112233aabbccdd", name="over", phase="closed", order=over)


LEASED_NODE = "0x" + "5" * 40
"""That of the first provider; the network under test has no such node."""


def lease_income() -> LeaseIncomeList:
    """Of an owner: one lease runs for two more days, one has ended."""
    now = now_s()
    runs = LeaseIncome(
        id=FOUND,
        provider=PROVIDERS[0],
        node=LEASED_NODE,
        state="active",
        hourly_usd="1.13",
        placed_at=now - 86_400,
        left_at=None,
        ends_at=now + 2 * 86_400,
        earned_usd="20.5",
        due_usd="5.26",
    )
    over = replace(runs, id=NOT_FOUND, state="closed", left_at=now - 600, ends_at=None, earned_usd="0.4", due_usd="0")
    return LeaseIncomeList(data=[runs, over], earned_usd="20.9", due_usd="5.26", hourly_usd="1.13", leases=2)


def serve_market(page: Page) -> None:
    """Answer the page's questions about the market, on a network without a chain."""
    heads: dict[str, Any] = {"latest_block": 1_204, "final_block": 1_203}
    ends_at_s = time.monotonic() + 60
    matches: dict[str, Callable[[], LeaseMatch]] = {
        FOUND: found_match,
        NOT_FOUND: not_found_match,
        OPEN: lambda: open_match(ends_at_s),
    }

    def with_chain(route: Route) -> None:
        reply = route.fetch()
        route.fulfill(response=reply, json={**reply.json(), "chain": True})

    def one_order(route: Route) -> None:
        wanted = route.request.url.rpartition("/")[2]
        found = [one for one in orders() if one.id == wanted]
        missing = {"error": {"message": "There is no order.", "type": "not_found", "param": None, "code": "not_found"}}
        fulfil(route, found[0]) if found else route.fulfill(status=404, json=missing)

    page.route("**/v1/network", with_chain)
    page.route("**/v1/market/orders?*", lambda route: fulfil(route, MarketOrderList(data=orders(), **heads)))
    page.route("**/v1/market/orders/*", one_order)
    page.route("**/v1/market/leases?*", lambda route: fulfil(route, MarketLeaseList(data=[lease()], **heads)))
    page.route("**/v1/market/providers?*", lambda route: fulfil(route, MarketProviderList(data=providers(), **heads)))
    page.route("**/v1/market/validators", lambda route: fulfil(route, validators()))
    page.route("**/v1/leases", lambda route: fulfil(route, LeaseList(data=[own_lease(), closed_lease()])))
    page.route("**/v1/earnings/leases", lambda route: fulfil(route, lease_income()))
    page.route("**/v1/leases/dry-run", lambda route: fulfil(route, quote()))
    page.route("**/v1/leases/*/match*", lambda route: fulfil(route, matches[route.request.url.split("/")[5]]()))


def fulfil(route: Route, reply: msgspec.Struct) -> None:
    route.fulfill(json=msgspec.to_builtins(reply))
