"""Changes to this machine's node: through its agent, or saved for the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S, read_owner_rules
from sparewatt.node.settings import read_saved_settings
from tests.unit.cli.fake_agent import Node


def test_pause_and_resume_go_to_the_agent(node: Node) -> None:
    node.run("pause")
    node.run("resume")
    assert [request["wishes"] for request in node.requests] == [
        {"paused_until_unix_s": UNTIL_RESUMED_UNIX_S},
        {"paused_until_unix_s": 0.0},
    ]
    node.run("pause", "--for", "2h")
    assert 0 < node.requests[-1]["wishes"]["paused_until_unix_s"] < UNTIL_RESUMED_UNIX_S


def test_without_an_agent_changes_apply_from_the_next_start(away: Node) -> None:
    assert "next start" in away.run("pause").stderr
    away.run("schedule", "--between", "22:00-07:00", "--zone", "UTC", "--max-watts", "300")
    kept = read_owner_rules(away.folder)
    assert (kept.paused_until_unix_s, str(kept.hours), kept.watts_max) == (
        UNTIL_RESUMED_UNIX_S,
        "22:00-07:00 (UTC)",
        300.0,
    )
    away.run("schedule", "--always", "--max-watts", "0")
    assert (read_owner_rules(away.folder).hours, read_owner_rules(away.folder).watts_max) == (None, None)


def test_a_schedule_without_options_is_only_shown(node: Node) -> None:
    assert "always" in node.run("schedule").stdout
    assert node.requests == [{"do": "status"}]


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "--for", "soon"),
        ("schedule", "--always", "--between", "1:00-2:00"),
        ("schedule", "--zone", "UTC"),
        ("schedule", "--max-watts", "nan"),
        ("schedule", "--max-temperature", "inf"),
        ("price", "set"),
        ("price", "set", "--prompt", "0.01"),
        ("price", "set", "--completion", "0.01"),
        ("price", "set", "--hourly", "0.1", "--prompt", "0.01", "--completion", "0.02"),
    ],
)
def test_contradicting_or_missing_options_are_usage_errors(away: Node, words: tuple[str, ...]) -> None:
    assert away.run(*words).exit_code == 2


def test_prices_go_to_the_agent_or_are_saved(node: Node, tmp_path: Path) -> None:
    assert "$0.10" in node.run("price", "set", "--hourly", "0.1").stdout
    assert node.requests == [{"do": "price", "hourly_usd": "0.1"}]
    away = Node(tmp_path / "away")
    away.run("price", "set", "--prompt", "0.05", "--completion", "0.2")
    assert read_saved_settings(away.folder).completion_usd_per_mtok == "0.2"


def test_an_error_of_the_agent_is_printed(node: Node) -> None:
    node.answer = {"error": "No gateway would take this node."}
    result = node.run("price", "set", "--hourly", "1")
    assert (result.exit_code, "No gateway" in result.stderr) == (1, True)
