"""Agents of other releases than their gateway, as real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.machine.spawn import free_port
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, engine_argv, is_serving, process
from tests.processes import wait_until

AS_RELEASE = (
    "import sys, sparewatt; sparewatt.__version__ = sys.argv.pop(1); from sparewatt.cli.main import main; main()"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with process(engine_argv(port, decode_tps=200), tmp_path / "engine.log", env=bare_environment(tmp_path)):
        yield f"http://127.0.0.1:{port}"


def join_as(release: str, network: Network, folder: Path, *, engine: str) -> list[str]:
    token = ask(network, "POST", "/v1/join-tokens", {}).json()["token"]
    argv = [sys.executable, "-c", AS_RELEASE, release, "node", "join", network.root_url, f"--token={token}"]
    return [*argv, f"--backend={engine}", f"--data={folder / 'node'}", f"--name=release-{release}"]


def test_one_minor_version_newer_joins_and_serves(shared_network: Network, engine: str, tmp_path: Path) -> None:
    argv = join_as("0.2.0", shared_network, tmp_path, engine=engine)
    with process(argv, tmp_path / "node.log", env=bare_environment(tmp_path)):
        wait_until(lambda: is_serving(shared_network, "release-0.2.0"), "it does not serve", ceiling_s=60)


def test_further_apart_it_ends_and_says_which_side_to_update(
    shared_network: Network, engine: str, tmp_path: Path
) -> None:
    argv = join_as("0.4.0", shared_network, tmp_path, engine=engine)
    ended = subprocess.run(
        argv, env=bare_environment(tmp_path), check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "Update the gateway" in ended.stderr
    assert "0.4.0" in ended.stderr
    assert ended.stderr.count("\n") <= 3  # words, no traceback
