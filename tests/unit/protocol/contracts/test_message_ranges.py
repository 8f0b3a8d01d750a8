"""Ranges of the match's messages: the last good value passes, the next one is refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import (
    NO_LEAF,
    Bid,
    BidCommit,
    BidLeaf,
    BidTerms,
    CommitList,
    Decline,
    Down,
    Heartbeat,
    Observation,
    Observations,
    ReputationSnapshot,
    RevealList,
    RoundReached,
    Specification,
    Task,
)
from sparewatt.protocol.contracts.message_ranges import HELD_MAX, LIST_MAX, require_in_range
from sparewatt.protocol.typed_message import TypedMessage
from tests.vectors.make import GOOD, POLICY, provider

ID = b"\1" * 32
IDS = tuple(n.to_bytes(32, "big") for n in range(200))
BID = Bid(ID, 0, provider(1), 5, ID, ID)
SPEC = Specification(ID, 1, 2_000, 4_096, 10_240, 1, 0)
TERMS = BidTerms(1, 3, 24, 2_000, 4_096, 10_240, 0, 1, 100, 50, 600)
LEAF = BidLeaf(provider(1), 5, ID, ID, 1, 1, 4, 0, 9)
TASK = Task(ID, 0, ID, 1, ID, 1, ID, 3, 2, 0, NO_LEAF)
ROW = Observation(provider(1), 1, 1, 3)
ROWS = Observations(1, 2, (ROW, dataclasses.replace(ROW, provider=provider(2))))
SNAPSHOT = ReputationSnapshot(1, 0, ID, 2, ID)
BEAT = Heartbeat(provider(1), provider(2), ID, 1, 2, IDS[:3])
DECLINE = Decline(ID, 0, provider(1), 64)
TYPICAL: list[TypedMessage] = [
    *(POLICY, GOOD, SPEC, TERMS, BID, LEAF, TASK, ROW, ROWS, SNAPSHOT, BEAT),
    BidCommit(ID, 0, provider(1), ID),
    DECLINE,
    CommitList(ID, 0, IDS[:2]),
    RevealList(ID, 0, ()),
    RoundReached(ID, 0, 7),
    Down(ID, 1, provider(1), 5),
]
SPANS: list[tuple[TypedMessage, str, int, int]] = [
    (POLICY, "min_uptime_ppm", 0, 10**6),
    (POLICY, "min_reputation_ppm", 0, 10**6),
    (POLICY, "max_price_uusd", 1, 2**40 - 1),
    (POLICY, "latency_value", 0, 2**20 - 1),
    (POLICY, "payment_rule", 0, 1),
    (POLICY, "commit_ms", 100, 60_000),
    (POLICY, "reveal_ms", 100, 60_000),
    (POLICY, "start_s", 10, 3_600),
    (POLICY, "standin_s", 10, 3_600),
    (POLICY, "down_s", 5, 3_600),
    (POLICY, "reclaim_s", 0, 30 * 86_400),
    (POLICY, "empty_grace_s", 0, 30 * 86_400),
    (POLICY, "duration_s", 60, 2**32 - 1),
    (GOOD, "zone", 0, 31),
    (GOOD, "uptime_ppm", 0, 10**6),
    (GOOD, "reputation_ppm", 0, 10**6),
    (GOOD, "gpu_units", 0, 2**16 - 1),
    (SPEC, "egress", 0, 1),
    (SPEC, "gpus", 0, 2**16 - 1),
    (TERMS, "disk_kind", 0, 1),
    (TERMS, "egress", 0, 1),
    (BID, "price_uusd", 1, 2**40 - 1),
    (DECLINE, "code", 64, 70),
    (LEAF, "price_uusd", 1, 2**40 - 1),
    (LEAF, "rtt_ms", 0, 510),
    (LEAF, "uptime_ppm", 0, 10**6),
    (LEAF, "reputation_ppm", 0, 10**6),
    (ROW, "uptime_ppm", 0, 10**6),
    (ROW, "reputation_ppm", 0, 10**6),
    (SNAPSHOT, "count", 1, 2**20),
]


def changed(message: Any, **changes: Any) -> Any:
    return dataclasses.replace(message, **changes)


def refusal(message: TypedMessage) -> str:
    with pytest.raises(InvalidField) as caught:
        require_in_range(message)
    return str(caught.value.param)


@pytest.mark.parametrize("message", TYPICAL, ids=lambda message: type(message).__name__)
def test_a_usual_message_passes(message: TypedMessage) -> None:
    require_in_range(message)


@pytest.mark.parametrize(("message", "field", "least", "most"), SPANS)
def test_ends_of_a_range_pass_and_what_is_beyond_does_not(
    message: TypedMessage, field: str, least: int, most: int
) -> None:
    for number in (least, most):
        require_in_range(changed(message, **{field: number}))
    for number in (least - 1, most + 1):
        assert refusal(changed(message, **{field: number})) in (field, camel(field), "root")


def camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.title() for part in rest)


@pytest.mark.parametrize("field", ["only", "ignore"])
def test_an_order_chooses_at_most_eight_providers(field: str) -> None:
    require_in_range(changed(POLICY, **{field: tuple(map(provider, range(8)))}))
    assert refusal(changed(POLICY, **{field: tuple(map(provider, range(9)))})) == field


@pytest.mark.parametrize(
    ("message", "field", "most"),
    [
        (CommitList(ID, 0, ()), "bid_ids", LIST_MAX),
        (RevealList(ID, 0, ()), "bid_ids", LIST_MAX),
        (BEAT, "held", HELD_MAX),
    ],
)
def test_lists_ascend_strictly_and_end(message: TypedMessage, field: str, most: int) -> None:
    require_in_range(changed(message, **{field: IDS[:most]}))
    for wrong in (IDS[: most + 1], (IDS[1], IDS[0]), (IDS[1], IDS[1])):
        assert refusal(changed(message, **{field: wrong})) == field


def test_rows_ascend_by_the_number_of_the_address_whatever_its_case() -> None:
    low, high = "0x" + "0B" * 20, "0x" + "0a" * 20
    require_in_range(changed(ROWS, rows=(changed(ROW, provider=high), changed(ROW, provider=low))))
    assert refusal(changed(ROWS, rows=(changed(ROW, provider=low), changed(ROW, provider=high)))) == "rows"
    assert refusal(changed(ROWS, rows=(ROW, ROW))) == "rows"


def test_a_row_out_of_range_is_found_inside_its_list() -> None:
    assert refusal(changed(ROWS, rows=(changed(ROW, uptime_ppm=10**6 + 1),))) == "uptime_ppm"


@pytest.mark.parametrize(("zone", "good"), [(0, True), (31, True), (32, False), (254, False), (255, True)])
def test_a_zone_is_measured_or_as_claimed(zone: int, *, good: bool) -> None:
    if good:
        require_in_range(changed(ROW, zone=zone))
    else:
        assert refusal(changed(ROW, zone=zone)) == "zone"


@pytest.mark.parametrize(
    "places", [(3, NO_LEAF, NO_LEAF), (0, 0, NO_LEAF), (NO_LEAF, 0, NO_LEAF), (0, NO_LEAF, 1), (1, 2, 1)]
)
def test_candidates_are_different_leaves_of_the_tree_without_a_gap(places: tuple[int, int, int]) -> None:
    first, second, third = places
    assert refusal(changed(TASK, first=first, second=second, third=third)) == "first"


def test_an_empty_tree_has_the_empty_root_and_no_other_has() -> None:
    none = {"first": NO_LEAF, "second": NO_LEAF, "third": NO_LEAF}
    require_in_range(changed(TASK, bid_count=0, bid_root=bytes(32), **none))
    assert refusal(changed(TASK, bid_count=0, **none)) == "bid_root"
    assert refusal(changed(TASK, bid_root=bytes(32))) == "bid_root"
    assert refusal(changed(TASK, bid_count=256)) == "bid_count"
    assert refusal(changed(SNAPSHOT, root=bytes(32))) == "root"


def test_a_leaf_that_is_not_eligible_has_no_score() -> None:
    require_in_range(changed(LEAF, status=12, score=0))
    assert refusal(changed(LEAF, status=1)) == "score"
    assert refusal(changed(LEAF, status=13, score=0)) == "status"
    assert refusal(changed(LEAF, rtt_ms=5)) == "rtt_ms"


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        (BID, "provider", "0x12"),
        (BID, "salt", b"\1"),
        (BID, "attempt", 2**32),
        (BID, "attempt", -1),
        (BEAT, "seq", 2**64),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(message: TypedMessage, field: str, value: Any) -> None:
    assert refusal(changed(message, **{field: value})) == field
