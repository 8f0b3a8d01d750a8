"""What `sparewatt node service` prints for each kind of service manager."""

from __future__ import annotations

import json
import plistlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sparewatt.cli.node.service import with_absolute_paths
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.node.settings import save_settings
from tests.unit.cli.conftest import run_alone
from tests.unit.node.rig import node_settings


def printed(kind: str, *words: str) -> str:
    text: str = run_alone("node", "service", "--for", kind, "--data", "/srv/no de", *words).stdout
    return text


READ: dict[str, Callable[[str], list[str]]] = {
    "systemd": lambda text: next(line for line in text.splitlines() if line.startswith("ExecStart=")).split(),
    "launchd": lambda text: list(plistlib.loads(text.encode())["ProgramArguments"]),
    "windows": lambda text: (
        (
            "".join(ET.fromstring(text.split("?>", 1)[1]).itertext())  # noqa: S314 (our own)
        ).split()
    ),
}


@pytest.mark.parametrize("kind", READ)
def test_a_service_joins_with_the_options_given(kind: str) -> None:
    text = printed(kind, "https://gateway.example", "--name", "attic")
    words = READ[kind](text)
    assert {"node", "join", "https://gateway.example", "--name", "attic"} <= set(words)
    assert "no de" in text


def test_a_service_serves_with_what_its_node_was_joined_with(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    save_settings(node_settings(make_private_dir(folder), serve=Path("/models/small.gguf")))
    words = ("node", "service", "--data", str(folder), "https://gateway.example")
    assert "/models/small.gguf" in run_alone(*words).stderr
    assert json.loads(run_alone(*words[:2], "--json", *words[2:]).stdout)["kept_serving"] == "/models/small.gguf"


def test_a_service_names_files_by_their_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--serve", "model.gguf", "--config=node.toml", "--name", "model.gguf")
    whole = ["--serve", f"{tmp_path}/model.gguf", f"--config={tmp_path}/node.toml", "--name", "model.gguf"]
    assert with_absolute_paths(given) == whole


def test_a_token_does_not_belong_in_such_a_file() -> None:
    result = run_alone("node", "service", "https://gateway.example", "--token", "join-sw-1")
    assert result.exit_code == 2
    assert "by hand" in result.stderr


def test_options_with_a_typo_are_an_error_now_and_not_at_the_next_boot() -> None:
    assert run_alone("node", "service", "https://gateway.example", "--nmae", "x").exit_code == 2
