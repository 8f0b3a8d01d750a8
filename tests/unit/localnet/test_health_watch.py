"""What the terminal of a local network says of the gateway's health: one line per change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sparewatt.localnet import health_watch
from sparewatt.localnet.health_watch import describe_causes, describe_changes, watch_health
from tests.waiting import until

FULL = {"code": "disk_full", "message": "No room.", "where": "/data"}
AWAY = {"code": "database_unavailable", "message": "It is away.", "where": ""}


def page(*causes: Mapping[str, str]) -> dict[str, Any]:
    return {"status": "not_ready" if causes else "ready", "causes": list(causes)}


def test_a_cause_is_described_with_its_place() -> None:
    assert describe_causes(page(FULL, AWAY)) == {
        "disk_full": "No room. (/data)",
        "database_unavailable": "It is away.",
    }
    assert describe_causes({"status": "ready"}) == {}
    assert describe_causes({"error": {"code": "shutting_down"}}) == {}


def test_a_new_cause_is_a_line_and_so_is_the_end_of_the_last() -> None:
    full, both = describe_causes(page(FULL)), describe_causes(page(FULL, AWAY))
    assert describe_changes({}, full) == ["The gateway is not ready: disk full. No room. (/data)"]
    assert describe_changes(full, full) == []
    assert describe_changes(full, both) == ["The gateway is not ready: database unavailable. It is away."]
    assert describe_changes(both, full) == []
    assert describe_changes(full, {}) == ["The gateway is ready again."]
    assert describe_changes({}, {}) == []


async def test_pages_are_read_again_and_a_gateway_that_does_not_answer_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_watch, "WATCH_S", 0)
    pages = [page(), page(FULL), {}, page(FULL), page(), page()]
    lines: list[str] = []

    async def read_page() -> dict[str, Any]:
        return pages.pop(0) if pages else {}

    watching = asyncio.create_task(watch_health(read_page, lines.append))
    await until(lambda: not pages)
    watching.cancel()
    assert lines == ["The gateway is not ready: disk full. No room. (/data)", "The gateway is ready again."]
