"""A file is served only where llama.cpp is installed; otherwise the error says how to install it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.node.backends import backend_source
from sparewatt.node.backends.backend_source import check_backend_url, how_to_serve, model_server
from tests.unit.node.rig import node_settings


async def test_without_llama_cpp_the_join_fails_at_once_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_source, "has_llama", lambda: False)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    settings = node_settings(tmp_path, serve=file)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(StartupError, match="pip install xllamacpp"):
            async with model_server(settings, session, clock=SystemClock(), rng=seeded(1)):
                pass
    assert not (tmp_path / "llama.log").exists()


@pytest.mark.parametrize(("has_llama", "is_advised"), [(True, False), (False, True)])
def test_advice_to_serve_a_file_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, *, has_llama: bool, is_advised: bool
) -> None:
    monkeypatch.setattr(backend_source, "has_llama", lambda: has_llama)
    assert ("pip install xllamacpp" in how_to_serve()) is is_advised
    assert "--serve" in how_to_serve()


def test_the_extra_for_serving_brings_no_more_than_a_node_and_llama_cpp() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    first, second = project["optional-dependencies"]["serve"]
    assert first == "sparewatt[node]"
    assert second.startswith("xllamacpp")


@pytest.mark.parametrize("url", ["banana", "127.0.0.1:8080", "ftp://x", "http://", "http://a:99999", ""])
def test_a_bad_backend_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(StartupError, match=r"It looks like http://127\.0\.0\.1:8080"):
        check_backend_url(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://models.example/v1", "http://[::1]:1"])
def test_a_valid_backend_address_is_accepted(url: str) -> None:
    check_backend_url(url)
