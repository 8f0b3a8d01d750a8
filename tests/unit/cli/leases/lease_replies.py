"""What a gateway replies about leases, for tests of the command line."""

from __future__ import annotations

from typing import Any

ORDER_ID, PROVIDER = "0x" + "ab" * 32, "0x" + "cd" * 20
OTHER_PROVIDER = "0x" + "ce" * 20


def an_offer(provider: str = PROVIDER, hourly: str = "0.4") -> dict[str, Any]:
    return {
        "provider": provider,
        "name": "attic",
        "place": "DE",
        "gpu": "rtx-4090",
        "gpu_count": 1,
        "vram_gb": 25,
        "tier": "community",
        "hourly_usd": hourly,
        "free_bond_usd": "10",
        "measured": ["free_bond_usd"],
    }


def a_quote(**changes: Any) -> dict[str, Any]:
    return {
        "name": "train",
        "count": 1,
        "offers": [an_offer(), an_offer(OTHER_PROVIDER, "0.8")],
        "able": 2,
        "providers": 5,
        "funnel": [{"filter": "region", "dropped": 3, "left": 2}],
        "nearest_relaxations": [],
        "prices": {"least_usd": "0.4", "median_usd": "0.4", "dearest_usd": "0.8"},
        "cloud_prices": [
            {
                "gpu": "rtx-4090",
                "cloud": "RunPod",
                "instance": "RTX 4090 24 GB, on demand",
                "hourly_usd": "0.60",
                "as_of": "2026-03-10",
                "source": "https://prices.example",
            }
        ],
        "cloud_note": None,
        "max_hourly_usd": "1",
        "max_hourly_source": "offers",
        "duration_s": 7_200,
        "deposit_usd": "2",
        "total_usd": "2",
        "covers_s": 7_200,
        "max_attempts": 2,
        "notes": ["The winner starts the container."],
    } | changes


NOBODY = a_quote(
    offers=[],
    able=0,
    prices=None,
    max_hourly_usd=None,
    max_hourly_source=None,
    deposit_usd=None,
    total_usd=None,
    covers_s=None,
    nearest_relaxations=["max_hourly 0.1→0.4 adds 1 node"],
)


def a_market_lease(**changes: Any) -> dict[str, Any]:
    return {
        "id": ORDER_ID,
        "renter": "0x" + "11" * 20,
        "state": "pending",
        "provider": PROVIDER,
        "term": 1,
        "position": 0,
        "hourly_usd": "0.5",
        "deposit_usd": "2",
        "locked_usd": "1",
        "created_at": 1,
        "confirm_by": 30,
        "running_since": None,
        "ends_at": None,
        "paused_at": None,
        "may_close_at": None,
        "hand_over_reason": None,
        "closed_at": None,
        "close_reason": None,
        "final": False,
    } | changes


def an_order(**changes: Any) -> dict[str, Any]:
    return {
        "id": ORDER_ID,
        "renter": "0x" + "11" * 20,
        "state": "open",
        "reason": None,
        "attempt": 0,
        "max_attempts": 0,
        "created_at": 1,
        "opened_at": 1,
        "expires_at": 3_600,
        "gpu_units": 1,
        "gpu_models": 0,
        "gpu_names": [],
        "commit_ms": 800,
        "reveal_ms": 400,
        "certificate": None,
        "min_vram_gb": 0,
        "max_hourly_usd": "1",
        "duration_s": 7_200,
        "only": [],
        "deposit_usd": "2",
        "charged_usd": "0",
        "refunded_usd": None,
        "spec_hash": "0x" + "22" * 32,
        "policy_hash": "0x" + "33" * 32,
        "stake_version": 1,
        "snapshot_epoch": 1,
        "candidates": [],
        "failed": [],
        "lease": None,
        "final": False,
    } | changes


def a_lease(**changes: Any) -> dict[str, Any]:
    return {
        "id": "0123456789abcdef",
        "name": "train",
        "order_id": ORDER_ID,
        "phase": "open",
        "problem": None,
        "created_at": 1.0,
        "image": "me/train:1",
        "gpus": 1,
        "cpus": 1.0,
        "memory_gb": 2.0,
        "disk_gb": 10.0,
        "secrets": [],
        "duration_s": 7_200,
        "max_hourly_usd": "1",
        "deposit_usd": "2",
        "spec_hash": "0x" + "22" * 32,
        "order": an_order(),
    } | changes


MATCHED = a_lease(phase="matched", order=an_order(state="matched", lease=a_market_lease()))
UNMATCHED = a_lease(phase="unmatched", order=an_order(state="unmatched", reason="NONE_ELIGIBLE"))


def details(lease: dict[str, Any]) -> dict[str, Any]:
    return lease | {"content": {"image": "me/train:1"}, "content_hash": "0x" + "44" * 32}


def created(*leases: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "k",
        "name": "train",
        "created": True,
        "max_hourly_usd": "1",
        "total_usd": "2",
        "leases": list(leases),
        "notes": [],
    }


def a_bid(provider: str = PROVIDER, **changes: Any) -> dict[str, Any]:
    return {
        "provider": provider,
        "bid_id": "0x" + "55" * 32,
        "state": "won",
        "status": 0,
        "reason": None,
        "price_usd": "0.4",
        "score": None,
        "rank": 1,
        "committed_at": [],
        "revealed_at": [],
    } | changes


def a_match(phase: str = "commit", **changes: Any) -> dict[str, Any]:
    return {
        "order": {
            "id": ORDER_ID,
            "renter": "0x" + "11" * 20,
            "state": "open",
            "reason": None,
            "attempt": 0,
            "max_attempts": 0,
            "opened_at": 1,
            "expires_at": 3_600,
            "max_hourly_usd": "1",
            "gpu_units": 1,
            "duration_s": 7_200,
            "commit_ms": 800,
            "reveal_ms": 400,
            "stake_version": 1,
            "snapshot_epoch": 1,
            "refunded": False,
        },
        "attempt": 0,
        "attempts": [0],
        "version": 1,
        "phase": {"name": phase, "round": 0, "ends_in_ms": None},
        "counts": {
            "asked": 3,
            "bids": 2,
            "declines": 1,
            "certified": 2,
            "revealed": 2,
            "eligible": 2,
            "by_reason": {},
        },
        "why": None,
        "relaxations": [],
        "bids": [],
        "declines": [],
        "refusals": [],
        "lists": [],
        "votes": [],
        "voters": [],
        "certificate": None,
        "record": False,
    } | changes
