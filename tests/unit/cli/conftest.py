from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparewatt.cli.credentials import Login
from sparewatt.cli.main import cli
from tests.unit.cli.fake_network import KEY, FakeNetwork, running

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network of the machine that runs the tests is found."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SPAREWATT_BASE_URL", "SPAREWATT_API_KEY", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def network() -> Iterator[FakeNetwork]:
    with running() as fake:
        yield fake


@pytest.fixture
def run(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line against the fake network."""
    monkeypatch.setenv("SPAREWATT_BASE_URL", network.base_url)
    monkeypatch.setenv("SPAREWATT_API_KEY", KEY)
    return run_alone


def run_alone(*words: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, words, input=stdin, catch_exceptions=False)


def a_login(base_url: str, key: str = "sk-sw-login") -> Login:
    return Login(base_url, key, "key_1", "acc_1", "ann@example.org")
