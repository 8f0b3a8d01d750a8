"""The commands about this machine's node, against a control socket that notes what it is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.cli.node.status import format_log_line
from sparewatt.node.log_file import FILE
from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S, read_owner_rules
from sparewatt.node.saved_settings import read_saved_settings
from tests.unit.cli.conftest import run_alone
from tests.unit.cli.fake_agent import STATUS, Node, running_agent

COMMANDS = [
    *(["node", name] for name in ("status", "pause", "resume", "drain", "schedule", "doctor", "logs", "service")),
    ["node", "price", "set"],
]


@pytest.fixture
def away(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running_agent(tmp_path / "n") as found:
        yield found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example_and_json(words: list[str]) -> None:
    shown = run_alone(*words, "--help").stdout
    assert " ".join(["sparewatt", *words]) in shown.split("Example:")[1]
    assert "--json" in shown


def test_status_is_shown_and_told_as_json(node: Node) -> None:
    shown = node.run("status").stdout
    assert all(
        text in shown for text in ("attic", "online", "ollama", "on disk", "160 (4)", "RTX 4090", "88 W", "300 W")
    )
    assert json.loads(node.run("status", "--json").stdout) == STATUS


@pytest.mark.parametrize("command", ["status", "drain"])
def test_without_an_agent_there_is_a_next_step(away: Node, command: str) -> None:
    result = away.run(command)
    assert result.exit_code == 1
    assert "No node runs here" in result.stderr
    assert "sparewatt node join" in result.stderr


def test_pause_and_resume_go_to_the_agent(node: Node) -> None:
    node.run("pause")
    node.run("resume")
    assert [asked["wishes"] for asked in node.asked] == [
        {"paused_until_unix_s": UNTIL_RESUMED_UNIX_S},
        {"paused_until_unix_s": 0.0},
    ]
    node.run("pause", "--for", "2h")
    assert 0 < node.asked[-1]["wishes"]["paused_until_unix_s"] < UNTIL_RESUMED_UNIX_S


def test_without_an_agent_what_is_wished_for_counts_from_the_next_start(away: Node) -> None:
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
    assert node.asked == [{"do": "status"}]


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
def test_mistakes_are_told_as_such(away: Node, words: tuple[str, ...]) -> None:
    assert away.run(*words).exit_code == 2


def test_prices_go_to_the_agent_or_are_kept(node: Node, tmp_path: Path) -> None:
    assert "$0.10" in node.run("price", "set", "--hourly", "0.1").stdout
    assert node.asked == [{"do": "price", "hourly_usd": "0.1"}]
    away = Node(tmp_path / "away")
    away.run("price", "set", "--prompt", "0.05", "--completion", "0.2")
    assert read_saved_settings(away.folder).completion_usd_per_mtok == "0.2"


def test_prices_per_token_are_shown_where_they_were_set(node: Node) -> None:
    assert "$0.10 an hour" in node.run("status").stdout
    node.answer = {"status": STATUS | {"prompt_usd_per_mtok": "0.5", "completion_usd_per_mtok": "1"}}
    for shown in (node.run("status").stdout, node.run("price", "set", "--prompt", "0.5", "--completion", "1").stdout):
        assert "$0.50 per 1M read, $1.00 per 1M written" in shown
        assert "an hour" not in shown


def test_a_model_server_that_is_gone_is_shown(node: Node) -> None:
    gone = {"state": "no_server", "server": {"kind": "ollama", "trouble": "/v1/models did not answer"}}
    node.answer = {"status": STATUS | gone}
    shown = node.run("status").stdout
    assert "its model server is gone" in shown
    assert "did not answer" in shown
    assert "online" not in shown


def test_what_the_agent_refuses_is_told(node: Node) -> None:
    node.answer = {"error": "No gateway would take this node."}
    result = node.run("price", "set", "--hourly", "1")
    assert (result.exit_code, "No gateway" in result.stderr) == (1, True)


def test_logs_are_shown_in_words_and_as_they_are(away: Node) -> None:
    away.folder.mkdir()
    lines = [
        '{"t": 1.0, "level": "warning", "logger": "x", "event": "measure_failed", "model": "m"}',
        "not JSON\x1b[31m",
    ]
    (away.folder / FILE).write_text("\n".join(lines) + "\n")
    shown = away.run("logs").stdout.splitlines()
    assert shown[0].endswith("WARNING measure_failed  model=m")
    assert "\x1b" not in shown[1]
    assert away.run("logs", "-n", "1", "--json").stdout.startswith("not JSON")
    assert "told" not in format_log_line('{"t": 1, "level": "info", "event": "told", "text": "joined"}')


def test_without_a_log_there_is_a_next_step(away: Node) -> None:
    result = away.run("logs")
    assert (result.exit_code, "no log" in result.stderr) == (1, True)
