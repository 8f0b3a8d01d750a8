from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.cli.client import ApiReply, decode
from sparewatt.cli.errors import ApiError
from sparewatt.cli.leases.progress import OrderFollower, OrderProgress
from sparewatt.protocol.api.lease_match import LeaseMatch
from sparewatt.protocol.api.leases import Lease
from tests.unit.cli.leases.lease_replies import MATCHED, ORDER_ID, UNMATCHED, a_lease, a_match, an_order

SENDING = a_lease(phase="sending", order_id=None, order=None)
AGAIN = a_lease(phase="unmatched", order=an_order(state="unmatched", reason="NO_QUORUM", max_attempts=2))
CERTIFICATE = {
    "task_digest": "0x1",
    "round": 0,
    "bid_count": 2,
    "bid_root": "0x2",
    "candidates": [],
    "pay_usd": "0.5",
    "signers": ["a", "b", "c"],
    "tx": None,
    "accepted_at": None,
}
VOTER = {
    "vote_key": "a",
    "operator": "o",
    "weight_usd": "1",
    "leads": [],
    "heard": True,
    "problem": None,
}
VOTE = {"validator": "a", "round": 0, "task_digest": "0x1", "agrees": None}


def read_lease(fields: dict[str, Any]) -> Lease:
    return msgspec.convert(fields, Lease)


def read_match(fields: dict[str, Any]) -> LeaseMatch:
    return msgspec.convert(fields, LeaseMatch)


@pytest.mark.parametrize(
    ("fields", "is_over", "is_matched"),
    [
        (SENDING, False, False),
        (a_lease(), False, False),
        (MATCHED, True, True),
        (a_lease(phase="matched", order=an_order(state="matched")), False, False),
        (UNMATCHED, True, False),
        (AGAIN, False, False),
        (a_lease(phase="expired"), True, False),
        (a_lease(phase="closed"), True, False),
        (a_lease(phase="failed"), True, False),
    ],
)
def test_an_order_is_over_when_it_has_a_provider_or_no_attempt_is_left(
    fields: dict[str, Any], *, is_over: bool, is_matched: bool
) -> None:
    progress = OrderProgress(read_lease(fields))
    assert (progress.is_over, progress.is_matched) == (is_over, is_matched)


def test_each_step_is_said_once_and_in_order() -> None:
    progress = OrderProgress(read_lease(SENDING))
    said: list[list[str]] = [progress.news()]
    progress.lease = read_lease(a_lease())
    for match in (
        a_match("commit"),
        a_match("commit"),
        a_match("reveal"),
        a_match("vote", votes=[VOTE], voters=[VOTER]),
        a_match("certified", votes=[VOTE], voters=[VOTER] * 4, certificate=CERTIFICATE),
    ):
        progress.match = read_match(match)
        said.append(progress.news())
    progress.lease = read_lease(MATCHED)
    said.append(progress.news())
    assert [len(lines) for lines in said] == [0, 2, 0, 1, 1, 1, 1]
    spoken = [line for lines in said for line in lines]
    assert spoken[:3] == [f"On chain: order {ORDER_ID}", "Lookup sent to 3 nodes", "2 bids, 1 declined"]
    assert spoken[3:5] == ["Voting, round 0", "Certified by 3 of 4 validators"]
    assert spoken[5].startswith("Matched with 0xcd")


def test_a_second_attempt_is_numbered() -> None:
    progress = OrderProgress(read_lease(a_lease()), read_match(a_match("reveal", attempt=1)))
    assert progress.news()[1:] == ["Attempt 1: Lookup sent to 3 nodes", "Attempt 1: 2 bids, 1 declined"]


def test_an_order_without_a_winner_tells_why_and_what_would_help() -> None:
    relaxation = {"field": "max_hourly", "value": "0.4", "providers": 2}
    match = read_match(a_match("unmatched", why="0 bids because …", relaxations=[relaxation] * 5))
    line = OrderProgress(read_lease(UNMATCHED), match).news()[-1]
    assert line.startswith("0 bids because …")
    assert line.count("max_hourly 0.4 would admit 2.") == 3
    assert OrderProgress(read_lease(UNMATCHED)).news()[-1] == "No provider (NONE_ELIGIBLE)."
    assert OrderProgress(read_lease(AGAIN)).news()[-1] == "No provider (NO_QUORUM). Another attempt follows."


