"""`lease logs | exec | connect` against a network of canned replies. The real thing is in the integration tests."""

from __future__ import annotations

import json
import os
import pty
import sys
import termios
from typing import Any

import pytest

from sparewatt.cli.leases.access import logs, remote_command
from sparewatt.cli.leases.access.remote_command import _raw_terminal, _terminal_size
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.leases.lease_replies import MATCHED, a_quote, created, details

LOGS = "GET /v1/leases/web/logs?format=json"
FOLLOWED = "GET /v1/leases/web/logs?follow=true&format=json"
AWAY = {"message": "The connection was lost.", "type": "server_error", "param": None, "code": "node_unreachable"}


def line(**piece: object) -> bytes:
    return json.dumps(piece).encode() + b"\n"


def test_stdout_and_stderr_of_a_lease_go_where_they_belong(network: FakeNetwork, run: Run) -> None:
    network.on(LOGS, pieces=[line(text="one\n"), b"\n", line(stream="stderr", text="oh\n"), line(text="two\n")])
    result = run("lease", "logs", "web")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "one\ntwo\n", "oh\n")


def test_a_log_as_json_is_a_line_for_each_piece(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/leases/web/logs?tail=3&format=json", pieces=[line(text="one\n"), b"\n"])
    result = run("lease", "logs", "web", "--tail", "3", "--json")
    assert [json.loads(text) for text in result.stdout.splitlines()] == [{"text": "one\n"}]


def test_a_log_that_breaks_off_is_an_error(network: FakeNetwork, run: Run) -> None:
    network.on(LOGS, pieces=[line(text="one\n"), line(error=AWAY)])
    result = run("lease", "logs", "web")
    assert (result.exit_code, result.stdout) == (1, "one\n")
    assert "The connection was lost." in result.stderr


def test_a_followed_log_goes_on_when_its_machine_was_away(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOST_WAIT_S", 0.0)
    network.on(FOLLOWED, pieces=[line(text="one\n"), line(error=AWAY)])
    network.on("GET /v1/leases/web/logs?follow=true&tail=0&format=json", pieces=[line(text="two\n")])
    result = run("lease", "logs", "web", "-f")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")
    assert "some lines may be missing" in result.stderr


def test_a_followed_log_that_never_comes_back_is_given_up(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOST_WAIT_S", 0.0)
    network.lose(FOLLOWED)
    network.lose("GET /v1/leases/web/logs?follow=true&tail=0&format=json")
    result = run("lease", "logs", "web", "-f")
    assert result.exit_code == 1
    assert "cannot be followed any more" in result.stderr
    assert len(network.requests) == logs.LOST_MAX


@pytest.mark.parametrize("words", [("logs", "web"), ("logs", "web", "-f"), ("exec", "web", "--", "ls")])
def test_a_lease_of_somebody_else_is_not_found(network: FakeNetwork, run: Run, words: tuple[str, ...]) -> None:
    for route in (LOGS, FOLLOWED, "GET /v1/leases/web/exec"):
        network.fail(route, 404, "lease_not_found", "You have no lease 'web'.")
    result = run("lease", *words)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "You have no lease 'web'." in result.stderr
    assert "sparewatt lease list" in result.stderr


def test_a_command_is_required(run: Run) -> None:
    assert run("lease", "exec", "web").exit_code == 2


def test_a_port_that_was_not_ordered_is_not_opened(network: FakeNetwork, run: Run) -> None:
    lease: dict[str, Any] = details(MATCHED)
    lease["content"] = {"image": "me/web:1", "ports": [8080, 9090]}
    network.on("GET /v1/leases/web", lease)
    result = run("lease", "connect", "web", "22")
    assert result.exit_code == 2
    assert "its ports are: 8080, 9090" in result.stderr


def test_a_terminal_is_raw_while_a_command_runs_and_then_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setattr(remote_command, "STDIN", theirs)
    with os.fdopen(theirs, "rb", buffering=0) as terminal, os.fdopen(ours, "rb", buffering=0):
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(theirs)
        with _raw_terminal():
            assert not termios.tcgetattr(theirs)[3] & termios.ICANON
        assert termios.tcgetattr(theirs) == before


def test_the_size_of_a_terminal_is_within_what_the_network_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5000")
    monkeypatch.setenv("LINES", "40")
    size = _terminal_size()
    assert (size.columns, size.rows) == (1_000, 40)


SITE = {"lease": "0123456789abcdef", "port": 8080, "url": "http://0123456789abcdef.localhost:8484/"}


def test_a_port_is_published_and_closed_again(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/web/site", SITE)
    network.on("DELETE /v1/leases/web/site", SITE | {"port": None, "url": None})
    assert run("lease", "publish", "web", "8080").stdout == f"{SITE['url']}\n"
    assert network.requests[-1].body == {"port": 8080}
    assert "no public address any more" in run("lease", "publish", "web", "--off").stdout


@pytest.mark.parametrize("words", [("web",), ("web", "8080", "--off"), ("web", "70000")])
def test_what_to_publish_must_be_said(network: FakeNetwork, run: Run, words: tuple[str, ...]) -> None:
    assert run("lease", "publish", *words).exit_code == 2
    assert network.requests == []


def test_an_order_with_a_public_port_lists_it_and_opens_it(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/dry-run", a_quote())
    network.on("POST /v1/leases", created(MATCHED), status=201)
    network.on("POST /v1/leases/0123456789abcdef/site", SITE)
    result = run("lease", "create", "--image", "me/web:1", "--port", "22", "--public", "8080", "--no-wait")
    assert (result.exit_code, f"Public address: {SITE['url']}" in result.stderr) == (0, True)
    ordered = next(request.body for request in network.requests if request.path == "/v1/leases")
    assert ordered["ports"] == [22, 8080]


def test_an_order_stands_also_where_there_are_no_public_addresses(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/dry-run", a_quote())
    network.on("POST /v1/leases", created(MATCHED), status=201)
    network.fail("POST /v1/leases/0123456789abcdef/site", 422, "unprocessable", "There are no host names for sites.")
    result = run("lease", "create", "--image", "me/web:1", "--public", "8080", "--no-wait")
    assert (result.exit_code, "No public address: There are no host names" in result.stderr) == (0, True)
