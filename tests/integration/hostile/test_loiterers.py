"""Clients that hold on to a connection are let go in time, and nobody else waits for them."""

from __future__ import annotations

import time

from tests.integration.asking import ask, stream_chat
from tests.integration.hostile.conftest import STALLED, Crowd
from tests.integration.hostile.target import Target
from tests.processes import wait_until

HEAD_S_MAX = 30.0
"""No honest client takes longer for a head."""

FREED_S_MAX = 60.0
"""The deadline is 15 s; this is a ceiling for a crowded machine. The soak measures."""


def left_s(since_s: float, most_s: float) -> float:
    return max(1.0, since_s + most_s - time.monotonic())


def outcomes(target: Target, key: bytes) -> list[str]:
    return [match["outcome"] for match in ask(target.network, "GET", "/v1/matches", key=key.decode()).json()["data"]]


def in_flight(target: Target) -> int:
    return sum(node["in_flight"] for node in ask(target.network, "GET", "/v1/nodes").json()["data"])


def test_others_are_served_beside_them(target: Target, crowd: Crowd) -> None:
    assert stream_chat(target.network, "beside them").done


def test_a_reader_that_stalls_is_let_go_and_its_job_ends(target: Target, crowd: Crowd) -> None:
    ceiling_s = left_s(crowd.stalled.since_s, FREED_S_MAX)
    wanted = ["cancelled"] * STALLED
    wait_until(lambda: outcomes(target, crowd.key) == wanted, "jobs that nobody reads go on", ceiling_s=ceiling_s)
    wait_until(lambda: in_flight(target) == 0, "their nodes go on")


def test_the_kernel_lets_go_of_it_as_well(crowd: Crowd) -> None:
    """A socket that is merely closed keeps all that was not sent, until the client reads it or minutes have passed."""
    ceiling_s = left_s(crowd.stalled.since_s, FREED_S_MAX)
    wait_until(lambda: crowd.stalled.held() == 0, "their connections stand", ceiling_s=ceiling_s)


def test_a_head_that_never_ends_is_given_up(crowd: Crowd) -> None:
    ceiling_s = left_s(crowd.stalled.since_s, HEAD_S_MAX)
    wait_until(lambda: crowd.trickling.ended_after_s is not None, "it may go on for ever", ceiling_s=ceiling_s)
