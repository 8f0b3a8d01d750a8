"""The ranges of the match's messages: what a receiver checks before it hashes, scores or stores one.

A message comes from a stranger. Within these ranges no arithmetic of the rule overflows, here or on chain, and no list
is longer than a contract reads. `require_in_range` also checks the widths of all members; it knows no order, no chain
and no signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import (
    CANDIDATES_MAX,
    NO_LEAF,
    Bid,
    BidLeaf,
    BidTerms,
    CommitList,
    Decline,
    Heartbeat,
    Observation,
    Observations,
    OrderTerms,
    Profile,
    ReputationSnapshot,
    RevealList,
    Specification,
    Task,
)
from sparewatt.protocol.contracts.merkle import EMPTY_ROOT
from sparewatt.protocol.contracts.reasons import BidStatus, DeclineReason
from sparewatt.protocol.typed_message import TypedMessage, struct_hash

PPM = 10**6
PRICE_UUSD_END = 1 << 40
LATENCY_VALUE_END = 1 << 20
ZONES = 32
ZONE_AS_CLAIMED = 255
RTT_MS_MAX = 510
CHOSEN_MAX = 8
"""Providers in `only` and in `ignore` of an order."""
LIST_MAX = 128
LEAVES_END = 256
HELD_MAX = 64
SNAPSHOT_MAX = 1 << 20
DURATION_S_MIN = 60
WINDOW_MS = (100, 60_000)
START_S = (10, 3_600)
DOWN_S = (5, 3_600)
GRACE_S = (0, 30 * 86_400)

Span = tuple[str, int, int]
"""A field, its least and its largest value."""

_SPANS: dict[type[TypedMessage], tuple[Span, ...]] = {
    OrderTerms: (
        ("min_uptime_ppm", 0, PPM),
        ("min_reputation_ppm", 0, PPM),
        ("max_price_uusd", 1, PRICE_UUSD_END - 1),
        ("latency_value", 0, LATENCY_VALUE_END - 1),
        ("payment_rule", 0, 1),
        ("commit_ms", *WINDOW_MS),
        ("reveal_ms", *WINDOW_MS),
        ("start_s", *START_S),
        ("standin_s", *START_S),
        ("down_s", *DOWN_S),
        ("reclaim_s", *GRACE_S),
        ("empty_grace_s", *GRACE_S),
        ("duration_s", DURATION_S_MIN, 2**32 - 1),
    ),
    Profile: (("zone", 0, ZONES - 1), ("uptime_ppm", 0, PPM), ("reputation_ppm", 0, PPM)),
    Specification: (("egress", 0, 1),),
    BidTerms: (("disk_kind", 0, 1), ("egress", 0, 1)),
    Bid: (("price_uusd", 1, PRICE_UUSD_END - 1),),
    Decline: (("code", min(DeclineReason), max(DeclineReason)),),
    BidLeaf: (
        ("price_uusd", 1, PRICE_UUSD_END - 1),
        ("uptime_ppm", 0, PPM),
        ("reputation_ppm", 0, PPM),
        ("rtt_ms", 0, RTT_MS_MAX),
        ("status", 0, max(BidStatus)),
    ),
    Task: (("bid_count", 0, LEAVES_END - 1),),
    Observation: (("uptime_ppm", 0, PPM), ("reputation_ppm", 0, PPM)),
    ReputationSnapshot: (("count", 0, SNAPSHOT_MAX),),
}


def spans_of(kind: type[TypedMessage]) -> tuple[Span, ...]:
    return _SPANS.get(kind, ())


def require_in_range(message: TypedMessage) -> None:
    """Raises InvalidField, which names the first member that is out of its range."""
    try:
        struct_hash(message)
    except ValueError as error:
        raise InvalidField(f"{str(error)[:1].upper()}{str(error)[1:]}.", param=str(error).split()[0]) from None
    for name, least, most in spans_of(type(message)):
        number = getattr(message, name)
        if not least <= number <= most:
            raise InvalidField(f"{name} is {number}; it must be from {least} to {most}.", param=name)
    for name, why in _SHAPES.get(type(message), _nothing)(message):
        raise InvalidField(f"{name} {why}.", param=name)


def _nothing(message: Any) -> Iterator[tuple[str, str]]:  # noqa: ARG001 (one of many that take a message)
    return iter(())


def _order_terms(terms: OrderTerms) -> Iterator[tuple[str, str]]:
    for name, chosen in (("only", terms.only), ("ignore", terms.ignore)):
        if len(chosen) > CHOSEN_MAX:
            yield name, f"names at most {CHOSEN_MAX} providers"


def _bid_ids(message: CommitList | RevealList) -> Iterator[tuple[str, str]]:
    yield from _ascending("bid_ids", message.bid_ids, LIST_MAX)


def _heartbeat(heartbeat: Heartbeat) -> Iterator[tuple[str, str]]:
    yield from _ascending("held", heartbeat.held, HELD_MAX)


def _leaf(leaf: BidLeaf) -> Iterator[tuple[str, str]]:
    if leaf.rtt_ms % 2:
        yield "rtt_ms", "counts in steps of 2 ms"
    if leaf.status != BidStatus.ELIGIBLE and leaf.score:
        yield "score", "is 0 for a bid that is not eligible"


def _task(task: Task) -> Iterator[tuple[str, str]]:
    places = (task.first, task.second, task.third)
    used = [place for place in places if place != NO_LEAF]
    if any(place >= task.bid_count for place in used):
        yield "first", "and the others are leaves of the tree, or none (65535)"
    if len(set(used)) != len(used) or places[: len(used)] != tuple(used):
        yield "first", f"and the others are up to {CANDIDATES_MAX} different leaves, without a gap"
    yield from _root("bid_root", task.bid_root, task.bid_count)


def _observation(row: Observation) -> Iterator[tuple[str, str]]:
    if row.zone >= ZONES and row.zone != ZONE_AS_CLAIMED:
        yield "zone", f"is below {ZONES}, or {ZONE_AS_CLAIMED} for as claimed"


def _observations(message: Observations) -> Iterator[tuple[str, str]]:
    yield from _ascending("rows", [int(row.provider, 16) for row in message.rows], SNAPSHOT_MAX)
    for row in message.rows:
        require_in_range(row)


def _snapshot(snapshot: ReputationSnapshot) -> Iterator[tuple[str, str]]:
    yield from _root("root", snapshot.root, snapshot.count)


def _root(name: str, root: bytes, count: int) -> Iterator[tuple[str, str]]:
    if (root == EMPTY_ROOT) != (count == 0):
        yield name, "is 0 for an empty tree, and for no other"


def _ascending(name: str, keys: Sequence[Any], most: int) -> Iterator[tuple[str, str]]:
    if len(keys) > most:
        yield name, f"has at most {most} entries"
    if any(left >= right for left, right in pairwise(keys)):
        yield name, "ascends strictly"


_SHAPES: dict[type[TypedMessage], Callable[[Any], Iterator[tuple[str, str]]]] = {
    OrderTerms: _order_terms,
    CommitList: _bid_ids,
    RevealList: _bid_ids,
    Heartbeat: _heartbeat,
    BidLeaf: _leaf,
    Task: _task,
    Observation: _observation,
    Observations: _observations,
    ReputationSnapshot: _snapshot,
}