class ScriptedClient:
    """Replies to each path in turn; the last reply stays."""

    def __init__(self, replies: dict[str, list[Any]]) -> None:
        self.replies = replies
        self.asked: list[str] = []

    def get(self, path: str) -> ApiReply:
        self.asked.append(path)
        queue = self.replies[path.partition("?")[0]]
        reply = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(reply, Exception):
            raise reply
        return ApiReply("http://x", None, msgspec.json.encode(reply))  # type: ignore[arg-type]


class SteppedTime:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def follow(
    replies: dict[str, list[Any]], *leases: dict[str, Any], timeout_s: float = 5
) -> tuple[list[OrderProgress], list[str]]:
    said: list[str] = []
    time = SteppedTime()
    client: Any = ScriptedClient(replies)
    follower = OrderFollower(client, said.append, time.monotonic, time.sleep, timeout_s)
    return follower.follow([read_lease(lease) for lease in leases]), said


def missing(status: int) -> ApiError:
    return ApiError("no", http_status=status, api_code="c")


LEASE, MATCH = "/leases/0123456789abcdef", f"/leases/{ORDER_ID}/match"


def test_orders_are_followed_until_all_are_over() -> None:
    other = MATCHED | {"id": "other"}
    replies: dict[str, list[Any]] = {
        LEASE: [SENDING, a_lease(), MATCHED],
        MATCH: [a_match("matched")],
        "/leases/other": [other],
    }
    ended, said = follow(replies, SENDING, other)
    assert all(each.is_matched for each in ended)
    assert any("other" in line for line in said)


@pytest.mark.parametrize("status", [404, 503])
def test_a_match_that_is_not_there_yet_is_asked_for_again(status: int) -> None:
    replies: dict[str, list[Any]] = {
        LEASE: [a_lease(), a_lease(), MATCHED],
        MATCH: [missing(status), a_match("reveal")],
    }
    _, said = follow(replies, SENDING)
    assert any("2 bids" in line for line in said)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            a_match("unmatched", why="No quorum: 2 of 4 validators took part."),
            "No quorum: 2 of 4 validators took part.",
        ),
        (missing(404), "No provider."),
    ],
)
def test_an_attempt_that_ended_between_two_looks_is_told(record: Any, words: str) -> None:
    """The chain's process opens the next one in the same second."""
    replies: dict[str, list[Any]] = {
        LEASE: [a_lease(), a_lease(), MATCHED],
        MATCH: [a_match("reveal"), a_match("commit", attempt=1), record, a_match("matched", attempt=1)],
    }
    _, said = follow(replies, a_lease())
    told = [line.split("  ")[-1] for line in said]
    assert told.index(f"{words} Another attempt follows.") < told.index("Attempt 1: Lookup sent to 3 nodes")


def test_an_attempt_whose_end_was_seen_is_told_once() -> None:
    replies: dict[str, list[Any]] = {
        LEASE: [a_lease(), AGAIN, a_lease(), MATCHED],
        MATCH: [a_match("reveal"), a_match("unmatched", why="0 bids."), a_match("commit", attempt=1)],
    }
    _, said = follow(replies, a_lease())
    assert sum("0 bids." in line for line in said) == 1
    assert not any("No provider." in line for line in said)


def test_other_errors_end_it() -> None:
    with pytest.raises(ApiError):
        follow({LEASE: [a_lease()], MATCH: [missing(500)]}, SENDING)


def test_it_does_not_wait_for_ever() -> None:
    ended, _ = follow({LEASE: [SENDING]}, SENDING, timeout_s=2)
    assert not ended[0].is_over


def test_replies_of_a_newer_gateway_are_read() -> None:
    assert decode(msgspec.json.encode(a_lease() | {"new": 1}), Lease, base_url="x").id == "0123456789abcdef"
