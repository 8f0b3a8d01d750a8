from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from sparewatt.core.log import JsonFormatter, Logger, PlainFormatter, stderr_handler


class Rude:
    """Has no text, not even for a log."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def line_of(event: str = "node_joined", /, *args: object, **fields: object) -> Any:
    record = logging.LogRecord("sparewatt.test", logging.INFO, "f.py", 1, event, args, None)
    record.fields = fields
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_an_event_carries_its_fields() -> None:
    line = line_of("node_joined", node="0x1", models=2)
    assert (line["event"], line["node"], line["models"]) == ("node_joined", "0x1", 2)
    assert (line["level"], line["logger"]) == ("info", "sparewatt.test")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        b"\xff",
        {1, 2},
        object(),
        Rude(),
        ValueError("x"),
        {(1, 2): 3},
        {"deep": [Rude()]},
        "\ud800",
        "two\nlines",
        10**400,
    ],
)
def test_any_value_makes_a_line_of_json(value: object) -> None:
    line = line_of(what=value, id="kept")
    assert line["event"] == "node_joined"
    assert line["id"] == "kept"
    assert "what" in line


def test_a_value_that_contains_itself_makes_a_line_of_json() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert line_of(what=loop)["event"] == "node_joined"


def test_a_field_cannot_pass_for_the_event_or_the_level() -> None:
    line = line_of("node_joined", event="forged", level="critical", t=0)
    assert (line["event"], line["level"]) == ("node_joined", "info")
    assert line["t"] > 0


def test_a_format_that_does_not_fit_its_arguments_is_logged_as_it_is() -> None:
    assert line_of("%d jobs", "many")["event"] == "%d jobs"
    assert line_of("%d jobs", 3)["event"] == "3 jobs"


def test_a_crash_is_logged_with_its_trace_also_when_it_is_no_longer_handled(caplog: pytest.LogCaptureFixture) -> None:
    try:
        dict[str, int]()["lost"]
    except KeyError as error:
        lost = error
    assert sys.exc_info() == (None, None, None)
    Logger("sparewatt.test").crash("request_crashed", lost, request="req_1")
    line = json.loads(JsonFormatter().format(caplog.records[0]))
    assert line["event"] == "request_crashed"
    assert "KeyError: 'lost'" in line["trace"]


def test_a_crash_that_was_never_raised_is_logged_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    Logger("sparewatt.test").crash("request_crashed", KeyError("lost"))
    assert "KeyError" in json.loads(JsonFormatter().format(caplog.records[0]))["trace"]


def test_a_warning_is_more_than_an_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sparewatt.test"):
        Logger("sparewatt.test").info("node_joined")
        Logger("sparewatt.test").warning("node_turned_away", node="0x1")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def plain_line_of(event: str = "node_joined", level: int = logging.INFO, **fields: object) -> str:
    record = logging.LogRecord("sparewatt.test", level, "f.py", 1, event, (), None)
    record.fields = fields
    return PlainFormatter().format(record)


def test_plain_lines_are_readable_words() -> None:
    line = plain_line_of(node="0x1", why="its heartbeats stopped", ms=1.5)
    assert line[8:] == ' node_joined node=0x1 why="its heartbeats stopped" ms=1.5'
    assert " warning: node_left" in plain_line_of("node_left", logging.WARNING)


@pytest.mark.parametrize("value", ["\x1b[2J", "two\nlines", "\u202egnp.exe", 'a" b="c', "", Rude()])
def test_no_value_controls_a_terminal_or_passes_for_another_field(value: object) -> None:
    line = plain_line_of(what=value, id="kept")
    assert line.isascii()
    assert line.isprintable()
    assert line.endswith(" id=kept")


def test_a_trace_follows_its_line() -> None:
    try:
        int("nobody foresaw this")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "crashed", (), sys.exc_info())
    assert PlainFormatter().format(record).endswith("'nobody foresaw this'")


@pytest.mark.parametrize(("is_terminal", "shape"), [(True, PlainFormatter), (False, JsonFormatter)])
def test_a_terminal_gets_plain_text_and_a_file_json(
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,  # noqa: FBT001 (a parameter)
    shape: type[logging.Formatter],
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    assert isinstance(stderr_handler().formatter, shape)
