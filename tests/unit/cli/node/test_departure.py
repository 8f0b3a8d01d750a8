"""`node drain --by | --off`, and that an agent with leases is not stopped by mistake."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.unit.cli.fake_agent import STATUS, Node

LEASE = {"order": "0x" + "ab" * 32, "state": "active", "notice_ends_at": None, "leaves_at": None}
NOTICED = {**LEASE, "notice_ends_at": 4_102_444_800, "leaves_at": 4_102_444_830.0}


def answer(*leases: dict[str, Any], by: float | None = None) -> dict[str, Any]:
    return {"status": STATUS | {"lease_market": {"departure": {"by": by, "leases": list(leases)}}}}


def test_leases_get_notice_and_the_owner_sees_when_each_leaves(node: Node) -> None:
    node.answer = answer(LEASE, NOTICED, by=1.0)
    result = node.run("drain", "--by", "2h")
    (asked,) = node.requests
    assert (result.exit_code, asked["do"]) == (0, "leave")
    assert abs(asked["leave_by_unix_s"] - time.time() - 7_200) < 60
    assert "not given yet" in result.stdout
    assert "2100-01-01" in result.stdout or "2099-12-31" in result.stdout
    assert "drain --off" in result.stderr


def test_it_can_be_called_off(node: Node) -> None:
    node.answer = answer(NOTICED)
    result = node.run("drain", "--off", "--json")
    assert (json.loads(result.stdout), node.requests) == (
        {"by": None, "leases": [NOTICED]},
        [{"do": "leave", "leave_by_unix_s": None}],
    )
    assert "stay" in node.run("drain", "--off").stderr


def test_both_at_once_mean_nothing(node: Node) -> None:
    assert node.run("drain", "--by", "2h", "--off").exit_code == 2
    assert node.requests == []


def test_an_agent_with_leases_is_not_stopped_by_mistake(node: Node) -> None:
    node.answer = answer(LEASE)
    result = node.run("drain", "--no-wait")
    assert (result.exit_code, [each["do"] for each in node.requests]) == (1, ["status"])
    assert "drain --by TIME" in result.stderr
    assert node.run("drain", "--no-wait", "--anyway").exit_code == 0
    assert node.requests[-1] == {"do": "drain"}


@pytest.mark.parametrize("status", [{}, {"lease_market": {"departure": {"by": None, "leases": []}}}])
def test_an_agent_without_leases_is_stopped_as_ever(node: Node, status: dict[str, Any]) -> None:
    node.answer = {"status": STATUS | status}
    assert node.run("drain", "--no-wait").exit_code == 0
    assert node.requests[-1] == {"do": "drain"}
